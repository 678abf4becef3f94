"""How tool calls are written: seven formats by name, and the one place that reads them.

`find_calls` reads any response in a format. It is strict: what is not a call, letter by letter, earns no format credit.
A call that cannot be read is counted (`unread`) and never repaired, so that a broken call is no abstention and half a
call is no call. Words before the first call are allowed where the format allows them; after the last one nothing is.

An answer without a call is a reply in words. It must say something, and hold no mark of a call.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mrtpo_envs.answer import CLOSE, OPEN, find_answer
from mrtpo_envs.errors import unknown
from mrtpo_envs.tool_calls import lenient as loose
from mrtpo_envs.tool_calls.reading import (
    Member,
    Members,
    Unreadable,
    json_member,
    json_object,
    python_argument,
    python_arguments,
    skip_space,
)
from mrtpo_envs.verifier import Span

MAX_LENGTH = 100_000
"""Longest answer that is read, in characters."""
MAX_CALLS = 64
"""Most calls that are read."""


class Call(NamedTuple):
    """A call in a response."""

    name: str
    arguments: Mapping[str, Any] | None
    """None where the call has something else in the place of its arguments."""
    bounds: tuple[int, int, int, int, int, int] = (0, 1, 0, 1, 0, 1)
    """Where the call, its name and its arguments begin and end."""
    members: Members = {}
    """Where each argument begins."""
    python: bool = False
    """Whether the arguments are Python's, and not JSON."""

    @property
    def span(self) -> Span:
        """The whole call."""
        return Span(*self.bounds[:2])

    @property
    def name_span(self) -> Span:
        """The name, without quotes."""
        return Span(*self.bounds[2:4])

    @property
    def arguments_span(self) -> Span:
        """The arguments, with their brackets."""
        return Span(*self.bounds[4:])

    def member(self, response: str, key: str) -> Member | None:
        """An argument and where it stands in the response; None where the call has it not."""
        if key not in self.members:
            return None
        return (python_argument if self.python else json_member)(response, self.members[key])


class Calls(NamedTuple):
    """What a response says."""

    calls: tuple[Call, ...]
    unread: int
    """How many calls were begun that cannot be read."""
    well_formed: bool
    """Whether the format's rule is met."""
    found: str
    """What was found, in words."""
    at: int | None = None
    """Where the first fault is."""
    reply: bool = False
    """Whether it is a reply in words without any mark of a call."""


@dataclass(frozen=True, slots=True)
class CallFormat:
    """One way to write calls."""

    name: str
    statement: str
    """The rule, as a prompt states it."""
    arguments_key: str
    """What the arguments are called in JSON; empty where calls are Python's."""
    read: Callable[[str, int, CallFormat], Calls]
    write: Callable[[Sequence[Mapping[str, Any]]], str]
    """A response of one or more calls, given as `{"name": ..., "arguments": {...}}`."""
    reasons: bool = False
    """Whether an answer begins with a reasoning block by rule."""


