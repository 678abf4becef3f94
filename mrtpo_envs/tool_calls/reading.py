"""Reads values out of a response: strict JSON, and Python's literals. Nothing is ever evaluated.

Both readers work on the response itself from a position on, so that every name, key and value keeps its place. They
refuse what two programs may read in two ways or what stops a program: duplicate keys, NaN and infinities, lone
surrogates, numbers beyond a float's range, nesting beyond `MAX_DEPTH`. Times and memory grow linearly with the text.

The first line of each container reader is a pattern for one plain member, because most arguments are plain: that makes a
flat call cost about a microsecond per argument.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any, NamedTuple

from mrtpo_envs.verifier import Span

MAX_DEPTH = 64
"""Deepest nesting of lists and objects. Real calls have fewer than ten levels."""
MAX_DIGITS = 300
"""Longest integer. A float ends at 308 digits, and with it the arithmetic of schemas (`multipleOf`)."""

Path = tuple[str | int, ...]


class Unreadable(ValueError):
    """The text at a position is not what it should be."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


class Places:
    """Where each value and each key of a container stands in the response, by its path."""

    def __init__(self) -> None:
        self.values: dict[Path, Span] = {}
        self.keys: dict[Path, Span] = {}


_SURROGATES = "\ud800-\udfff"
_SPACE = re.compile(r"[ \t\r\n]*")


def skip_space(text: str, at: int) -> int:
    """The first position from `at` on that is no JSON white space."""
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


# JSON (RFC 8259)

_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PLAIN = rf'"([^"\\\x00-\x1f{_SURROGATES}]*)"'
_JSON_SCALAR = re.compile(rf"{_PLAIN}|({_NUMBER})(?![\w.])|(true|false|null)\b")
_JSON_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_JSON_MEMBER = re.compile(
    rf"[ \t\r\n]*{_PLAIN}[ \t\r\n]*:[ \t\r\n]*(?:{_PLAIN}|({_NUMBER})|(true|false|null))[ \t\r\n]*[,}}]"
)
_JSON_WORDS = {"true": True, "false": False, "null": None}


def json_value(text: str, at: int, places: Places | None = None, path: Path = ()) -> tuple[Any, int]:
    """The JSON value that begins at `at` (no space before it), and the position after it.

    Args:
        places: takes the place of each key and value inside, under `path`.

    Raises:
        Unreadable: there is no JSON value, or one that is refused.
    """
    scalar = _JSON_SCALAR.match(text, at)
    if scalar is not None:
        kind = scalar.lastindex
        if kind == 1:
            return scalar[1], scalar.end()
        if kind == 2:
            return _number(scalar[2], at), scalar.end()
        return _JSON_WORDS[scalar[3]], scalar.end()
    head = text[at : at + 1]
    if head == '"':
        return _json_string(text, at)
    if head not in ("{", "["):
        found = repr(text[at : at + 12]) if head else "the end of the answer"
        raise Unreadable(f"expected a JSON value, found {found}", at)
    if len(path) >= MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", at)
    return json_object(text, at, places, path)[:2] if head == "{" else _json_array(text, at, places, path)


Members = dict[str, int]
"""For each key of an object or argument of a call, where it begins; `json_member` and `python_argument` say the rest."""


class Member(NamedTuple):
    """A key and its value, and where they stand, quotes included."""

    key: str
    value: Any
    key_start: int
    key_end: int
    start: int
    end: int


