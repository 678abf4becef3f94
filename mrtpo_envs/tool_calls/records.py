"""Records of tool-call data sets: read from their files, their fields asked for, made into tasks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, MrtpoError
from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.reading import MAX_DEPTH, MAX_DIGITS
from mrtpo_envs.tool_calls.tasks import WITHOUT_EXPECTED, make_task, rewards_of

Rewards = str | Sequence[str]
Row = Mapping[str, Any]
Rows = Iterable[tuple[str, int, Any]]
"""Where a record stands, in words; its number in its file, from 0; and the record, or the error in its place."""


# Records of a file


def existing(path: str | Path) -> Path | None:
    """The file or folder at a path; None where there is none, or where no file system could have it."""
    try:
        file = Path(path).expanduser()
        return file if file.exists() else None
    except (OSError, ValueError, RuntimeError):  # a name that is too long, with a NUL, of nobody's home
        return None


def rows_of(path: str | Path, *, lines: bool = False) -> Iterator[tuple[str, int, Any]]:
    """A file's records. What is wrong with one stands in its place; what is wrong with the file raises."""
    file = existing(path)
    if file is None:
        raise DataError(f"there is no file {str(path)[:200]!r}")
    if file.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give the file of records in it")
    if file.suffix == ".parquet":
        # imported here: pyarrow, and all that text-to-SQL needs, are for those who have such a file
        from mrtpo_envs.text_to_sql.load import _parquet

        for number, row in enumerate(_parquet(file)):
            yield f"{file}, record {number + 1}", number, row
        return
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}; a file of records is JSON in UTF-8") from error
    if not text.strip():
        raise DataError(f"{file} is empty; expected a JSON list of records, or one JSON object on each line")
    if not lines and file.suffix != ".jsonl" and text.lstrip().startswith("["):
        try:
            rows = _decoded(text)
        except DataError as error:
            raise DataError(f"{file} is {error}") from error
        escapes = _SURROGATE.search(text) is not None
        for number, row in enumerate(rows):
            yield f"{file}, record {number + 1}", number, _or_fault(_checked, row, escapes)
        return
    number = 0
    for line_number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{file}, line {line_number}", number, _or_fault(parsed_json, line)
            number += 1


def _or_fault(read: Callable[..., Any], *given: Any) -> Any:
    try:
        return read(*given)
    except DataError as error:
        return error


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is beyond the range of floating point")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    return int(digits)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_int=_integer, parse_constant=_no_number)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parsed_json(text: str) -> Any:
    """A JSON value, checked.

    Raises:
        DataError: it is none, holds half a character, or is nested deeper than `MAX_DEPTH`.
    """
    return _checked(_decoded(text), _SURROGATE.search(text) is not None)


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None


def json_at(text: str, at: int = 0) -> tuple[Any, int]:
    """The JSON value that begins at `at`, and the position after it; DataError where there is none."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None
    return _checked(value, _SURROGATE.search(text, at, end) is not None), end


def _checked(value: Any, with_surrogates: bool) -> Any:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [v for c in level if isinstance(c, (dict, list)) for v in (c.values() if isinstance(c, dict) else c)]
        if not level:
            break
    else:
        raise DataError(f"nested deeper than {MAX_DEPTH} levels")
    if with_surrogates:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DataError("no Unicode text: it has half of a surrogate pair") from None
    return value


def made_of(
    rows: Rows, source: str, make: Callable[[Row, str], Task], skip_bad: bool, *, allow_none: bool = False
) -> list[Task]:
    """The tasks of the records."""
    tasks: list[Task] = []
    first_fault, faults = "", 0
    for where, number, row in rows:
        try:
            if isinstance(row, DataError):
                raise row
            if not isinstance(row, Mapping):
                raise DataError(f"a record is an object with fields, got {type(row).__name__}")
            tasks.append(make(row, f"{source}-{number}"))
        except (MrtpoError, RecursionError) as error:
            if not skip_bad:
                raise DataError(f"{where}: {error}") from error
            faults += 1
            first_fault = first_fault or f"{where}: {error}"
    if not tasks and not allow_none:
        raise DataError(
            f"{source}: no record" + (f"; {faults} were left out, the first for this: {first_fault}" if faults else "")
        )
    return tasks


# Fields of a record


def field_of(row: Row, name: str) -> Any:
    """A field that must be there and not be null."""
    if name not in row or row[name] is None:
        raise DataError(f"there is no field {name!r}; there are {', '.join(map(str, row)) or 'none'}"[:300])
    return row[name]


def text_of(row: Row, name: str, *, empty: bool = False) -> str:
    """A field that must be text, and not blank unless `empty`."""
    value = field_of(row, name)
    if not isinstance(value, str):
        raise DataError(f"the field {name!r} must be text, got {type(value).__name__}")
    if not empty and not value.strip():
        raise DataError(f"the field {name!r} is empty")
    return value


def object_of(row: Row, name: str) -> Row:
    """A field that must be an object."""
    value = field_of(row, name)
    if not isinstance(value, Mapping):
        raise DataError(f"the field {name!r} must be an object, got {type(value).__name__}")
    return value


def objects_of(row: Row, name: str) -> list[Row]:
    """A list of objects, or the JSON of one in a string."""
    value = field_of(row, name)
    if isinstance(value, str):
        try:
            value = parsed_json(value)
        except DataError as error:
            raise DataError(f"the field {name!r} is {error}") from error
    if not isinstance(value, list):
        raise DataError(f"the field {name!r} must be a list, got {type(value).__name__}")
    for item in value:
        if not isinstance(item, Mapping):
            raise DataError(f"the field {name!r} must be a list of objects, got {type(item).__name__} in it")
    return value


def id_of(row: Row, default: str) -> str:
    """The record's own id, or the default."""
    value = row.get("id")
    return str(value) if isinstance(value, (str, int)) and str(value) else default


