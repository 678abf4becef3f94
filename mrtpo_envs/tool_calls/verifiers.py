"""The verifiers of tool calls: format, tool, schema, arguments, and others by name.

All read a response through `find_calls`, which remembers it. A call that was begun and cannot be read counts as a call: it
is no abstention, and one too many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.expected import Expected, agreement, assignment, same
from mrtpo_envs.tool_calls.formats import FORMATS, Call, Calls, find_calls, write_answer
from mrtpo_envs.tool_calls.reading import Places, json_value, python_value
from mrtpo_envs.tool_calls.schemas import Fault, UnusableSchema, check_arguments
from mrtpo_envs.verifier import Evidence, Span, Verdict, Verifier, cannot_judge

SHOWN = 1500
"""Most characters of a schema or a call that a reference quotes."""


def calls_of(task: Task, response: str) -> Calls:
    """The calls in a response to this task."""
    public = task.metadata
    found = find_calls(response, public["format"], prefilled=public["prefilled"], lenient=public["lenient"])
    if found.reply:  # a tool's name before a bracket is a call in some notation
        for name in public["parameters"]:
            at = response.find(name)
            if at >= 0 and (attempt := re.search(rf"(?<!\w){re.escape(name)}\s*\(", response)):
                return Calls((), 1, False, f"a call of {name[:60]} in another notation", attempt.start())
    return found


def expected_of(task: Task) -> tuple[Expected, ...]:
    """The calls that are due; empty where none is."""
    return tuple(task.privileged["expected"])


def parameters_of(task: Task) -> Mapping[str, Mapping[str, Any]]:
    """The schema of each tool that is offered."""
    schemas: Mapping[str, Mapping[str, Any]] = task.metadata["parameters"]
    return schemas


def due_text(task: Task) -> str:
    """The expected answer as the task's format writes it."""
    calls = [e.call for e in expected_of(task)]
    return write_answer(task.metadata["format"], calls) if calls else "no call at all, an answer in words"


def _spans(found: Iterable[Span]) -> tuple[Span, ...] | Evidence:
    spans = tuple(dict.fromkeys(found))[:20]
    return spans or Evidence.ABSENT


class Format(Verifier):
    """The answer is written by the format's rule; where calls are due, words alone have no format at all."""

    name = "format"

    def statement(self, task: Task) -> str:
        """The rule, as the prompt states it."""
        return FORMATS[task.metadata["format"]].statement if self.name in task.prompt.stated else ""

    def reference(self, task: Task) -> str:
        """The rule, where the prompt does not state it: the chat template does, or nobody."""
        return "" if self.name in task.prompt.stated else FORMATS[task.metadata["format"]].statement

    def check(self, task: Task, response: str) -> Verdict:
        """1 where the rule is met."""
        found = calls_of(task, response)
        missing = found.reply and task.metadata.get("calls_due", False)
        details = {"calls": len(found.calls), "unread": found.unread, "attempted": bool(found.calls or found.unread)}
        if found.at is not None and not found.well_formed:
            at = min(found.at, max(0, len(response) - 1))
            evidence: tuple[Span, ...] | Evidence = (
                (Span(at, min(len(response), at + 12)),) if response else Evidence.ABSENT
            )
        elif found.calls:
            evidence = _spans(_frames(response, found.calls))
        else:
            evidence = Evidence.ABSENT if missing or not found.reply else Evidence.WHOLE
        return Verdict(float(found.well_formed and not missing), found.found, evidence, details)


_BEFORE = re.compile(r"(?:<tool_call>|\[TOOL_CALLS\]|<\|python_\w+\|>|[\s\[,;])*\Z")
FRAME = 16
"""Most characters before and after a call that are its format's: the longest marks have fourteen."""


def _frames(response: str, calls: Sequence[Call]) -> Iterator[Span]:
    """What stands before the calls' names and after the last one's arguments: that is the format's."""
    before = 0
    for call in calls:
        start = max(before, call.span.start - FRAME)
        start += _BEFORE.search(response[start : call.span.start]).start()  # type: ignore[union-attr]
        yield Span(start, max(start + 1, min(call.name_span.start, call.arguments_span.start)))
        before = call.arguments_span.end
    if before < len(response):
        yield Span(before, min(len(response), before + FRAME))


