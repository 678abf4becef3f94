"""What every instruction constraint shares: arguments, the two rules, strict and loose, and the verdict.

A kind subclasses `Constraint`, registers itself under its published id, and says three things: what it demands, in words
(`describe`); what it finds in an answer, under the rule that follows those words (`find`); and what the published code
would say (`published`), for benchmark figures that must be comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from mrtpo_envs.answer import find_answer
from mrtpo_envs.errors import TaskError, unknown
from mrtpo_envs.instructions.text import Reading
from mrtpo_envs.task import Task
from mrtpo_envs.verifier import Evidence, Verdict, Verifier

Rule = Literal["worded", "published"]
"""`worded` follows the instruction's words; `published` is the benchmark's released code, its faults included."""
Strictness = Literal["strict", "loose"]
"""`loose` passes where any of eight variants of the answer does: an upper bound for evaluation, not for training."""

Check = Callable[[str, Any], Any]
"""Checks one argument: from its name and value to the value in normal form; raises ValueError with what was expected."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a constraint finds in an answer."""

    met: bool
    outcome: str
    where: Sequence[tuple[int, int]] | Evidence = Evidence.WHOLE
    """Ranges of the answer's text, or the state that says why there are none. An empty sequence means ABSENT."""


class Constraint(Verifier):
    """One instruction constraint: a verifier whose reward is 1 where it is met and 0 where it is not.

    Args:
        rule: "worded" or "published".
        strictness: "strict" or "loose".
        arguments: the kind's own, by their published names.

    Raises:
        TaskError: an argument is missing, of the wrong type, or not one of the kind's.
    """

    id: ClassVar[str]
    """Published id, `family:kind`."""
    takes: ClassVar[Mapping[str, Check]] = {}
    """Arguments and their checks."""
    cue: ClassVar[str] = ""
    """Pattern of the words that a prompt states this kind with; used to find the statement in a loaded prompt."""

    def __init__(self, *, rule: Rule = "worded", strictness: Strictness = "strict", **arguments: Any) -> None:
        if rule not in ("worded", "published"):
            raise TaskError(f"rule must be 'worded' or 'published', got {rule!r}")
        if strictness not in ("strict", "loose"):
            raise TaskError(f"strictness must be 'strict' or 'loose', got {strictness!r}")
        self.name = self.short_name()
        self.rule = rule
        self.strictness = strictness
        self.stated = True
        """Whether a segment of the prompt states this constraint; else its words serve as the reference."""
        self.arguments = self._checked(arguments)

    @classmethod
    def short_name(cls) -> str:
        """The reward's name where the kind occurs once in a task."""
        return cls.id.partition(":")[2].replace("-", "_")

    def describe(self) -> str:
        """The requirement in words, one imperative sentence."""
        raise NotImplementedError

    def find(self, text: str) -> Finding:
        """Judges an answer that is not blank, in normal form, by the words of the requirement."""
        raise NotImplementedError

    def published(self, text: str) -> bool:
        """The verdict of the published code on an answer, in the response's own characters."""
        raise NotImplementedError

    # the verifier ---------------------------------------------------------------------------------------------------

    def statement(self, task: Task) -> str:
        """The requirement in words, where the prompt states it in a segment of its own."""
        if not self.stated:
            return ""
        own = [s.text for turn in task.prompt.turns for s in turn.segments if s.states == self.name]
        return " ".join(text.strip() for text in own)

    def reference(self, task: Task) -> str:
        """The requirement in words where no segment of the prompt states it alone."""
        return "" if self.stated else self.describe()

    def check(self, task: Task, response: str) -> Verdict:
        """1 where the constraint is met under the rule and strictness, else 0."""
        return self.judge(response)

    def judge(self, response: str) -> Verdict:
        """`check` without a task: a constraint carries all it needs."""
        if self.rule == "published":
            return self._judge_published(response)
        reading = Reading(response)
        if not reading.given:
            return Verdict(0.0, "there is no answer", Evidence.ABSENT)
        finding = self.find(reading.text)
        if self.strictness == "loose" and not finding.met:
            for variant in _variants(reading.text)[1:]:
                if variant.strip() and (other := self.find(variant)).met:
                    return Verdict(1.0, f"{other.outcome} (in a looser reading of the answer)", Evidence.WHOLE)
        where = (
            finding.where if isinstance(finding.where, Evidence) else reading.spans(finding.where) or Evidence.ABSENT
        )
        return Verdict(float(finding.met), finding.outcome, where)

    def _judge_published(self, response: str) -> Verdict:
        answer = find_answer(response)
        variants = _variants(answer.text) if self.strictness == "loose" else [answer.text]
        met = answer.given and any(bool(text.strip()) and self.published(text) for text in variants)
        return Verdict(float(met), "met by the published rule" if met else "not met by the published rule")

    @classmethod
    def _checked(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if value is not None}
        wanted = ", ".join(cls.takes) or "none"
        stray = sorted(given.keys() - cls.takes.keys())
        if stray:
            raise TaskError(f"{cls.id} takes {wanted}; it has no argument {', '.join(map(repr, stray))}")
        missing = [name for name in cls.takes if name not in given]
        if missing:
            raise TaskError(f"{cls.id} needs the arguments {wanted}; missing: {', '.join(missing)}")
        try:
            return {name: check(name, given[name]) for name, check in cls.takes.items()}
        except ValueError as error:
            raise TaskError(f"{cls.id}: {error}") from error


