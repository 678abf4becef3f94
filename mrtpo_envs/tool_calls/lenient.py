"""A forgiving reading of calls, for measuring what a policy may have meant. It never earns format credit.

It forgives Python's literals in the place of JSON (single quotes, True, None, trailing commas) and arguments that are
JSON in a string, one layer deep. It closes nothing that was cut off.
"""

from __future__ import annotations

import re
from typing import Any

from mrtpo_envs.tool_calls.reading import Unreadable, json_value, python_value

_BEGINS = re.compile(r"\{\s*[\"']name[\"']")
_MOST = 64
"""Most attempts that are read."""


def calls(answer: str, arguments_key: str) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """Name and arguments of what in `answer` can be read as a call written as an object, and how many attempts cannot."""
    found: list[tuple[str, dict[str, Any]]] = []
    unread = at = 0
    for _ in range(_MOST):
        begins = _BEGINS.search(answer, at)
        if begins is None:
            break
        value, end = _value(answer, begins.start())
        at = max(end, begins.end())  # not again what has been read: all attempts together read the text about once
        name, arguments = None, None
        if isinstance(value, dict):
            name = value.get("name")
            arguments = value.get(arguments_key, value.get("arguments", value.get("parameters")))
        if isinstance(arguments, str):
            inner, end = _value(arguments, 0)
            arguments = inner if not arguments[end:].strip() else None
        if isinstance(name, str) and isinstance(arguments, dict):
            found.append((name, arguments))
        else:
            unread += 1
    return found, unread


def _value(text: str, at: int) -> tuple[Any, int]:
    """A value in JSON or in Python's literals, and the position after it; None where there is none, and where it fails."""
    try:
        return json_value(text, at)
    except Unreadable as strict:
        try:
            return python_value(text, at)
        except Unreadable as error:
            return None, max(strict.at, error.at)