class Tool(Verifier):
    """The right tools are called, as often as they should be; none where none is due.

    The reward is the Jaccard index of the two multisets of names; calls that cannot be read count as one name more each.
    """

    name = "tool"

    def reference(self, task: Task) -> str:
        """The names that are due."""
        names = [e.name for e in expected_of(task)]
        return f"the right tool is {', '.join(names)}." if names else "no tool fits, so none is to be called."

    def check(self, task: Task, response: str) -> Verdict:
        """0 to 1."""
        found = calls_of(task, response)
        due = Counter(e.name for e in expected_of(task))
        made = Counter(c.name for c in found.calls)
        details = {"names": [c.name for c in found.calls], "unread": found.unread}
        if not due:
            if found.reply:
                return Verdict(1.0, "no call, and words instead", Evidence.WHOLE, details)
            spans = _spans(c.name_span for c in found.calls)
            return Verdict(0.0, "a call where none is due" if found.calls else found.found, spans, details)
        union = (due | made).total() + found.unread
        reward = (due & made).total() / union
        wrong, left = [], due.copy()
        for call in found.calls:
            if left[call.name] > 0:
                left[call.name] -= 1
            else:
                wrong.append(call.name_span)
        if not found.calls:
            return Verdict(reward, found.found, Evidence.ABSENT, details)
        names = ", ".join(c.name[:60] for c in found.calls[:5])
        if wrong:
            return Verdict(reward, f"calls {names}", _spans(wrong), details)
        if reward < 1:
            return Verdict(reward, f"calls {names}; there should be more", Evidence.ABSENT, details)
        return Verdict(reward, f"calls {names}", _spans(c.name_span for c in found.calls), details)


class Schema(Verifier):
    """The share of the calls whose arguments are valid under the schema of the tool that they name.

    A call of a tool that is not offered, or that cannot be read, is not valid. Where the expected call itself fails its
    schema, or the schema cannot be used, there is no verdict.
    """

    name = "schema"

    def reference(self, task: Task) -> str:
        """The schemas of the tools that are due."""
        parts = [f"{name} takes {_brief(parameters_of(task)[name])}" for name in dict.fromkeys(_due_names(task))]
        return f"{'; '.join(parts)}."[:SHOWN] if parts else "the arguments must be valid under the tool's schema."

    def check(self, task: Task, response: str) -> Verdict:
        """0 to 1; cannot be judged where the task's own call is invalid."""
        schemas = parameters_of(task)
        found = calls_of(task, response)
        spans: list[Span] = []
        reasons: list[str] = []
        valid = 0
        try:
            for due in expected_of(task) if task.privileged["expected"] is not None else ():
                if due.name in schemas and (faults := check_arguments(schemas[due.name], due.call["arguments"])):
                    return cannot_judge(f"the task's own call fails its schema ({faults[0].reason})")
            for call in found.calls:
                if call.name not in schemas:
                    reasons.append(f"no tool is called {call.name[:60]}")
                    spans.append(call.name_span)
                elif call.arguments is None:
                    reasons.append("the arguments are no object")
                    spans.append(call.arguments_span)
                elif faults := check_arguments(schemas[call.name], call.arguments):
                    reasons.extend(f.reason for f in faults)
                    spans.extend(s for f in faults for s in _where(response, call, f))
                else:
                    valid += 1
        except UnusableSchema as error:
            return cannot_judge(str(error))
        total = len(found.calls) + found.unread
        if not found.calls:
            return Verdict(0.0, found.found, Evidence.ABSENT)
        details = {"valid": valid, "calls": total, "faults": reasons[:5]}
        if reasons:
            return Verdict(valid / total, "; ".join(reasons[:3]), _spans(spans), details)
        outcome = "valid arguments" if not found.unread else f"valid arguments, and {found.found}"
        return Verdict(valid / total, outcome, _spans(c.arguments_span for c in found.calls), details)


def _due_names(task: Task) -> list[str]:
    if task.privileged["expected"] is None:
        return []
    return [e.name for e in expected_of(task) if e.name in parameters_of(task)]


def _brief(schema: Mapping[str, Any]) -> str:
    """A schema's parameters in a line."""
    required = schema.get("required", ())
    parts = []
    for name, rule in schema.get("properties", {}).items():
        kind = rule.get("type", "any value") if isinstance(rule, Mapping) else "any value"
        if isinstance(rule, Mapping) and "enum" in rule:
            kind = "one of " + ", ".join(str(v) for v in rule["enum"][:12])
        parts.append(f"{name} ({kind}{'' if name in required else ', optional'})")
    return ", ".join(parts) or "no arguments"


