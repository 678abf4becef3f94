"""What a verifier is, and what it says about a response.

A *verifier* checks one thing and gives one named reward. Beside the number it gives its *verifier information*: the
requirement as the prompt states it, the reference it compares with, what it found on this response, and where. That
payload is what MRTPO replays a response with and without, so it is the heart of the library.

Three rules hold everywhere:

- A response is data. `judge` gives a verdict for any string at all; a verifier that raises gives "cannot judge".
- "Cannot judge" is `reward=None`, never 0: such a reward takes no part in a group's mean, deviation or gradient.
- Evidence has three states, kept apart: spans of the response that decided the verdict, `Evidence.ABSENT` (there is
  nothing to point at: a keyword that is missing), and `Evidence.WHOLE` (the response as a whole: a word count).
"""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from mrtpo_envs.errors import EnvError, TaskError

if TYPE_CHECKING:
    from mrtpo_envs.task import Task


class Span(NamedTuple):
    """Half-open range of characters `[start, end)` of a response, in Python's string indices."""

    start: int
    end: int


class Evidence(enum.Enum):
    """Where to look when there are no spans to point at."""

    ABSENT = "absent"
    """The verdict rests on something that is *not* in the response."""
    WHOLE = "whole"
    """The verdict rests on the response as a whole."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verifier's answer for one response."""

    reward: float | None
    """The reward, within the verifier's `reward_range`; None where the verifier cannot judge."""
    outcome: str
    """What was found, in words, about this response alone: it never quotes the reference."""
    evidence: tuple[Span, ...] | Evidence = Evidence.WHOLE
    """The characters that decided the verdict, or the state that says why there are none."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Anything more, JSON-serialisable: counts, sub-scores, the verdict under another rule."""

    def __post_init__(self) -> None:
        if self.reward is not None and not math.isfinite(self.reward):
            raise EnvError(f"a verdict's reward must be a finite number or None, got {self.reward!r}")
        if isinstance(self.evidence, Evidence):
            return
        for span in self.evidence:
            if type(span) is not Span:
                object.__setattr__(self, "evidence", tuple(Span(int(start), int(end)) for start, end in self.evidence))
                break
        if not self.evidence:
            raise EnvError("empty evidence says nothing: use Evidence.ABSENT or Evidence.WHOLE")
        for start, end in self.evidence:
            if not 0 <= start < end:
                spans = tuple(self.evidence)
                raise EnvError(f"evidence spans must be half-open ranges with 0 <= start < end, got {spans}")

    @property
    def spans(self) -> tuple[Span, ...]:
        """The evidence's spans; empty for `Evidence.ABSENT` and `Evidence.WHOLE`."""
        return () if isinstance(self.evidence, Evidence) else self.evidence

    def to_dict(self) -> dict[str, Any]:
        """A JSON-serialisable form that `from_dict` reads back to an equal verdict."""
        evidence = self.evidence.value if isinstance(self.evidence, Evidence) else [list(s) for s in self.evidence]
        return {"reward": self.reward, "outcome": self.outcome, "evidence": evidence, "details": dict(self.details)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """Reads what `to_dict` wrote."""
        raw = data["evidence"]
        evidence = Evidence(raw) if isinstance(raw, str) else tuple(Span(*s) for s in raw)
        return cls(data["reward"], data["outcome"], evidence, dict(data["details"]))


class Verifier(ABC):
    """Checks one thing about a response and gives one named reward.

    A plug-in author writes `check`, and `statement` or `reference` (at least one of them must not be empty, or there is
    nothing to replay the response with). Instances should be plain picklable objects that hold no open resource.
    """

    name: str
    """The reward's name, unique within a task."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """The smallest and largest reward. The largest means *passed*."""
    weight: float = 1.0
    """This reward's weight in the scalar reward and in the combined advantage."""

    def statement(self, task: Task) -> str:
        """The requirement's text as the prompt states it; empty where the prompt does not state it."""
        return ""

    def reference(self, task: Task) -> str:
        """What the response is checked against and the policy never sees; empty where there is none."""
        return ""

    @classmethod
    def prefetch(cls, pairs: Sequence[tuple[Task, str]]) -> None:
        """Told of a whole batch before its responses are checked one by one; does nothing by default.

        For a verifier whose work is done elsewhere (other processes, a service) and can be asked for all at once.
        """
        return

    @abstractmethod
    def check(self, task: Task, response: str) -> Verdict:
        """Judges any string. May raise: `judge` turns that into "cannot judge"."""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """The fixed facts of one reward of a task."""

    low: float
    high: float
    weight: float
    statement: str


@dataclass(frozen=True, slots=True)
class Verification:
    """All verdicts on one response, in the order of the task's verifiers. One frozen object per step.

    A single object and no dictionary, because vector environments take dictionaries in `info` apart.
    """

    verdicts: Mapping[str, Verdict]
    specs: Mapping[str, RewardSpec]

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdicts", MappingProxyType(dict(self.verdicts)))
        object.__setattr__(self, "specs", MappingProxyType(dict(self.specs)))

    def __reduce__(self) -> tuple[Any, ...]:  # mapping proxies do not pickle
        return (Verification, (dict(self.verdicts), dict(self.specs)))

    def __hash__(self) -> int:
        return hash(tuple((name, v.reward) for name, v in self.verdicts.items()))

    def __getitem__(self, name: str) -> Verdict:
        return self.verdicts[name]

    @property
    def rewards(self) -> dict[str, float | None]:
        """`{name: reward}` in order; None where a verifier could not judge."""
        return {name: verdict.reward for name, verdict in self.verdicts.items()}

    @property
    def total(self) -> float:
        """The weighted sum of the rewards that could be judged: the environment's scalar reward."""
        return float(sum(self.specs[n].weight * v.reward for n, v in self.verdicts.items() if v.reward is not None))

    def passed(self, name: str) -> bool | None:
        """Whether reward `name` is at its highest; None where it could not be judged."""
        reward = self.verdicts[name].reward
        return None if reward is None else reward >= self.specs[name].high

    @property
    def all_passed(self) -> bool:
        """Whether every reward is at its highest. A reward that could not be judged has not passed."""
        return all(self.passed(name) is True for name in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-serialisable form that `from_dict` reads back to an equal object."""
        return {
            name: verdict.to_dict()
            | {
                "range": [self.specs[name].low, self.specs[name].high],
                "weight": self.specs[name].weight,
                "statement": self.specs[name].statement,
            }
            for name, verdict in self.verdicts.items()
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verification:
        """Reads what `to_dict` wrote."""
        specs = {n: RewardSpec(d["range"][0], d["range"][1], d["weight"], d["statement"]) for n, d in data.items()}
        return cls({n: Verdict.from_dict(d) for n, d in data.items()}, specs)


def judge(task: Task, response: str) -> Verification:
    """All of `task`'s verdicts on `response`. Never raises on account of the response or of a verifier's fault.

    A verifier that raises, or that gives something other than a `Verdict` within its range, yields `reward=None` with
    the fault in `outcome`; the other verdicts stand.
    """
    verdicts = {v.name: _judge_one(v, task, response) for v in task.verifiers}
    specs = {v.name: RewardSpec(*v.reward_range, v.weight, v.statement(task)) for v in task.verifiers}
    return Verification(verdicts, specs)


def cannot_judge(why: str) -> Verdict:
    """The verdict of a verifier that cannot judge."""
    return Verdict(None, f"cannot judge: {why}")


def _judge_one(verifier: Verifier, task: Task, response: str) -> Verdict:
    try:
        verdict = verifier.check(task, response)
    except Exception as error:  # a fault of the verifier, whatever it is, must cost one reward and no more
        return cannot_judge(f"{type(error).__name__}: {error}")
    if not isinstance(verdict, Verdict):
        return cannot_judge(f"the verifier returned {type(verdict).__name__}, expected a Verdict")
    low, high = verifier.reward_range
    if verdict.reward is not None and not low <= verdict.reward <= high:
        return cannot_judge(f"reward {verdict.reward!r} is outside the stated range [{low}, {high}]")
    if any(span.end > len(response) for span in verdict.spans):
        return cannot_judge(f"evidence {verdict.spans} reaches past the response's {len(response)} characters")
    return verdict


def require_verifiers(verifiers: Sequence[Verifier]) -> None:
    """Raises TaskError where `verifiers` cannot be a task's: none at all, a nameless one, two of one name."""
    if not verifiers:
        raise TaskError("a task needs at least one verifier, got none: give it the rewards it should be judged by")
    names = [getattr(v, "name", "") for v in verifiers]
    for verifier, name in zip(verifiers, names, strict=True):
        if not isinstance(verifier, Verifier):
            raise TaskError(f"a task's verifiers must be Verifier instances, got {type(verifier).__name__}")
        if not isinstance(name, str) or not name:
            raise TaskError(f"{type(verifier).__name__} has no name: set `name` to the reward's name")
        low, high = verifier.reward_range
        if not low < high:
            raise TaskError(f"verifier {name!r}: reward_range must be (low, high) with low < high, got {(low, high)}")
    double = sorted({n for n in names if names.count(n) > 1})
    if double:
        raise TaskError(f"reward names must be unique within a task, got {double} more than once")