def json_object(
    text: str, at: int, places: Places | None = None, path: Path = ()
) -> tuple[dict[str, Any], int, Members]:
    """The JSON object that begins at `at`, the position after it, and where its members begin.

    Raises:
        Unreadable: there is none, or one that is refused.
    """
    if text[at : at + 1] != "{":
        raise Unreadable(f"expected a JSON object, found {text[at : at + 12]!r}", at)
    found: dict[str, Any] = {}
    members: Members = {}
    at = skip_space(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1, members
    while True:
        begin = at
        plain = _JSON_MEMBER.match(text, at)
        if plain is not None:
            kind = plain.lastindex
            key, value = plain[1], plain[kind or 0]
            if kind == 3:
                value = _number(value, at)
            elif kind == 4:
                value = _JSON_WORDS[value]
            at = plain.end()
        else:
            member = json_member(text, at, places, path)
            key, value = member[:2]
            at = skip_space(text, member.end) + 1
        if key in found:
            raise Unreadable(f"the key {key[:40]!r} stands twice", begin)
        found[key] = value
        members[key] = begin
        mark = text[at - 1 : at]
        if mark == "}":
            if places is not None:
                _note(places, path, [json_member(text, begin) for begin in members.values()])
            return found, at, members
        if mark != ",":
            raise Unreadable("expected a comma or a closing brace", at - 1)


def json_member(text: str, at: int, places: Places | None = None, path: Path = ()) -> Member:
    """The member of a JSON object that begins at `at`, space before it allowed.

    Raises:
        Unreadable: there is none.
    """
    key_start = skip_space(text, at)
    if text[key_start : key_start + 1] != '"':
        raise Unreadable("expected a key in double quotes", key_start)
    key, key_end = _json_string(text, key_start)
    colon = skip_space(text, key_end)
    if text[colon : colon + 1] != ":":
        raise Unreadable("expected a colon after a key", colon)
    start = skip_space(text, colon + 1)
    value, end = json_value(text, start, places, (*path, key))
    return Member(key, value, key_start, key_end, start, end)


def _note(places: Places, path: Path, members: list[Member]) -> None:
    for key, _, key_start, key_end, start, end in members:
        places.keys[(*path, key)] = Span(key_start, key_end)
        places.values[(*path, key)] = Span(start, end)


def _json_array(text: str, at: int, places: Places | None, path: Path) -> tuple[list[Any], int]:
    found: list[Any] = []
    at = skip_space(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        value, end = json_value(text, at, places, (*path, len(found)))
        if places is not None:
            places.values[(*path, len(found))] = Span(at, end)
        found.append(value)
        at = skip_space(text, end)
        mark = text[at : at + 1]
        if mark == "]":
            return found, at + 1
        if mark != ",":
            raise Unreadable("expected a comma or a closing bracket", at)
        at = skip_space(text, at + 1)


def _json_string(text: str, at: int) -> tuple[str, int]:
    match = _JSON_STRING.match(text, at)
    if match is None:
        raise Unreadable("a string that does not end, or holds what JSON does not allow", at)
    return _sound(json.loads(match[0]), at), match.end()


def _sound(value: str, at: int) -> str:
    """The string, unless it holds half a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unreadable("a string with a lone surrogate, which is no character", at) from None
    return value


def _number(digits: str, at: int) -> int | float:
    if len(digits) > MAX_DIGITS:
        raise Unreadable(f"a number of more than {MAX_DIGITS} digits", at)
    if "." not in digits and "e" not in digits and "E" not in digits:
        return int(digits)
    value = float(digits)
    if not math.isfinite(value):
        raise Unreadable("a number beyond the range of floating point", at)
    return value


# Python's literals and keyword calls

_PY_SPACE = re.compile(r"[ \t\r\n\f]*")
_NAME = r"[^\W\d]\w*"
_DOTTED = re.compile(rf"{_NAME}(?:\.{_NAME})*")
_PY_NUMBER = re.compile(r"([+-]?)[ \t]*((?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.])")
_PY_STRING = re.compile(
    r'"""((?:[^"\\]|\\.|"(?!""))*)"""'
    r"|'''((?:[^'\\]|\\.|'(?!''))*)'''"
    r'|"((?:[^"\\\n]|\\.)*)"'
    r"|'((?:[^'\\\n]|\\.)*)'",
    re.DOTALL,
)
_PY_WORD = re.compile(r"(True|False|None)\b")
_PY_WORDS = {"True": True, "False": False, "None": None}
_PY_ARGUMENT = re.compile(
    rf"\s*({_NAME})\s*=\s*"
    rf"(?:'([^'\\\n{_SURROGATES}]*)'|\"([^\"\\\n{_SURROGATES}]*)\"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)|(True|False|None))\s*[,)]"
)
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|N\{([^}]{1,80})\}|(.))", re.DOTALL
)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}


def python_value(text: str, at: int, places: Places | None = None, path: Path = ()) -> tuple[Any, int]:
    """The Python literal that begins at `at` (no space before it), and the position after it.

    Strings without prefix, numbers, True, False, None, lists, tuples, and dictionaries with strings for keys. No name,
    no operator and no call, whatever it would come to.

    Raises:
        Unreadable: something else stands there.
    """
    head = text[at : at + 1]
    if head in ('"', "'") and head:
        match = _PY_STRING.match(text, at)
        if match is None:
            raise Unreadable("a string that does not end", at)
        body = match[match.lastindex or 0]
        if "\\" in body:
            try:
                body = _ESCAPE.sub(_unescaped, body)
            except ValueError as error:
                raise Unreadable(str(error), at) from None
        return _sound(body, at), match.end()
    if head in ("[", "("):
        return _python_sequence(text, at, places, path)
    if head == "{":
        return _python_dict(text, at, places, path)
    if number := _PY_NUMBER.match(text, at):
        value = _number(number[2], at) if number[2].isdigit() else _float(number[2], at)
        return (-value if number[1] == "-" else value), number.end()
    if word := _PY_WORD.match(text, at):
        return _PY_WORDS[word[1]], word.end()
    found = repr(text[at : at + 12]) if head else "the end of the answer"
    raise Unreadable(f"expected a literal value, found {found}", at)


def _float(digits: str, at: int) -> float:
    value = float(digits) if len(digits) <= MAX_DIGITS else math.inf
    if not math.isfinite(value):
        raise Unreadable("a number beyond the range of floating point", at)
    return value


def _unescaped(match: re.Match[str]) -> str:
    octal, two, four, eight, name, short = match.groups()
    if octal is not None:
        return chr(int(octal, 8))
    if digits := two or four or eight:
        return chr(int(digits, 16))  # raises ValueError beyond Unicode
    if name is not None:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            raise ValueError(f"no character is called {name}") from None
    if short in "xuUN":
        raise ValueError("a broken escape in a string")
    return _SHORT.get(short, short if short in "\\'\"" else match[0])


def _py_space(text: str, at: int) -> int:
    return _PY_SPACE.match(text, at).end()  # type: ignore[union-attr]


def _python_sequence(text: str, at: int, places: Places | None, path: Path) -> tuple[Any, int]:
    if len(path) >= MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", at)
    closing = "]" if text[at] == "[" else ")"
    found: list[Any] = []
    comma = False
    at = _py_space(text, at + 1)
    while text[at : at + 1] != closing:
        value, end = python_value(text, at, places, (*path, len(found)))
        if places is not None:
            places.values[(*path, len(found))] = Span(at, end)
        found.append(value)
        at = _py_space(text, end)
        comma = text[at : at + 1] == ","
        if comma:
            at = _py_space(text, at + 1)
        elif text[at : at + 1] != closing:
            raise Unreadable(f"expected a comma or {closing!r}", at)
    if closing == "]":
        return found, at + 1
    if len(found) == 1 and not comma:  # brackets round one value make no tuple
        return found[0], at + 1
    return tuple(found), at + 1


def _python_dict(text: str, at: int, places: Places | None, path: Path) -> tuple[dict[str, Any], int]:
    if len(path) >= MAX_DEPTH:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels", at)
    found: dict[str, Any] = {}
    members: list[Member] = []
    at = _py_space(text, at + 1)
    while text[at : at + 1] != "}":
        key_start = at
        key, key_end = python_value(text, at, None, path)
        if not isinstance(key, str):
            raise Unreadable("a dictionary's keys must be strings", key_start)
        at = _py_space(text, key_end)
        if text[at : at + 1] != ":":
            raise Unreadable("expected a colon after a key", at)
        start = _py_space(text, at + 1)
        value, end = python_value(text, start, places, (*path, key))
        if key in found:
            raise Unreadable(f"the key {key[:40]!r} stands twice", key_start)
        found[key] = value
        members.append(Member(key, value, key_start, key_end, start, end))
        at = _py_space(text, end)
        if text[at : at + 1] == ",":
            at = _py_space(text, at + 1)
        elif text[at : at + 1] != "}":
            raise Unreadable("expected a comma or a closing brace", at)
    if places is not None:
        _note(places, path, members)
    return found, at + 1


def python_arguments(text: str, at: int) -> tuple[dict[str, Any], int, Members]:
    """The keyword arguments after a call's opening bracket, the position after its closing one, and where they begin.

    Raises:
        Unreadable: an argument without a name, a name twice, a value that is no literal.
    """
    found: dict[str, Any] = {}
    members: Members = {}
    while True:
        begin = at
        plain = _PY_ARGUMENT.match(text, at)
        if plain is not None:
            kind = plain.lastindex
            key, value = plain[1], plain[kind or 0]
            if kind == 4:
                value = _number(value, at)
            elif kind == 5:
                value = _PY_WORDS[value]
            at = plain.end()
        else:
            at = _py_space(text, at)
            if text[at : at + 1] == ")":
                return found, at + 1, members
            member = python_argument(text, at)
            key, value = member[:2]
            at = _py_space(text, member.end) + 1
        if key in found:
            raise Unreadable(f"the argument {key[:40]!r} stands twice", begin)
        found[key] = value
        members[key] = begin
        mark = text[at - 1 : at]
        if mark == ")":
            return found, at, members
        if mark != ",":
            raise Unreadable("expected a comma or a closing bracket", at - 1)


def python_argument(text: str, at: int) -> Member:
    """The argument `name=value` that begins at `at`, space before it allowed.

    Raises:
        Unreadable: there is none.
    """
    key_start = _py_space(text, at)
    name = _DOTTED.match(text, key_start)
    key, key_end = (name[0], name.end()) if name else ("", key_start)
    equals = _py_space(text, key_end)
    if not key or "." in key or text[equals : equals + 1] != "=" or text[equals : equals + 2] == "==":
        raise Unreadable("an argument without a name: each one is written name=value", key_start)
    start = _py_space(text, equals + 1)
    value, end = python_value(text, start)
    return Member(key, value, key_start, key_end, start, end)
