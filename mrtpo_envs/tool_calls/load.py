"""Tool-call data sets as users have them on disk: BFCL, ToolRL, xLAM, ToolACE and API-Bank.

Every loader gives a list of tasks, and takes `format` (how calls are written, a name from `FORMATS`), `rewards` (names from
`REWARDS`, or a set's name from `SETS`) and further options of `make_task`. A bad record raises DataError that says where it
is, what was expected and what came; with `skip_bad` it is left out. Files are a JSON list, JSON lines or Parquet, in UTF-8
with or without a byte order mark. None of these sets is bundled; BFCL's files come with the package bfcl-eval.

Sets state their own way to write calls, within the text of their prompts. Here the task's format states it, so that text
is left out; only ToolRL's chats stay as they are.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, MrtpoError, TaskError, unknown
from mrtpo_envs.task import Message, Prompt, Segment, Task
from mrtpo_envs.tool_calls.expected import Expected
from mrtpo_envs.tool_calls.reading import MAX_DEPTH, MAX_DIGITS, Unreadable, python_arguments, skip_space
from mrtpo_envs.tool_calls.schemas import tool_of
from mrtpo_envs.tool_calls.tasks import WITHOUT_EXPECTED, make_task, rewards_of

BFCL_CATEGORIES = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
)  # fmt: skip
"""The categories of BFCL v4 that are answered in one turn."""
MAX_COMBINATIONS = 64
"""Most values that accepted values for each key of an object are multiplied out to. BFCL's own have at most a few."""

Rewards = str | Sequence[str]
Row = Mapping[str, Any]
Rows = Iterable[tuple[str, int, Any]]
"""Where a record stands, in words; its number in its file, from 0; and the record, or the error in its place."""


def load_bfcl(
    path: str | Path | None = None,
    categories: str | Sequence[str] = BFCL_CATEGORIES,
    *,
    format: str = "hermes",
    rewards: Rewards = "default",
    skip_bad: bool = False,
    **options: Any,
) -> list[Task]:
    """BFCL v4 (Berkeley Function-Calling Leaderboard, Patil et al. 2025; Apache-2.0): its single-turn categories.

    `BFCL_v4_<category>.json` has on each line `id`, `question` (one turn of messages) and `function`; the file of the same
    name in `possible_answer/` has `id` and `ground_truth`. Each task's privileged data have these under "bfcl".

    In the categories of Java and JavaScript every argument is a string that holds a literal of that language, so the tools
    that are offered take strings, and the literals of the accepted values are expected. No call is due in the irrelevance
    categories. In live_relevance any call is right, so the expected calls are None, and rewards that need them are left out.

    Args:
        path: the folder of the files; the data of the installed package bfcl-eval where None.
        categories: one or more of `BFCL_CATEGORIES`.

    Raises:
        DataError: what is missing or wrong, and where. UnknownNameError: no such category, format or reward.
        TaskError: options that do not fit together.
    """
    names = _options(format, rewards, options)
    wanted = [categories] if isinstance(categories, str) else list(categories)
    for category in wanted:
        if category not in BFCL_CATEGORIES:
            raise unknown("BFCL category", str(category), BFCL_CATEGORIES)
    folder = _bfcl_folder() if path is None else Path(path).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {str(folder)!r}; give the folder data of bfcl-eval, or no path if it is installed"
        )
    tasks: list[Task] = []
    for category in dict.fromkeys(wanted):
        file = folder / f"BFCL_v4_{category}.json"
        answers = (
            None if category.endswith("relevance") else _bfcl_answers(folder / "possible_answer" / file.name, skip_bad)
        )

        def made(
            row: Row, default_id: str, category: str = category, answers: Mapping[str, Any] | None = answers
        ) -> Task:
            return _bfcl_task(row, category, answers, {**options, "format": format}, names)

        tasks += _made(_rows(file, lines=True), f"bfcl {category}", made, skip_bad, allow_none=True)
    if not tasks:
        raise DataError(f"{folder}: no record of {', '.join(wanted) or 'any category'} can be used")
    return tasks