def find_calls(response: str, format: str, *, prefilled: bool = False, lenient: bool = False) -> Calls:
    """The calls in any string.

    Args:
        response: the response.
        format: a name from `FORMATS`.
        prefilled: the prompt ends with an open `<think>`, so that the response begins inside the block.
        lenient: where the strict reading finds no call, or one with arguments that are no object, read Python's literals
            for JSON, trailing commas, and arguments that are JSON in a string. Such calls are never well formed.

    Raises:
        UnknownNameError: no such format.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    return _find(response, format, prefilled, lenient)


@functools.lru_cache(maxsize=128)  # the verifiers of one response ask one after another
def _find(response: str, format: str, prefilled: bool, lenient: bool) -> Calls:
    rule = FORMATS[format]
    start = 0
    if prefilled or OPEN in response:
        answer = find_answer(response, prefilled=prefilled)
        if not answer.given:
            return Calls((), 0, False, "the reasoning never ends: there is no answer")
        start = answer.start
    if len(response) - start > MAX_LENGTH:
        return Calls((), 1, False, f"an answer of more than {MAX_LENGTH} characters, which is not read", start)
    found = rule.read(response, start, rule)
    if len(found.calls) > MAX_CALLS:
        found = Calls(
            found.calls[:MAX_CALLS], 1, False, f"more than {MAX_CALLS} calls", found.calls[MAX_CALLS].span.start
        )
    if found.well_formed and rule.reasons and start == 0:
        found = _spoilt(found, f"no {OPEN} block before the answer", 0)
    if found.reply and start == 0 and CLOSE in response:
        found = _spoilt(found, f"a {CLOSE} that was never opened", response.index(CLOSE))
    if lenient and (not found.calls or any(c.arguments is None for c in found.calls)):
        made, unread = loose.calls(response[start:], rule.arguments_key)
        bounds = (start, len(response)) * 3  # where its parts stand is not known
        calls = tuple(Call(name, arguments, bounds) for name, arguments in made)
        if calls:
            attempts = len(found.calls) + found.unread
            return Calls(calls, max(unread, attempts - len(calls)), False, found.found, found.at)
    return found


def _spoilt(found: Calls, why: str, at: int) -> Calls:
    return Calls(found.calls, found.unread, False, why, at, found.reply)


# Reading


def _object(text: str, at: int, rule: CallFormat) -> tuple[Call, int, str]:
    """The call whose JSON object begins at `at`, the position after it, and what is wrong with it."""
    value, end, members = json_object(text, at)
    key = rule.arguments_key
    name = value.get("name")
    if not isinstance(name, str):
        raise Unreadable('a call needs a "name" that is a string', at)
    if key not in value:
        raise Unreadable(f'a call needs "{key}"', at)
    arguments, _, _, start, stop = json_member(text, members[key])[1:]
    *_, name_start, name_stop = json_member(text, members["name"])
    places: Members = {}
    fault = ""
    if isinstance(arguments, dict):
        arguments, _, places = json_object(text, start)
    else:
        arguments, fault = None, f'"{key}" is no object'
    stray = next((k for k in value if k not in ("name", key)), None)
    if stray is not None:
        fault = f"a call has only name and {key}, found {stray[:40]!r}"
    name_stop = max(name_start + 2, name_stop - 1)  # a name that is empty has its closing quote to point at
    return Call(name, arguments, (at, end, name_start + 1, name_stop, start, stop), places), end, fault


_MARK = re.compile(r"</?tool_?call|\[TOOL_CALLS\]|<\|python_(?:tag|start|end)\|>|\[\s*[^\W\d][\w.]*\(", re.IGNORECASE)
_KEYS = (re.compile(r"[\"']name[\"']\s*:"), re.compile(r"[\"'](?:arguments|parameters)[\"']\s*:"))
"""What a call has in one notation or another: a call in the wrong one is an attempt, and no reply."""
_SAYS = re.compile(r"[^\W_]")


def _reply(text: str, at: int) -> Calls:
    """The answer as a reply in words."""
    mark = _MARK.search(text, at)
    if mark is None and (name := _KEYS[0].search(text, at)) and _KEYS[1].search(text, at):
        mark = name
    if mark is not None:
        return Calls((), 1, False, f"{mark[0]} without a call that can be read", mark.start())
    if not _SAYS.search(text, at):
        return Calls((), 0, False, "an answer that says nothing" if text[at:].strip() else "an empty answer")
    return Calls((), 0, True, "a reply in words", reply=True)


def _counted(n: int) -> str:
    return "one call" if n == 1 else f"{n} calls"


def _tagged(text: str, at: int, rule: CallFormat) -> Calls:
    """Hermes: each call between <tool_call> and </tool_call>."""
    opening, closing = "<tool_call>", "</tool_call>"
    start = text.find(opening, at)
    if start < 0:
        return _reply(text, at)
    calls: list[Call] = []
    unread, fault, where = 0, "", None
    if closing in text[at:start]:
        fault, where = f"{closing} before {opening}", text.index(closing, at)
    while start >= 0 and len(calls) + unread <= MAX_CALLS:
        inside = skip_space(text, start + len(opening))
        try:
            call, end, wrong = _object(text, inside, rule)
            end = skip_space(text, end)
            if not text.startswith(closing, end):
                raise Unreadable(f"expected {closing} after the call", end)
            end += len(closing)
            calls.append(call)
            if wrong and not fault:
                fault, where = wrong, call.span.start
        except Unreadable as error:
            unread += 1
            if not fault:
                fault, where = str(error), min(error.at, len(text))
            closed = text.find(closing, inside)
            end = len(text) if closed < 0 else closed + len(closing)
        start = text.find(opening, end)
        between = text[end : start if start >= 0 else len(text)]
        if between.strip() and not fault:
            fault, where = "words after a call", end + len(between) - len(between.lstrip())
    return Calls(tuple(calls), unread, not fault, fault or _counted(len(calls)), where)


def _llama3_json(text: str, at: int, rule: CallFormat) -> Calls:
    """Llama 3: bare JSON objects, separated by semicolons, and nothing else."""
    tag = "<|python_tag|>"
    start = skip_space(text, at)
    if text.startswith(tag, start):
        start = skip_space(text, start + len(tag))
    elif text[start : start + 1] != "{":
        return _reply(text, at)
    return _sequence(text, start, rule, ";", len(text.rstrip()))


def _array(text: str, at: int, rule: CallFormat) -> Calls:
    """JSON: an array of calls and nothing else."""
    start = skip_space(text, at)
    if text[start : start + 1] not in ("[", "{"):
        return _reply(text, at)
    return _bracketed(text, start, rule)


def _mistral(text: str, at: int, rule: CallFormat) -> Calls:
    """Mistral: [TOOL_CALLS] and an array of calls."""
    mark = "[TOOL_CALLS]"
    start = skip_space(text, at)
    if not text.startswith(mark, start):
        return _reply(text, at)
    return _bracketed(text, skip_space(text, start + len(mark)), rule)


def _bracketed(text: str, at: int, rule: CallFormat) -> Calls:
    if text[at : at + 1] != "[":
        return Calls((), 1, False, "expected an array of calls", min(at, len(text)))
    inside = skip_space(text, at + 1)
    if text[inside : inside + 1] == "]":
        return Calls((), 1, False, "an array without a call", at)
    return _sequence(text, inside, rule, ",", len(text.rstrip()), "]")


def _sequence(text: str, at: int, rule: CallFormat, separator: str, stop: int, closing: str = "") -> Calls:
    """JSON calls with `separator` between them up to `closing`, or to the text's end."""
    calls: list[Call] = []
    fault, where = "", None
    try:
        while True:
            call, end, wrong = _object(text, at, rule)
            calls.append(call)
            if wrong and not fault:
                fault, where = wrong, call.span.start
            at = skip_space(text, end)
            if closing and text.startswith(closing, at):
                at += len(closing)
                break
            if not closing and at >= stop:
                break
            if text[at : at + 1] != separator:
                raise Unreadable(f"expected {separator!r} or the end after a call", at)
            if len(calls) > MAX_CALLS:
                break
            at = skip_space(text, at + 1)
    except Unreadable as error:
        return Calls(tuple(calls), 1, False, fault or str(error), min(error.at, len(text)) if where is None else where)
    if text[at:].strip() and not fault:
        fault, where = "words after the calls", at
    return Calls(tuple(calls), 0, not fault, fault or _counted(len(calls)), where)


