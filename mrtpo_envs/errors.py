"""Every exception that the two packages raise on purpose.

    MrtpoError
    ├── UnknownNameError   a name that is in no registry (also a LookupError); says which names come close
    ├── ConfigError        an option or setting with an impossible value (also a ValueError)
    ├── TaskError          a task that cannot be judged as written (also a ValueError)
    ├── DataError          a data file that is missing or malformed (also a ValueError)
    ├── EnvError           an environment that is used wrongly or breaks its contract (also a RuntimeError)
    ├── PolicyError        a model, tokenizer or adapter that cannot be used (also a ValueError)
    └── RunError           a run folder or checkpoint that cannot be written or resumed (also a RuntimeError)

A message says what was expected, what came, and what to do. What a *model* writes never raises: a bad response gets a
verdict.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MrtpoError(Exception):
    """Base of all errors raised on purpose by `mrtpo_envs` and `mrtpo_agent`."""


class UnknownNameError(MrtpoError, LookupError):
    """A name that nothing is registered under."""

    def __str__(self) -> str:  # LookupError's children would show the repr of their argument
        return str(self.args[0]) if self.args else ""


class ConfigError(MrtpoError, ValueError):
    """A setting whose value is impossible, alone or together with another."""


class TaskError(MrtpoError, ValueError):
    """A task that cannot be judged as written: no verifier, an unknown constraint, a missing argument."""


class DataError(MrtpoError, ValueError):
    """A data file that is missing, unreadable or not in the format it should have."""


class EnvError(MrtpoError, RuntimeError):
    """An environment used out of order, or one that does not keep the contract of `MultiRewardEnv`."""


class PolicyError(MrtpoError, ValueError):
    """A model, tokenizer or adapter that cannot serve as the policy."""


class RunError(MrtpoError, RuntimeError):
    """A run folder or checkpoint that cannot be written, read or resumed."""


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not among `known`, with the closest ones (or all, where they are few)."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        hint = "Did you mean " + " or ".join(repr(c) for c in close) + "?"
    elif names and len(names) <= 12:
        hint = "Known: " + ", ".join(names) + "."
    else:
        hint = f"{len(names)} are known; none is close."
    return UnknownNameError(f"unknown {kind} {name!r}. {hint}")