def load_toolrl(
    path: str | Path,
    *,
    format: str = "toolrl",
    rewards: Rewards = "default",
    skip_bad: bool = False,
    **options: Any,
) -> list[Task]:
    """ToolRL's rlla_4k (Qian et al. 2025, arXiv 2504.13958; Apache-2.0): Parquet, or the same records as JSON.

    A record has `prompt`, a list of `{"role", "content"}`, and `reward_model`, whose `ground_truth` is a response with
    `<think>`, `<tool_call>` (a JSON object of name and parameters on each line) and `<response>`. The chat is used as it is.
    The tools are read out of the system prompt (`1. Name: ...`, `Description: ...`, `Parameters: {...}`), for the reward
    schema; where they cannot be read, or a call that is due is of none of them, the task has no such reward. Every parameter
    there has a default, if only an empty one, so none is required. The metadata's `shape` is "call", "response", "both" or
    "think", by what the ground truth holds.

    Raises:
        DataError: what is missing or wrong, and where. UnknownNameError: no such format or reward.
        TaskError: options that do not fit together, or another format.
    """
    names = _options(format, rewards, options)
    if format != "toolrl":
        raise TaskError(f"ToolRL's chats ask for their own format; give format='toolrl', not {format!r}")

    def made(row: Row, default_id: str) -> Task:
        chat = [{"role": _text(m, "role"), "content": _text(m, "content")} for m in _objects(row, "prompt")]
        due, shape = _toolrl_truth(_text(_object(row, "reward_model"), "ground_truth"))
        tools = _numbered_tools("\n".join(m["content"] for m in chat if m["role"] == "system"))
        task = _task(
            question=chat,
            tools=_covering(tools, due),
            expected=due,
            names=names,
            id=_id(row, default_id),
            metadata={"source": "toolrl", "shape": shape},
            options={**options, "format": format},
        )
        turns = tuple(Message(m["role"], (Segment(m["content"]),)) for m in chat)
        return dataclasses.replace(task, prompt=Prompt(turns, tools_format=format))

    return _made(_rows(path), "toolrl", made, skip_bad)


def load_xlam(
    path: str | Path,
    *,
    format: str = "hermes",
    rewards: Rewards = "default",
    skip_bad: bool = False,
    **options: Any,
) -> list[Task]:
    """xLAM's function-calling-60k (APIGen, Liu et al. 2024, arXiv 2406.18518; CC BY 4.0): JSON, JSON lines or Parquet.

    A record has `query`, `tools` and `answers`, and may have `id`. Tools and answers are lists, or JSON of them in a string.
    A tool's parameters are `{name: {"type", "description", "default"}}`; one is required unless its type says "optional" or
    it has a default. An answer is `{"name", "arguments"}`.

    Raises:
        DataError: what is missing or wrong, and where. UnknownNameError: no such format or reward.
        TaskError: options that do not fit together.
    """
    names = _options(format, rewards, options)

    def made(row: Row, default_id: str) -> Task:
        return _task(
            question=_text(row, "query"),
            tools=_tools(_objects(row, "tools")),
            expected=[
                {"name": _text(a, "name"), "arguments": _object(a, "arguments")} for a in _objects(row, "answers")
            ],
            names=names,
            id=_id(row, default_id),
            metadata={"source": "xlam"},
            options={**options, "format": format},
        )

    return _made(_rows(path), "xlam", made, skip_bad)