_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_PYTHON_LIST = re.compile(rf"\s*\[\s*({_NAME})\s*\(")
_PYTHON_NEXT = re.compile(rf"\s*(?:\]\s*\Z|,\s*({_NAME})\s*\()")
_PYTHON_CALL = re.compile(rf"\s*{_NAME}\s*\(")
_TAGS = ("<|python_start|>", "<|python_end|>")


def _python(text: str, at: int, rule: CallFormat) -> Calls:
    """Python: a list of calls with named arguments, and nothing else."""
    opening = _PYTHON_LIST.match(text, at)
    if opening is None:
        start = skip_space(text, at)
        if rule.name == "llama3_pythonic" and text.startswith(_TAGS[0], start):
            ending = text.find(_TAGS[1], start)
            if ending < 0 or text[ending + len(_TAGS[1]) :].strip():
                return Calls((), 1, False, f"expected {_TAGS[1]} at the end", len(text))
            return _python(text[:ending], start + len(_TAGS[0]), rule)
        if text[start : start + 1] == "[":
            return Calls((), 1, False, "expected a call after the opening bracket", start)
        if _PYTHON_CALL.match(text, start):
            return Calls((), 1, False, "calls stand in square brackets", start)
        return _reply(text, at)
    calls: list[Call] = []
    found: re.Match[str] | None = opening
    try:
        while found is not None:
            name_start, name_end = found.span(1)
            if name_start < 0:
                return Calls(tuple(calls), 0, True, _counted(len(calls)))
            inside = found.end()
            arguments, end, members = python_arguments(text, inside)
            bounds = (name_start, end, name_start, name_end, inside - 1, end)
            calls.append(Call(found[1], arguments, bounds, members, True))
            found = _PYTHON_NEXT.match(text, end) if len(calls) <= MAX_CALLS else None
    except Unreadable as error:
        return Calls(tuple(calls), 1, False, str(error), min(error.at, len(text)))
    end = skip_space(text, end)
    if text[end : end + 1] == "]":
        return Calls(tuple(calls), 0, False, "words after the calls", end + 1)
    return Calls(tuple(calls), 1, False, "expected a comma and a call, or a closing bracket", min(end, len(text)))