# Tasks


def reward_names(format: str, rewards: Rewards, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The rewards' names; raises for options that no record could be made a task with."""
    make_task(question="?", tools=[], expected=[], format=format, rewards=rewards, **options)
    return rewards_of(rewards)


def task_of(
    *,
    question: Any,
    tools: Sequence[Row],
    expected: Sequence[Any] | None,
    names: Sequence[str],
    options: Mapping[str, Any],
    **more: Any,
) -> Task:
    """A task with those of the rewards that it can have."""
    kept = [n for n in names if (tools or n != "schema") and (expected is not None or n in WITHOUT_EXPECTED)]
    if not kept:
        lack = "expected calls" if expected is None else "tools that can be read"
        raise DataError(
            f"it has no {lack}, and of the rewards {', '.join(names)} none can do without; ask for format too"
        )
    return make_task(question=question, tools=tools, expected=expected, rewards=kept, **options, **more)


def tools_in(given: Iterable[Row]) -> list[Row]:
    """Tools with their parameters as JSON Schema, each once; `make_task` checks the schemas, which takes milliseconds."""
    found: dict[str, Row] = {}
    for tool in map(with_schema, given):
        name = text_of(tool, "name")
        if found.setdefault(name, tool) != tool:
            raise DataError(f"two different tools are called {name!r}")
    return list(found.values())


def with_schema(tool: Row) -> Row:
    """The tool without OpenAI's shell, its parameters in the shell of a JSON Schema."""
    inner = object_of(tool, "function") if "function" in tool else tool
    given = inner.get("parameters")
    if not isinstance(given, Mapping) or not given or isinstance(given.get("type"), str):
        return inner
    properties = given.get("properties")
    if isinstance(properties, Mapping) and all(isinstance(rule, Mapping) for rule in properties.values()):
        return inner
    shell: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    for name, rule in given.items():
        if not isinstance(rule, Mapping):
            raise DataError(
                f"tool {inner.get('name')!r}: the parameter {name!r} must be an object with its type, got {rule!r:.100}"
            )
        kind = rule.get("type")
        shell["properties"][name] = {k: v for k, v in rule.items() if k != "type" or isinstance(v, str)}
        by_type = isinstance(kind, str) and re.search(r"\boptional\b", kind, re.IGNORECASE) is not None
        optional = by_type or "default" in rule or rule.get("optional") is True
        flag = rule.get("required")
        if flag is True or (flag is not False and not optional):
            shell["required"].append(name)
    return {**inner, "parameters": shell}


def covering(tools: list[Row], due: Sequence[Row]) -> list[Row]:
    """The tools that were read out of a text, or none if they are not all: a call that is due is of none of them."""
    names = {tool["name"] for tool in tools}
    return tools if all(call["name"] in names for call in due) else []