def load_toolace(
    path: str | Path,
    *,
    format: str = "hermes",
    rewards: Rewards = "default",
    skip_bad: bool = False,
    **options: Any,
) -> list[Task]:
    """ToolACE (Liu et al. 2024, arXiv 2409.00920; Apache-2.0): JSON, JSON lines or Parquet.

    A record has `system`, a text with a JSON list of tools in it, and `conversations` of `{"from", "value"}`. The task is
    the assistant's first turn: `[Name(argument=value, ...), ...]`, where names may hold spaces, or plain words where no call
    is due. Of the system's text the tools and the present time are kept.

    Raises:
        DataError: what is missing or wrong, and where. UnknownNameError: no such format or reward.
        TaskError: options that do not fit together.
    """
    names = _options(format, rewards, options)

    def made(row: Row, default_id: str) -> Task:
        system = _text(row, "system")
        tools = _tools(_listed_tools(system))
        turns = [{"role": _text(t, "from"), "content": _text(t, "value")} for t in _objects(row, "conversations")]
        first = next((i for i, turn in enumerate(turns) if turn["role"] == "assistant"), None)
        if first is None:
            raise DataError("no turn of the conversation is the assistant's, so there is nothing to answer")
        return _task(
            question=[*_times(system), *turns[:first]],
            tools=tools,
            expected=_answer(turns[first]["content"], [_text(t, "name") for t in tools]),
            names=names,
            id=_id(row, default_id),
            metadata={"source": "toolace"},
            options={**options, "format": format},
        )

    return _made(_rows(path), "toolace", made, skip_bad)


def load_api_bank(
    path: str | Path,
    *,
    format: str = "hermes",
    rewards: Rewards = "default",
    skip_bad: bool = False,
    **options: Any,
) -> list[Task]:
    """API-Bank (Li et al. 2023, arXiv 2304.08244; MIT): JSON or JSON lines.

    A record has `instruction`, `input` and `expected_output` (`output` in the training files): `API-Request: [Name(k='v')]`,
    or `AI: ...` where no call is due. APIs that instruction or input describe as JSON are the tools, and the prompt is the
    dialogue with the present time. Where none can be read, or the call that is due is of none of them, the prompt is the
    whole of instruction and input, and the task has no reward schema.

    Raises:
        DataError: what is missing or wrong, and where. UnknownNameError: no such format or reward.
        TaskError: options that do not fit together.
    """
    names = _options(format, rewards, options)

    def made(row: Row, default_id: str) -> Task:
        instruction, dialogue = _text(row, "instruction"), _text(row, "input", empty=True)
        due = _api_bank_due(_text(row, "expected_output" if "expected_output" in row else "output"))
        described, words = _described_apis(dialogue)
        tools = _covering(_tools([*_described_apis(instruction)[0], *described]), due)
        words = re.sub(r"\s*Generate (?:API Request|AI Response):\s*$", "", words).strip()
        question: Any = f"{instruction}\n{dialogue}".strip()
        if tools and words:
            question = [*_times(instruction), {"role": "user", "content": words}]
        return _task(
            question=question,
            tools=tools,
            expected=due,
            names=names,
            id=_id(row, default_id),
            metadata={"source": "api-bank"},
            options={**options, "format": format},
        )

    return _made(_rows(path), "api-bank", made, skip_bad)


# Records of a file


def _rows(path: str | Path, *, lines: bool = False) -> Iterator[tuple[str, int, Any]]:
    """A file's records. What is wrong with one stands in its place; what is wrong with the file raises."""
    file = Path(path).expanduser()
    if file.is_dir():
        raise DataError(f"{str(path)!r} is a folder; give the file of records in it")
    if not file.is_file():
        raise DataError(f"there is no file {str(path)!r}")
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
            yield f"{file}, line {line_number}", number, _or_fault(_json, line)
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


def _json(text: str) -> Any:
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


def _value_at(text: str, at: int = 0) -> tuple[Any, int]:
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


