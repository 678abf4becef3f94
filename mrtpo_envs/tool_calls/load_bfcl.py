"""BFCL's single-turn questions as tasks, with its accepted values as expected calls."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, TaskError, unknown
from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.expected import Expected
from mrtpo_envs.tool_calls.literals import java_literal, javascript_literal
from mrtpo_envs.tool_calls.records import (
    Rewards,
    Row,
    existing,
    field_of,
    made_of,
    objects_of,
    reward_names,
    rows_of,
    task_of,
    text_of,
    tools_in,
)

BFCL_CATEGORIES = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
)  # fmt: skip
"""The categories of BFCL v4 that are answered in one turn."""
MAX_COMBINATIONS = 64
"""Most values that accepted values for each key of an object are multiplied out to. BFCL's own have at most a few."""


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
    names = reward_names(format, rewards, options)
    wanted = [categories] if isinstance(categories, str) else list(categories)
    if not wanted:
        raise TaskError(f"categories must be one or more of {', '.join(BFCL_CATEGORIES)}")
    for category in wanted:
        if category not in BFCL_CATEGORIES:
            raise unknown("BFCL category", str(category), BFCL_CATEGORIES)
    folder = _bfcl_folder() if path is None else existing(path)
    if folder is None or not folder.is_dir():
        raise DataError(
            f"there is no folder {str(path)[:200]!r}; give the folder data of bfcl-eval, or no path if it is installed"
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

        tasks += made_of(rows_of(file, lines=True), f"bfcl {category}", made, skip_bad, allow_none=True)
    if not tasks:
        raise DataError(f"{folder}: no record of {', '.join(wanted) or 'any category'} can be used")
    return tasks


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
    for where, _, row in rows_of(file, lines=True):
        if isinstance(row, Mapping) and isinstance(row.get("id"), str):
            answers[row["id"]] = row.get("ground_truth")
        elif not skip_bad:
            fault = row if isinstance(row, DataError) else 'an answer is {"id": ..., "ground_truth": [...]}'
            raise DataError(f"{where}: {fault}")
    return answers


def _bfcl_task(
    row: Row, category: str, answers: Mapping[str, Any] | None, options: Mapping[str, Any], names: Sequence[str]
) -> Task:
    identity, language = text_of(row, "id"), _LANGUAGES.get(category, "python")
    turns, functions = field_of(row, "question"), objects_of(row, "function")
    if not isinstance(turns, list) or len(turns) != 1 or not isinstance(turns[0], list):
        raise DataError(f"{identity}: 'question' must be a list of one turn, a list of messages, got {turns!r:.200}")
    chat = [
        {"role": text_of(m, "role"), "content": text_of(m, "content", empty=True)}
        for m in objects_of({"question": turns[0]}, "question")
    ]
    tools = tools_in(functions if language == "python" else [_of_strings(f, language) for f in functions])
    truth: Any = []
    due: list[Expected] | None = None if category == "live_relevance" else []
    if answers is not None:
        if identity not in answers:
            raise DataError(f"{identity}: there is no answer with this id in possible_answer")
        truth = answers[identity]
        if not isinstance(truth, list) or not truth:
            raise DataError(f"{identity}: 'ground_truth' must be a list of calls, got {truth!r:.200}")
        schemas = {text_of(f, "name"): f.get("parameters") for f in functions}
        due = [_bfcl_expected(call, schemas, language, identity) for call in truth]
    return task_of(
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
