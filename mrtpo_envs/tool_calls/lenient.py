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


def calls(answer: str, arguments_key: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and arguments of everything in `answer` that can be read as a call written as an object."""
    found: list[tuple[str, dict[str, Any]]] = []
    at = 0
    while (begins := _BEGINS.search(answer, at)) is not None and len(found) < _MOST:
        value, at = _value(answer, begins.start())
        at = max(at, begins.end())
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            continue
        arguments = value.get(arguments_key, value.get("arguments", value.get("parameters")))
        if isinstance(arguments, str):
            inner, end = _value(arguments, 0)
            arguments = inner if not arguments[end:].strip() else None
        if isinstance(arguments, dict):
            found.append((value["name"], arguments))
    return found


def _value(text: str, at: int) -> tuple[Any, int]:
    """A value in JSON or in Python's literals with JSON's words, and the position after it; None where there is none."""
    try:
        return json_value(text, at)
    except Unreadable:
        try:
            return python_value(text, at)
        except Unreadable:
            return None, at