def _made(
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


def _field(row: Row, name: str) -> Any:
    if name not in row or row[name] is None:
        raise DataError(f"there is no field {name!r}; there are {', '.join(map(str, row)) or 'none'}"[:300])
    return row[name]


def _text(row: Row, name: str, *, empty: bool = False) -> str:
    value = _field(row, name)
    if not isinstance(value, str):
        raise DataError(f"the field {name!r} must be text, got {type(value).__name__}")
    if not empty and not value.strip():
        raise DataError(f"the field {name!r} is empty")
    return value


def _object(row: Row, name: str) -> Row:
    value = _field(row, name)
    if not isinstance(value, Mapping):
        raise DataError(f"the field {name!r} must be an object, got {type(value).__name__}")
    return value


def _objects(row: Row, name: str) -> list[Row]:
    """A list of objects, or the JSON of one in a string."""
    value = _field(row, name)
    if isinstance(value, str):
        try:
            value = _json(value)
        except DataError as error:
            raise DataError(f"the field {name!r} is {error}") from error
    if not isinstance(value, list):
        raise DataError(f"the field {name!r} must be a list, got {type(value).__name__}")
    for item in value:
        if not isinstance(item, Mapping):
            raise DataError(f"the field {name!r} must be a list of objects, got {type(item).__name__} in it")
    return value


def _id(row: Row, default: str) -> str:
    value = row.get("id")
    return str(value) if isinstance(value, (str, int)) and str(value) else default


# Tasks


def _options(format: str, rewards: Rewards, options: Mapping[str, Any]) -> tuple[str, ...]:
    """The rewards' names; raises for options that no record could be made a task with."""
    make_task(question="?", tools=[], expected=[], format=format, rewards=rewards, **options)
    return rewards_of(rewards)


def _task(
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


def _tools(given: Iterable[Row]) -> list[Row]:
    """Tools with their parameters as JSON Schema, each once; `make_task` checks the schemas, which takes milliseconds."""
    found: dict[str, Row] = {}
    for tool in map(_with_schema, given):
        name = _text(tool, "name")
        if found.setdefault(name, tool) != tool:
            raise DataError(f"two different tools are called {name!r}")
    return list(found.values())


def _with_schema(tool: Row) -> Row:
    """The tool without OpenAI's shell, its parameters in the shell of a JSON Schema."""
    inner = _object(tool, "function") if "function" in tool else tool
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


def _covering(tools: list[Row], due: Sequence[Row]) -> list[Row]:
    """The tools that were read out of a text, or none if they are not all: a call that is due is of none of them."""
    names = {tool["name"] for tool in tools}
    return tools if all(call["name"] in names for call in due) else []


_TIME = re.compile(r"\b(?:The current (?:time|date|year) is|Today is|Today's date is)\s[^\n.]*\d[^\n.]*")


def _times(text: str) -> list[dict[str, str]]:
    """A system message of the present time, where a text says it: requests like "tomorrow" need it."""
    said = _TIME.search(text)
    return [{"role": "system", "content": f"{said[0].rstrip()}."}] if said else []


# Calls and tools within texts


def _answer(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The calls of an assistant's turn; none where it is plain words."""
    if not _BEGINS.match(text):
        if any(f"[{name}(" in text for name in names):
            raise DataError(f"a turn is either calls or words, got both: {text!r:.200}")
        return []
    return _written_calls(text, names)


_BEGINS = re.compile(r"\s*\[\s*[^\[\]{}=\"'\n]*\(")
_ANY_NAME = re.compile(r"[^()\[\]{}=,\"'\s][^()\[\]{}=,\"'\n]*(?=\()")


def _written_calls(text: str, names: Sequence[str] = ()) -> list[dict[str, Any]]:
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


def _listed_tools(text: str) -> list[Row]:
    """The first JSON list of objects in a text."""
    for opening in re.finditer(r"\[\s*\{", text):
        try:
            found, _ = _value_at(text, opening.start())
        except DataError:
            continue
        if all(isinstance(tool, Mapping) and ("name" in tool or "function" in tool) for tool in found):
            return list(found)
    raise DataError(f"no JSON list of tools in the system's text {text!r:.200}")


def _numbered_tools(text: str) -> list[Row]:
    """The tools of a ToolRL prompt; none where one cannot be read."""
    tools = []
    for block in re.split(r"^\d+\. Name: ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\nDescription: ")
        description, _, rest = rest.partition("\nParameters: ")
        try:
            parameters, _ = _value_at(rest)
        except DataError:
            return []
        tools.append({"name": name.strip(), "description": description.strip(), "parameters": parameters})
    try:
        found = _tools(tools)
        for tool in found:
            tool_of(tool)
    except MrtpoError:
        return []
    return found


def _described_apis(text: str) -> tuple[list[Row], str]:
    """The APIs that a text describes as JSON objects, and the text without them."""
    apis: list[Row] = []
    words, at = "", 0
    opening = text.find("{")
    while opening >= 0:
        try:
            found, end = _value_at(text, opening)
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


def _api_bank_due(text: str) -> list[dict[str, Any]]:
    mark = "API-Request:"
    if mark in text:
        return _written_calls(text.partition(mark)[2])
    if text.lstrip().startswith("AI:"):
        return []
    raise DataError(f"expected 'API-Request: [Name(key=value, ...)]' or 'AI: ...', got {text!r:.200}")


def _toolrl_truth(text: str) -> tuple[list[dict[str, Any]], str]:
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
                call = _json(line)
                if not isinstance(call, Mapping):
                    raise DataError("no object")
                calls.append({"name": _text(call, "name"), "arguments": _object(call, "parameters")})
            except DataError as error:
                raise DataError(f"a call of the ground truth, {line!r:.200}: {error}") from None
    if not closed or not calls:
        raise DataError(f"expected calls between <tool_call> and </tool_call>, got {answer!r:.200}")
    return calls, "both" if replies else "call"


# BFCL

_LANGUAGES = {"simple_java": "java", "simple_javascript": "javascript"}
_SPELLED = {"java": "Java", "javascript": "JavaScript"}


def _bfcl_folder() -> Path:
    try:
        found = importlib.util.find_spec("bfcl_eval")
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise DataError("bfcl-eval, whose data these are, is not installed: pip install bfcl-eval, or give path=")
    return Path(next(iter(found.submodule_search_locations))) / "data"


def _bfcl_answers(file: Path, skip_bad: bool) -> dict[str, Any]:
    """The ground truth of each id."""
    answers: dict[str, Any] = {}
    for where, _, row in _rows(file, lines=True):
        if isinstance(row, Mapping) and isinstance(row.get("id"), str):
            answers[row["id"]] = row.get("ground_truth")
        elif not skip_bad:
            fault = row if isinstance(row, DataError) else 'an answer is {"id": ..., "ground_truth": [...]}'
            raise DataError(f"{where}: {fault}")
    return answers


def _bfcl_task(
    row: Row, category: str, answers: Mapping[str, Any] | None, options: Mapping[str, Any], names: Sequence[str]
) -> Task:
    identity, language = _text(row, "id"), _LANGUAGES.get(category, "python")
    turns, functions = _field(row, "question"), _objects(row, "function")
    if not isinstance(turns, list) or len(turns) != 1 or not isinstance(turns[0], list):
        raise DataError(f"{identity}: 'question' must be a list of one turn, a list of messages, got {turns!r:.200}")
    chat = [
        {"role": _text(m, "role"), "content": _text(m, "content", empty=True)}
        for m in _objects({"question": turns[0]}, "question")
    ]
    tools = _tools(functions if language == "python" else [_of_strings(f, language) for f in functions])
    truth: Any = []
    due: list[Expected] | None = None if category == "live_relevance" else []
    if answers is not None:
        if identity not in answers:
            raise DataError(f"{identity}: there is no answer with this id in possible_answer")
        truth = answers[identity]
        if not isinstance(truth, list) or not truth:
            raise DataError(f"{identity}: 'ground_truth' must be a list of calls, got {truth!r:.200}")
        schemas = {_text(f, "name"): f.get("parameters") for f in functions}
        due = [_bfcl_expected(call, schemas, language, identity) for call in truth]
    return _task(
        question=chat,
        tools=tools,
        expected=due,
        names=names,
        id=identity,
        metadata={"source": "bfcl", "category": category, "language": language},
        privileged={"bfcl": {"category": category, "functions": list(functions), "answers": truth}},
        options=options,
    )


def _bfcl_expected(call: Any, schemas: Mapping[str, Any], language: str, identity: str) -> Expected:
    """The call that BFCL's `{function: {parameter: [accepted, ...]}}` describes.

    "" among the accepted values lets a parameter be left out, unless the schema requires it: then it is a value. A required
    array for which nothing is accepted (two records have that) is the empty one.
    """
    if not isinstance(call, Mapping) or len(call) != 1 or not isinstance(next(iter(call.values())), Mapping):
        raise DataError(
            f"{identity}: a call of the ground truth is {{function: {{parameter: [...]}}}}, got {call!r:.200}"
        )
    [(name, given)] = call.items()
    schema = _mapping(schemas.get(name))
    rules, listed = _mapping(schema.get("properties")), schema.get("required")
    required = listed if isinstance(listed, list) else []
    accepted: dict[str, tuple[Any, ...]] = {}
    optional: set[str] = set()
    for parameter, values in given.items():
        if not isinstance(values, list):
            raise DataError(f"{identity}: accepted values of {parameter!r} must be a list, got {values!r:.200}")
        rule = _mapping(rules.get(parameter))
        plain = [v for value in values if value != "" for v in _expanded(value)]
        if language != "python":
            plain = list(dict.fromkeys(t for v in plain for t in _literals(v, rule, language)))
        if parameter in required:
            if "" in values:
                plain.append("")
            if not plain and rule.get("type") == "array":
                plain.append([])
            if not plain:
                raise DataError(f"{identity}: the parameter {parameter!r} is required, but no value is accepted")
        elif "" in values:
            optional.add(parameter)
        if plain:
            accepted[parameter] = tuple(plain)
    return Expected(name, accepted, frozenset(optional & accepted.keys()))


def _mapping(value: Any) -> Row:
    return value if isinstance(value, Mapping) else {}


def _expanded(value: Any) -> list[Any]:
    """The plain values that an accepted one stands for: an object (or a list of them) has a list of values for each key."""
    if isinstance(value, Mapping):
        choices = []
        for key, values in value.items():
            listed = values if isinstance(values, list) else [values]
            ways = [{key: v} for v in listed if v != ""]
            choices.append(ways + [{}] * ("" in listed))
        pairs = itertools.islice(itertools.product(*choices), MAX_COMBINATIONS)
        return [{k: v for part in parts for k, v in part.items()} for parts in pairs]
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        lists = itertools.islice(itertools.product(*(_expanded(item) for item in value)), MAX_COMBINATIONS)
        return [list(items) for items in lists]
    return [value]


def _of_strings(function: Row, language: str) -> Row:
    """A function whose parameters are all strings, each with a note of what the string is to hold."""
    schema = function.get("parameters")
    properties = _mapping(schema).get("properties")
    if (
        not isinstance(schema, Mapping)
        or not isinstance(properties, Mapping)
        or not all(isinstance(rule, Mapping) for rule in properties.values())
    ):
        raise DataError(
            f"function {function.get('name')!r}: parameters must be a schema with properties, got {schema!r:.200}"
        )
    strings = {
        name: {"type": "string", "description": f"{rule.get('description', '')} {_note(rule, language)}".strip()}
        for name, rule in properties.items()
    }
    return {**function, "parameters": {"type": "object", "properties": strings, "required": schema.get("required", [])}}


def _note(rule: Row, language: str) -> str:
    kind = str(rule.get("type") or "any")
    items, keys = rule.get("items"), rule.get("properties")
    if isinstance(items, Mapping) and items.get("type"):
        kind += f" of {items['type']}"
    if isinstance(keys, Mapping) and keys:
        kind += " with " + ", ".join(
            f"{key} ({inner.get('type', 'any')})" for key, inner in keys.items() if isinstance(inner, Mapping)
        )
    return f"(A string that holds {_SPELLED[language]} code for a value of type {kind}.)"


def _literals(value: Any, rule: Row, language: str) -> list[str]:
    """A value's literals; a whole number of a floating type is right without its point too."""
    kind = str(rule.get("type", "any"))
    items = rule.get("items")
    of = items.get("type") if isinstance(items, Mapping) else None
    text = (java_literal if language == "java" else javascript_literal)(value, kind, of)
    if kind in ("float", "double") and isinstance(value, float) and value.is_integer():
        return [text, text.replace(".0", "", 1)]
    return [text]


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