def _toolrl(text: str, at: int, rule: CallFormat) -> Calls:
    """ToolRL: calls as JSON objects on lines between <tool_call> and </tool_call>; words between <response> tags."""
    opening, closing = "<tool_call>", "</tool_call>"
    start = skip_space(text, at)
    if not text.startswith(opening, start):
        return _toolrl_response(text, start, (), at)
    at = skip_space(text, start + len(opening))
    calls: list[Call] = []
    fault, where = "", None
    try:
        while not text.startswith(closing, at) and len(calls) <= MAX_CALLS:
            call, end, wrong = _object(text, at, rule)
            calls.append(call)
            if wrong and not fault:
                fault, where = wrong, call.span.start
            at = skip_space(text, end)
    except Unreadable as error:
        return Calls(tuple(calls), 1, False, fault or str(error), min(error.at, len(text)) if where is None else where)
    at = skip_space(text, at + len(closing))
    if not calls:
        return Calls((), 1, False, "no call between the tags", start)
    if fault:
        return Calls(tuple(calls), 0, False, fault, where)
    if at >= len(text):
        return Calls(tuple(calls), 0, True, _counted(len(calls)))
    return _toolrl_response(text, at, tuple(calls), at)


def _toolrl_response(text: str, start: int, calls: tuple[Call, ...], at: int) -> Calls:
    says, said = "<response>", "</response>"
    if text.startswith(says, start):
        end = text.find(said, start)
        inside = _reply(text[start + len(says) : max(start, end)], 0)
        if end >= 0 and not text[end + len(said) :].strip() and (calls or inside.reply):
            return Calls(calls, 0, True, _counted(len(calls)) if calls else "a reply in words", reply=not calls)
    if calls:
        return Calls(calls, 0, False, "words after a call", start)
    found = _reply(text, at)
    return _spoilt(found, f"a reply stands between {says} and {said}", start) if found.reply else found


# Writing


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object_text(call: Mapping[str, Any], key: str) -> str:
    return _json({"name": call["name"], key: call["arguments"]})


def _write_tagged(calls: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(f"<tool_call>\n{_object_text(c, 'arguments')}\n</tool_call>" for c in calls)


def _write_array(calls: Sequence[Mapping[str, Any]]) -> str:
    return "[" + ", ".join(_object_text(c, "arguments") for c in calls) + "]"


def _write_python(calls: Sequence[Mapping[str, Any]]) -> str:
    return (
        "["
        + ", ".join(f"{c['name']}({', '.join(f'{k}={v!r}' for k, v in c['arguments'].items())})" for c in calls)
        + "]"
    )


def _write_toolrl(calls: Sequence[Mapping[str, Any]]) -> str:
    lines = "\n".join(_object_text(c, "parameters") for c in calls)
    return f"<think> A tool answers this. </think>\n<tool_call>\n{lines}\n</tool_call>"


WORDS = "None of these tools can do that."
"""The reply of a solution where no call is due."""


def write_answer(format: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """A well-formed response of these calls; a reply in words where there are none."""
    if calls:
        return FORMATS[format].write(calls)
    return f"<think> No tool fits. </think>\n<response> {WORDS} </response>" if format == "toolrl" else WORDS


_ELSE = "If no tool fits, answer in words."
FORMATS: dict[str, CallFormat] = {
    f.name: f
    for f in (
        CallFormat(
            "hermes",
            'Answer with one or more calls, each as <tool_call>{"name": ..., "arguments": {...}}</tool_call>, and nothing '
            f"after them. {_ELSE}",
            "arguments",
            _tagged,
            _write_tagged,
        ),
        CallFormat(
            "llama3_json",
            f'Answer with {{"name": ..., "parameters": {{...}}}} and nothing else, several with ; between them. {_ELSE}',
            "parameters",
            _llama3_json,
            lambda calls: "; ".join(_object_text(c, "parameters") for c in calls),
        ),
        CallFormat(
            "llama3_pythonic",
            f"Answer with a list of calls in Python, [name(argument=value), ...], and nothing else. {_ELSE}",
            "",
            _python,
            _write_python,
        ),
        CallFormat(
            "mistral",
            f'Answer with [TOOL_CALLS] [{{"name": ..., "arguments": {{...}}}}, ...] and nothing else. {_ELSE}',
            "arguments",
            _mistral,
            lambda calls: f"[TOOL_CALLS] {_write_array(calls)}",
        ),
        CallFormat(
            "json",
            f'Answer with a JSON array of calls, [{{"name": ..., "arguments": {{...}}}}, ...], and nothing else. {_ELSE}',
            "arguments",
            _array,
            _write_array,
        ),
        CallFormat(
            "bfcl_python",
            f"Answer with [name(argument=value, ...), ...], values as Python literals, and nothing else. {_ELSE}",
            "",
            _python,
            _write_python,
        ),
        CallFormat(
            "toolrl",
            'Answer with <think> thoughts </think>, then <tool_call> {"name": ..., "parameters": {...}} </tool_call> with a '
            "line for each call, or <response> words </response> if no tool fits.",
            "parameters",
            _toolrl,
            _write_toolrl,
            reasons=True,
        ),
    )
}
"""Every format by its name."""
