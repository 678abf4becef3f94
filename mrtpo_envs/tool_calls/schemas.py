"""Tools' schemas: one form for all sources, and validation that asks nobody and always ends.

`tool_of` brings a tool to OpenAI's form with JSON Schema types, whatever words its source has for them. `check_arguments`
validates by jsonschema with the draft that the schema names (2020-12 where it names none). Beyond plain jsonschema:

- no `$ref` is fetched: a remote one makes the schema unusable, and is no fault of the response;
- formats are checked: date, time and date-time by RFC 3339, email, idn-email, ipv4, ipv6 and uuid;
- patterns are ECMA's as far as `regex` knows them, and run under a time limit; arguments that reach it are not valid;
- a parameter that the schema does not name is refused, unless `additionalProperties` says otherwise;
- `multipleOf` is decimal (19.99 is a multiple of 0.01), and `uniqueItems` takes linear time.
"""

from __future__ import annotations

import contextvars
import datetime
import functools
import json
import re
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import jsonschema
import referencing
import regex
from jsonschema import validators

from mrtpo_envs.errors import TaskError

PATTERN_LIMIT_S = 0.2
"""Seconds that the matches of a schema's patterns may take for one call. Ordinary ones take microseconds."""
MAX_SCHEMA_DEPTH = 40
_COMBINES = ("allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas", "$dynamicRef")

TYPES = {
    "dict": "object", "object": "object", "hashmap": "object", "hashtable": "object", "map": "object", "json": "object",
    "float": "number", "double": "number", "number": "number", "decimal": "number",
    "int": "integer", "integer": "integer", "long": "integer", "short": "integer", "byte": "integer", "bigint": "integer",
    "list": "array", "tuple": "array", "array": "array", "arraylist": "array", "set": "array", "queue": "array",
    "stack": "array",
    "str": "string", "string": "string", "char": "string", "text": "string", "date": "string", "datetime": "string",
    "bool": "boolean", "boolean": "boolean", "null": "null", "none": "null", "nonetype": "null",
}  # fmt: skip
"""JSON Schema's word for a type's name in other notations, in lower case. "any" and unknown words mean no constraint."""

_WITH_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_WITH_SCHEMA = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_WITH_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")


