"""Java's and JavaScript's literals, read and written as BFCL does: every argument of a call is a string that holds one.

Numbers, booleans and strings, and collections of them: `new int[]{1, 2}`, `new ArrayList<>(Arrays.asList(...))`,
`new HashMap<>() {{ put("k", v); }}`, `[...]`, `new Array(...)`, `{k: v}`. What is none of its type stays the string it is: a
variable or an expression, which BFCL compares as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_LIMIT = 20_000
"""Longest literal that is read, in characters; a longer one stays a string."""
_WHOLE = re.compile(r"-?\d{1,300}$")
_REAL = re.compile(r"-?\d{1,300}(?:\.\d+)?(?:[eE][+-]?\d{1,3})?$")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{(.*)\}\s*$", re.DOTALL)
_LIST = re.compile(r"new\s+ArrayList\s*<[^>]*>\s*\((.*)\)\s*(\{\{.*\}\})?\s*$", re.DOTALL)
_AS_LIST = re.compile(r"(?:Arrays\.asList|List\.of)\s*\((.*)\)\s*$", re.DOTALL)
_MAP = re.compile(r"new\s+HashMap\s*<[^()]*>\s*\(\s*\)\s*(?:\{\s*\{?(.*?)\}?\s*\})?\s*$", re.DOTALL)
_STATEMENT = re.compile(r"\s*(put|add)\s*\(")
_NEW_ARRAY = re.compile(r"new\s+Array\s*\((.*)\)\s*$", re.DOTALL)


def java_value(text: str, type: str, items: str | None = None) -> Any:
    """What a Java literal of a declared type comes to; the text itself where it is none."""
    if len(text) > _LIMIT:
        return text
    if type in ("byte", "short", "integer"):
        return int(text) if _WHOLE.match(text) else text
    if type == "long":
        return int(text[:-1]) if text[-1:] in ("l", "L") and _WHOLE.match(text[:-1]) else text
    if type == "float":
        return float(text[:-1]) if text[-1:] in ("f", "F") and _REAL.match(text[:-1]) else text
    if type == "double":
        return float(text) if _REAL.match(text) else text
    if type == "boolean":
        return {"true": True, "false": False}.get(text, text)
    if type == "Array" and (array := _ARRAY.match(text.strip())):
        return [_java_item(part, items) for part in parts(array[1])]
    if type == "ArrayList" and (array_list := _LIST.match(text.strip())):
        inside = _AS_LIST.match(array_list[1].strip())
        if inside:
            return [_java_item(part, items) for part in parts(inside[1])]
        if array_list[1].strip():
            return text
        adds = _statements(array_list[2] or "", "add", 1)
        return text if adds is None else [_java_item(a[0], items) for a in adds]
    if type in ("HashMap", "Hashtable") and (hash_map := _MAP.match(text.strip())):
        puts = _statements(hash_map[1] or "", "put", 2)
        if puts is not None and all(isinstance(_java_any(k), str) for k, _ in puts):
            return {_java_any(k): _java_any(v) for k, v in puts}
    return text


def _java_item(text: str, items: str | None) -> Any:
    if items in (None, "any") or (items in ("String", "char") and text[:1] in ("'", '"')):
        return _java_any(text)
    return java_value(text, str(items))


def _java_any(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if len(text) >= 2 and text[0] == text[-1] and text[0] in ("'", '"'):
        return text[1:-1]
    if _WHOLE.match(text.rstrip("lL")):
        return int(text.rstrip("lL"))
    return float(text.rstrip("fF")) if _REAL.match(text.rstrip("fF")) else text


def _statements(body: str, method: str, count: int) -> list[list[str]] | None:
    """The arguments of each `method(...);` in an initialiser; None where it holds anything else."""
    body = body.strip().strip("{}").strip()
    found = []
    for statement in parts(body, ";"):
        opening = _STATEMENT.match(statement)
        if opening is None or opening[1] != method or not statement.endswith(")"):
            return None
        arguments = parts(statement[opening.end() : -1])
        if len(arguments) != count:
            return None
        found.append(arguments)
    return found


def javascript_value(text: str, type: str, items: str | None = None) -> Any:
    """What a JavaScript literal of a declared type comes to; the text itself where it is none."""
    if len(text) > _LIMIT:
        return text
    if type == "String":
        return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in ("'", '"') else text
    if type == "integer":
        return int(text) if _WHOLE.match(text) else text
    if type == "Bigint":
        return int(text[:-1]) if text[-1:] == "n" and _WHOLE.match(text[:-1]) else text
    if type == "float":
        return float(text) if re.match(r"-?\d{1,300}(?:\.\d+)?$", text) else text
    if type == "Boolean":
        return {"true": True, "false": False}.get(text, text)
    if type == "array":
        stripped = text.strip()
        new = _NEW_ARRAY.match(stripped)
        if new or (stripped[:1] == "[" and stripped[-1:] == "]"):
            inside = new[1] if new else stripped[1:-1]
            return [
                javascript_value(p, items) if items not in (None, "array", "any", "dict") else _js_any(p)
                for p in parts(inside)
            ]
    if type == "dict" and text.strip()[:1] == "{" and text.strip()[-1:] == "}":
        found: dict[str, Any] = {}
        for member in parts(text.strip()[1:-1]):
            pair = parts(member, ":", most=1)
            if len(pair) != 2:
                return text
            found[pair[0].strip("'\"")] = _js_any(pair[1])
        return found
    return text


def _js_any(text: str, depth: int = 0) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text[:1] == "[" and text[-1:] == "]" and depth < 20:
        return [_js_any(p, depth + 1) for p in parts(text[1:-1])]
    if text[:1] == "{" and depth < 20:
        return javascript_value(text, "dict")
    if len(text) >= 2 and text[0] == text[-1] and text[0] in ("'", '"', "`"):
        return text[1:-1]
    if _WHOLE.match(text):
        return int(text)
    return float(text) if _REAL.match(text) else text


def parts(text: str, separator: str = ",", most: int = -1) -> list[str]:
    """The parts of `text` between separators that stand in no string and no brackets, stripped; no empty last one."""
    found, start, depth, quote, i = [], 0, 0, "", 0
    while i < len(text):
        char = text[i]
        if quote:
            if char == "\\":
                i += 1
            elif char == quote:
                quote = ""
        elif char in "'\"`":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == separator and depth == 0 and most != 0:
            found.append(text[start:i].strip())
            start, most = i + 1, most - 1
        i += 1
    last = text[start:].strip()
    return [*found, last] if last else found


# Writing

_JAVA_ELEMENTS = {"integer": "int", "any": "Object"}


def java_literal(value: Any, type: str, item_type: str | None = None) -> str:
    """Java's literal of a value, as BFCL's Java category wants it in a string: `3L`, `new int[]{1, 2}`, `true`.

    Args:
        value: a JSON value. A string is what it is: text, or a variable where the type is another.
        type: BFCL's name of its type.
        item_type: its elements' type, where it is a collection. Strings within one are quoted.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        inside = ", ".join(_java_element(v, item_type) for v in value)
        if type == "Array":
            return f"new {_JAVA_ELEMENTS.get(item_type or 'any', item_type)}[]{{{inside}}}"
        return f"new ArrayList<>(Arrays.asList({inside}))" if value else "new ArrayList<>()"
    if isinstance(value, Mapping):
        puts = " ".join(f"put({_quoted(k)}, {_java_element(v, None)});" for k, v in value.items())
        return f"new HashMap<>() {{{{ {puts} }}}}" if puts else "new HashMap<>()"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if type == "long":
        return f"{value}L"
    if type == "float":
        return f"{float(value)}f"
    return repr(float(value)) if type == "double" else repr(value)


def _java_element(value: Any, type: str | None) -> str:
    if isinstance(value, str):
        return f"'{value}'" if type == "char" else _quoted(value)
    return java_literal(value, type or "any")


def javascript_literal(value: Any, type: str, item_type: str | None = None) -> str:
    """JavaScript's literal of a value, as BFCL's JavaScript category wants it in a string: `3n`, `[1, 2]`, `{"a": 1}`.

    Args:
        value: a JSON value. A string is what it is: text, or a variable where the type is another.
        type: BFCL's name of its type.
        item_type: its elements' type, where it is an array. Strings within one are quoted.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(_javascript_element(v, item_type) for v in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_quoted(k)}: {_javascript_element(v, None)}' for k, v in value.items())}}}"
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value}n" if type == "Bigint" else repr(value)


def _javascript_element(value: Any, type: str | None) -> str:
    return _quoted(value) if isinstance(value, str) else javascript_literal(value, type or "any")


def _quoted(text: str) -> str:
    """The text in those quotes that it does not hold: BFCL's readers know no escapes."""
    mark = "'" if '"' in text else '"'
    return f"{mark}{text}{mark}"