KINDS: dict[str, type[Constraint]] = {}
"""Every constraint kind by its published id."""

C = TypeVar("C", bound=type[Constraint])


def register(kind: C) -> C:
    """Class decorator: makes a kind known under its `id`."""
    KINDS[kind.id] = kind
    return kind


def make_constraint(id: str, arguments: Mapping[str, Any], **settings: Any) -> Constraint:
    """The constraint of a published id. Raises UnknownNameError or TaskError."""
    if id not in KINDS:
        raise unknown("instruction id", str(id), KINDS)
    if not isinstance(arguments, Mapping):
        raise TaskError(f"{id}: its arguments must be a mapping, got {type(arguments).__name__}")
    return KINDS[id](**settings, **arguments)


def _variants(text: str) -> list[str]:
    """IFEval's eight loose readings, the answer itself first: without the first line, the last, both; without stars."""
    rows = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (rows[1:], rows[:-1], rows[1:-1]))]
    return [*cut, *(variant.replace("*", "") for variant in cut)]


# checks of arguments ------------------------------------------------------------------------------------------------


def count(low: int = 0) -> Check:
    """A whole number of at least `low`; 3.0 is one too, since data sets hold such."""

    def check(name: str, value: Any) -> int:
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
        if not whole or value < low:
            raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}")
        return int(value)

    return check


def phrase(name: str, value: Any) -> str:
    """A string that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be a string that is not blank, got {value!r}")
    return value


def phrases(name: str, value: Any) -> list[str]:
    """A list of strings, not empty, none of them blank."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{name} must be a list of one or more strings, got {value!r}")
    return [phrase(f"{name}[{i}]", item) for i, item in enumerate(value)]


def one_of(*options: str) -> Check:
    """One of some strings."""

    def check(name: str, value: Any) -> str:
        if value not in options:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")
        return str(value)

    return check


relation = one_of("less than", "at least")


def character(name: str, value: Any) -> str:
    """One character, as it is seen (a letter with its accent is one)."""
    from mrtpo_envs.instructions.text import normal

    if not isinstance(value, str) or len(normal(value).strip()) != 1:
        raise ValueError(f"{name} must be one character, got {value!r}")
    return normal(value).strip()


def holds(relation: str, found: int, bound: int) -> bool:
    """Whether `found` is less than, or at least, `bound`."""
    return found < bound if relation == "less than" else found >= bound


def amount(n: int, one: str, many: str | None = None) -> str:
    """`1 comma`, `2 commas`."""
    return f"{n} {one if n == 1 else many or one + 's'}"