def _where(response: str, call: Call, fault: Fault) -> list[Span]:
    """The characters that make arguments fail their schema: the value, the key that should not be, else nothing."""
    if fault.keys:
        return [s for key in fault.keys if (s := _place(response, call, (*fault.path, key), key=True))]
    if not fault.path:  # something is missing from the arguments as a whole
        return []
    place = _place(response, call, fault.path)
    return [place] if place else []


def _place(response: str, call: Call, path: tuple[str | int, ...], *, key: bool = False) -> Span | None:
    """Where the value (or the key) at a path of the arguments stands."""
    first, rest = path[0], path[1:]
    member = call.member(response, str(first))
    if member is None:  # a lenient reading keeps no places
        return None if call.members else call.arguments_span
    if not rest:
        return Span(member.key_start, member.key_end) if key else Span(member.start, member.end)
    places = Places()
    (python_value if call.python else json_value)(response, member.start, places)
    return (places.keys if key else places.values).get(rest)


class Arguments(Verifier):
    """Keys and values are the expected ones, the calls matched to the expected ones so that most agrees.

    The reward is the mean, over the greater number of calls, of the share of right parameters (`expected.agreement`); 1
    exactly where the calls are the expected ones and no other.
    """

    name = "arguments"

    def __init__(self, *, whole: bool = False, name: str = "arguments") -> None:
        """`whole` makes it 0 unless everything is right."""
        self.whole = whole
        self.name = name

    def reference(self, task: Task) -> str:
        """The expected answer."""
        return f"the right answer is {due_text(task)}"[:SHOWN]

    def check(self, task: Task, response: str) -> Verdict:
        """0 to 1."""
        found, due = calls_of(task, response), expected_of(task)
        if not due:
            right = found.reply
            return Verdict(float(right), found.found, Evidence.WHOLE if right else _spans(c.span for c in found.calls))
        if not found.calls:
            return Verdict(0.0, found.found, Evidence.ABSENT)
        scores = [[agreement(e, c.name, c.arguments) for c in found.calls] for e in due]
        if task.metadata.get("ordered"):
            pairs: list[int | None] = [i if i < len(found.calls) else None for i in range(len(due))]
        else:
            pairs = assignment(scores)
        total = sum(scores[i][j] for i, j in enumerate(pairs) if j is not None)
        reward = total / max(len(due), len(found.calls) + found.unread)
        whole = sum(j is not None and scores[i][j] == 1.0 for i, j in enumerate(pairs))
        exact = whole == len(due) == len(found.calls) and not found.unread
        outcome = f"{whole} of {len(found.calls)} calls as they should be"
        details = {"right": whole, "made": len(found.calls) + found.unread, "share": reward}
        if exact:
            return Verdict(1.0, outcome, _spans(s for c in found.calls for s in _values(response, c)), details)
        spans = [s for i, j in enumerate(pairs) if j is not None for s in _wrong(response, due[i], found.calls[j])]
        spans += [c.span for j, c in enumerate(found.calls) if j not in pairs]
        return Verdict(0.0 if self.whole else reward, outcome, _spans(spans), details)


def _values(response: str, call: Call) -> list[Span]:
    members = (call.member(response, key) for key in call.members)
    return [Span(m.start, m.end) for m in members if m is not None] or [call.arguments_span]


def _wrong(response: str, due: Expected, call: Call) -> list[Span]:
    """The name, keys and values of a call that are not the expected one's."""
    if call.name != due.name:
        return [call.name_span]
    if call.arguments is None:
        return [call.arguments_span]
    spans: list[Span] = []
    for key, value in call.arguments.items():
        if key not in due.accepted:
            place = _place(response, call, (key,), key=True)
        elif not due.accepted[key] or any(same(value, a) for a in due.accepted[key]):
            continue
        else:
            place = _place(response, call, (key, *_deepest(due.accepted[key][0], value)))
        if place is not None:
            spans.append(place)
    return spans


def _deepest(wanted: Any, given: Any) -> tuple[str | int, ...]:
    """The path to the one part in which two values differ; as far down as it is one part."""
    if isinstance(wanted, Mapping) and isinstance(given, Mapping) and wanted.keys() == given.keys():
        different = [k for k in given if not same(wanted[k], given[k])]
        if len(different) == 1:
            return (different[0], *_deepest(wanted[different[0]], given[different[0]]))
    elif isinstance(wanted, (list, tuple)) and isinstance(given, (list, tuple)) and len(wanted) == len(given):
        wrong = [i for i, (a, b) in enumerate(zip(wanted, given, strict=True)) if not same(a, b)]
        if len(wrong) == 1:
            return (wrong[0], *_deepest(wanted[wrong[0]], given[wrong[0]]))
    return ()