def json_schema(schema: Any, depth: int = 0) -> Any:
    """A schema with JSON Schema's type names, of one that uses Python's, Java's or a data set's words.

    "str, optional" is a string. Everything that is no type stays.
    """
    if not isinstance(schema, Mapping):
        return schema
    if depth > MAX_SCHEMA_DEPTH:
        raise TaskError(f"a tool's schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type" and isinstance(value, str):
            if (name := type_name(value)) is not None:
                out[key] = name
        elif key in _WITH_SCHEMAS and isinstance(value, Mapping):
            out[key] = {k: json_schema(v, depth + 1) for k, v in value.items()}
        elif key in _WITH_SCHEMA:
            out[key] = json_schema(value, depth + 1)
        elif key in _WITH_LIST and isinstance(value, list):
            out[key] = [json_schema(v, depth + 1) for v in value]
        elif key in ("required", "optional") and not isinstance(value, list):
            continue  # a data set's flag on a parameter; JSON Schema has a list, and one place higher
        else:
            out[key] = value
    return out


def type_name(given: str) -> str | None:
    """JSON Schema's word for a type, or None where there is no constraint: "any", a union, an unknown word.

    A parametrised type is its outer one: `List[int]` is an array, `Dict[str, float]` an object.
    """
    word = given.split(",")[0].strip().lower() if "[" not in given else given.strip().lower()
    if word.startswith("optional[") and word.endswith("]"):
        word = word[9:-1]
    return TYPES.get(word.partition("[")[0].partition("<")[0].strip())


def tool_of(given: Any) -> dict[str, Any]:
    """`{"type": "function", "function": {"name", "description", "parameters"}}` of a tool in that form or without its shell.

    Raises:
        TaskError: it has no name, or its parameters are no JSON Schema of an object.
    """
    inner = given.get("function", given) if isinstance(given, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str) or not inner["name"]:
        raise TaskError(f'a tool is {{"name": ..., "description": ..., "parameters": {{...}}}}, got {given!r:.200}')
    name = inner["name"]
    parameters = inner.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise TaskError(f"tool {name!r}: parameters must be a JSON Schema object, got {parameters!r:.200}")
    schema = json_schema(parameters)
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    if schema["type"] != "object" or not isinstance(schema["properties"], Mapping):
        raise TaskError(
            f"tool {name!r}: its parameters must be of type object with properties, got {parameters!r:.200}"
        )
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskError(f"tool {name!r}: its parameters are no JSON: {error}") from error
    if fault := _schema_fault(text):
        raise TaskError(f"tool {name!r}: its parameters are no JSON Schema: {fault}")
    function = {"name": name, "description": str(inner.get("description") or ""), "parameters": json.loads(text)}
    return {"type": "function", "function": function}


@functools.lru_cache(maxsize=16384)  # data sets offer the same tools again and again
def _schema_fault(text: str) -> str:
    """What makes a schema no JSON Schema; empty where nothing does."""
    schema = json.loads(text)
    try:
        # Without formats: "regex" would be Python's dialect.
        _draft(schema).check_schema(schema, format_checker=jsonschema.FormatChecker(()))
    except jsonschema.SchemaError as error:
        return error.message[:300]
    except RecursionError:
        return "it is nested too deeply"
    return ""


class Fault(NamedTuple):
    """Where and why arguments fail their schema."""

    path: tuple[str | int, ...]
    reason: str
    keys: tuple[str, ...] = ()
    """The keys at `path` that should not be there."""


class UnusableSchema(Exception):
    """The schema cannot be applied, whatever the arguments are."""


def check_arguments(parameters: Mapping[str, Any], arguments: Any, most: int = 3) -> list[Fault]:
    """The first faults of `arguments` under a tool's schema; empty where they are valid.

    Raises:
        UnusableSchema: a reference that does not resolve here, or one that goes in circles.
    """
    try:
        validator = _validator(json.dumps(parameters, sort_keys=True))
        faults = []
        left = _left.set([PATTERN_LIMIT_S])
        try:
            for error in validator.iter_errors(_lists(arguments)):
                faults.append(Fault(tuple(error.absolute_path), _reason(error), _stray(error)))
                if len(faults) == most:
                    break
        except TimeoutError:
            faults.append(Fault((), "$: a pattern of the schema takes too long on this"))
        finally:
            _left.reset(left)
        return faults
    except referencing.exceptions.Unresolvable as error:
        raise UnusableSchema(
            f"a reference of the tool's schema cannot be resolved: {getattr(error, 'ref', error)}"
        ) from error
    except RecursionError:
        raise UnusableSchema("the tool's schema refers to itself without end") from None


def closed(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with no other parameters than it names, unless it says something on that itself."""
    if "additionalProperties" in parameters or "unevaluatedProperties" in parameters:
        return dict(parameters)
    combined = any(key in parameters for key in _COMBINES)
    return {**parameters, "unevaluatedProperties" if combined else "additionalProperties": False}


@functools.lru_cache(maxsize=2048)
def _validator(text: str) -> Any:
    schema = json.loads(text)
    return _bounded(_draft(schema))(closed(schema), registry=referencing.Registry(), format_checker=_FORMATS)


def _draft(schema: Mapping[str, Any]) -> Any:
    named = schema.get("$schema")
    return validators.validator_for(
        {"$schema": named} if isinstance(named, str) else {}, default=validators.Draft202012Validator
    )


@functools.cache
def _bounded(draft: Any) -> Any:
    """The draft's validator with the rules of this module."""
    own: dict[str, Any] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional,
        "uniqueItems": _unique,
        "multipleOf": _multiple,
        "divisibleBy": _multiple,  # draft 3's word for it
        # Older drafts have no such word; `closed` uses it.
        "unevaluatedProperties": validators.Draft202012Validator.VALIDATORS["unevaluatedProperties"],
    }
    return validators.extend(draft, own)  # type: ignore[no-untyped-call]


_left: contextvars.ContextVar[list[float]] = contextvars.ContextVar("seconds left for patterns")


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    try:
        return regex.compile(_DOLLAR.sub(lambda m: m[1] or r"\Z", pattern))
    except regex.error as error:
        raise UnusableSchema(f"the pattern {pattern[:80]!r} of the tool's schema is none: {error}") from error


_DOLLAR = regex.compile(r"(\\.|\[(?:[^\]\\]|\\.)*\])|\$", regex.DOTALL)
"""ECMA's `$` is the very end; Python's is before a last line feed too. Escapes and classes are passed over."""


def _meets(pattern: str, text: str) -> bool:
    """Raises TimeoutError where the call's patterns have had their time."""
    left = _left.get()
    if left[0] <= 0:
        raise TimeoutError
    start = time.perf_counter()
    found = _compiled(pattern).search(text, timeout=left[0]) is not None
    left[0] -= time.perf_counter() - start
    return found


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, str) and not _meets(pattern, instance):
        yield jsonschema.ValidationError(f"{instance[:60]!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for key, value in instance.items():
                if _meets(pattern, key):
                    yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    more = [key for key in instance if key not in known and not any(_meets(p, key) for p in patterns)]
    if isinstance(rule, dict):
        for key in more:
            yield from validator.descend(instance[key], rule, path=key)
    elif not rule and more:
        yield jsonschema.ValidationError(f"no parameter {', '.join(repr(k[:40]) for k in more[:3])}")


def _unique(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if rule and isinstance(instance, list) and len({_key(item) for item in instance}) < len(instance):
        yield jsonschema.ValidationError(f"{str(instance)[:60]} has items that are the same")


def _key(value: Any) -> Any:
    """Equal for equal JSON values: 1 and 1.0 are one number, true is none."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, list):
        return tuple(_key(v) for v in value)
    if isinstance(value, dict):
        return frozenset((k, _key(v)) for k, v in value.items())
    return value


def _multiple(validator: Any, step: Any, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(instance, (int, float)) or isinstance(instance, bool):
        return
    # By what the numbers are written as: 19.99 / 0.01 is no whole number in binary.
    if (Fraction(str(instance)) / Fraction(str(step))).denominator != 1:
        yield jsonschema.ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _stray(error: jsonschema.ValidationError) -> tuple[str, ...]:
    if error.validator not in ("additionalProperties", "unevaluatedProperties") or not isinstance(error.instance, dict):
        return ()
    known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
    return tuple(key for key in error.instance if key not in known)


def _reason(error: jsonschema.ValidationError) -> str:
    message = error.message if len(error.message) <= 160 else f"{error.message[:80]} ... {error.message[-70:]}"
    return f"{error.json_path}: {message}"


def _lists(value: Any) -> Any:
    """Python's tuples as lists, which is what JSON has."""
    if isinstance(value, (list, tuple)):
        return [_lists(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _lists(v) for k, v in value.items()}
    return value


_FORMATS = jsonschema.FormatChecker(("date", "email", "idn-email", "ipv4", "ipv6", "uuid"))
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII)


@_FORMATS.checks("time")
def _is_time(value: object) -> bool:
    """RFC 3339's full-time: with an offset; second 60 is a leap second's."""
    return not isinstance(value, str) or _TIME.fullmatch(value) is not None


@_FORMATS.checks("date-time", raises=ValueError)
def _is_moment(value: object) -> bool:
    if not isinstance(value, str):
        return True
    day, mark, time_of_day = value[:10], value[10:11], value[11:]
    datetime.datetime.strptime(day, "%Y-%m-%d")
    return len(day) == 10 and mark in ("T", "t", " ") and mark != "" and _is_time(time_of_day)
