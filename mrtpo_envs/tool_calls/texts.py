"""Calls, tools and answers as data sets write them within texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mrtpo_envs.errors import DataError, MrtpoError
from mrtpo_envs.tool_calls.reading import Unreadable, python_arguments, skip_space
from mrtpo_envs.tool_calls.records import (
    Row,
    json_at,
    object_of,
    parsed_json,
    text_of,
    tools_in,
)
from mrtpo_envs.tool_calls.schemas import tool_of

_TIME = re.compile(r"\b(?:The current (?:time|date|year) is|Today is|Today's date is)\s[^\n.]*\d[^\n.]*")


def times_in(text: str) -> list[dict[str, str]]:
    """A system message of the present time, where a text says it: requests like "tomorrow" need it."""
    said = _TIME.search(text)
    return [{"role": "system", "content": f"{said[0].rstrip()}."}] if said else []


def answer_of(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The calls of an assistant's turn; none where it is plain words."""
    if not _BEGINS.match(text):
        if any(f"[{name}(" in text for name in names):
            raise DataError(f"a turn is either calls or words, got both: {text!r:.200}")
        return []
    return written_calls(text, names)


_BEGINS = re.compile(r"\s*\[\s*[^\[\]{}=\"'\n]*\(")
_ANY_NAME = re.compile(r"[^()\[\]{}=,\"'\s][^()\[\]{}=,\"'\n]*(?=\()")


def written_calls(text: str, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The calls in `[Name(argument=value, ...), ...]`, where a name may hold spaces, and a known one anything.

    Raises:
        DataError: it is not written so, or an argument is no literal.
    """
    calls: list[dict[str, Any]] = []
    at, mark = skip_space(text, 0), ","
    try:
        if text[at : at + 1] != "[":
            raise Unreadable("expected an opening square bracket", at)
        while mark == ",":
            at = skip_space(text, at + 1)
            name, at = _called(text, at, names)
            arguments, at, _ = python_arguments(text, at)
            calls.append({"name": name, "arguments": arguments})
            at = skip_space(text, at)
            mark = text[at : at + 1]
        if mark != "]":
            raise Unreadable("expected a comma or a closing square bracket after a call", at)
        if text[at + 1 :].strip():
            raise Unreadable("expected nothing after the calls", at + 1)
    except Unreadable as error:
        raise DataError(f"calls that cannot be read at character {error.at} ({error}): {text!r:.200}") from None
    return calls


def _called(text: str, at: int, names: Sequence[str]) -> tuple[str, int]:
    """The name of the tool that is called at `at`, and the position after the opening bracket."""
    for name in sorted(names, key=len, reverse=True):
        bracket = skip_space(text, at + len(name))
        if text.startswith(name, at) and text[bracket : bracket + 1] == "(":
            return name, bracket + 1
    match = _ANY_NAME.match(text, at)
    if match is None:
        raise Unreadable("expected a tool's name and an opening bracket", at)
    return match[0].rstrip(), match.end() + 1


def listed_tools(text: str) -> list[Row]:
    """The first JSON list of objects in a text."""
    for opening in re.finditer(r"\[\s*\{", text):
        try:
            found, _ = json_at(text, opening.start())
        except DataError:
            continue
        if all(isinstance(tool, Mapping) and ("name" in tool or "function" in tool) for tool in found):
            return list(found)
    raise DataError(f"no JSON list of tools in the system's text {text!r:.200}")


def numbered_tools(text: str) -> list[Row]:
    """The tools of a ToolRL prompt; none where one cannot be read."""
    tools = []
    for block in re.split(r"^\d+\. Name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\nDescription: ")
        description, _, rest = rest.partition("\nParameters: ")
        try:
            parameters, _ = json_at(rest)
        except DataError:
            return []
        tools.append({"name": name.strip(), "description": description.strip(), "parameters": parameters})
    try:
        found = tools_in(tools)
        for tool in found:
            tool_of(tool)
    except MrtpoError:
        return []
    return found


def described_apis(text: str) -> tuple[list[Row], str]:
    """The APIs that a text describes as JSON objects, and the text without them."""
    apis: list[Row] = []
    words, at = "", 0
    opening = text.find("{")
    while opening >= 0:
        try:
            found, end = json_at(text, opening)
        except DataError:
            opening = text.find("{", opening + 1)
            continue
        name = found.get("name", found.get("apiCode"))
        parameters = found.get("parameters", found.get("input_parameters"))
        if isinstance(name, str) and isinstance(parameters, Mapping):
            apis.append({"name": name, "description": found.get("description"), "parameters": parameters})
            words, at = words + text[at:opening], end
        opening = text.find("{", end)
    return apis, re.sub(r"(?:Available )?API descriptions:\s*", "", words + text[at:]) if apis else text


def api_bank_due(text: str) -> list[dict[str, Any]]:
    """The calls of `API-Request: [...]`; none where the answer is in words."""
    mark = "API-Request:"
    if mark in text:
        return written_calls(text.partition(mark)[2])
    if text.lstrip().startswith("AI:"):
        return []
    raise DataError(f"expected 'API-Request: [Name(key=value, ...)]' or 'AI: ...', got {text!r:.200}")


def toolrl_truth(text: str) -> tuple[list[dict[str, Any]], str]:
    """The calls of a ground truth, and its shape."""
    answer = text.partition("</think>")[2] if "</think>" in text else text
    _, opened, rest = answer.partition("<tool_call>")
    inside, closed, _ = rest.partition("</tool_call>")
    replies = "<response>" in answer
    if not opened:
        if not replies and "<think>" not in text:
            raise DataError(f"a ground truth has <think>, <tool_call> or <response>, got {text!r:.200}")
        return [], "response" if replies else "think"
    calls = []
    for line in inside.splitlines():
        if line.strip():
            try:
                call = parsed_json(line)
                if not isinstance(call, Mapping):
                    raise DataError("no object")
                calls.append({"name": text_of(call, "name"), "arguments": object_of(call, "parameters")})
            except DataError as error:
                raise DataError(f"a call of the ground truth, {line!r:.200}: {error}") from None
    if not closed or not calls:
        raise DataError(f"expected calls between <tool_call> and </tool_call>, got {answer!r:.200}")
    return calls, "both" if replies else "call"
