"""Tool-call tasks from tools, a request and the calls that are due."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mrtpo_envs.errors import TaskError, unknown
from mrtpo_envs.options import checked
from mrtpo_envs.task import ROLES, Message, Privileged, Prompt, Segment, Task
from mrtpo_envs.tool_calls.bfcl import BFCL
from mrtpo_envs.tool_calls.expected import Expected, agreement, expected_call
from mrtpo_envs.tool_calls.formats import FORMATS, find_calls, write_answer
from mrtpo_envs.tool_calls.schemas import tool_of
from mrtpo_envs.tool_calls.toolrl import ToolRLCorrectness, ToolRLFormat
from mrtpo_envs.tool_calls.verifiers import Arguments, Format, Schema, Tool
from mrtpo_envs.verifier import Verifier

REWARDS: dict[str, type[Verifier] | Any] = {
    "format": Format,
    "tool": Tool,
    "schema": Schema,
    "arguments": Arguments,
    "match": lambda: Arguments(whole=True, name="match"),
    "bfcl": BFCL,
    "toolrl_format": ToolRLFormat,
    "toolrl_correctness": ToolRLCorrectness,
}
"""Every reward by its name."""

DEFAULT_REWARDS = ("format", "tool", "schema", "arguments")
SETS: dict[str, tuple[str, ...]] = {
    "default": DEFAULT_REWARDS,
    "toolrl": ("toolrl_format", "toolrl_correctness"),
    "bfcl": ("format", "bfcl"),
}
"""Rewards that go together, by one name."""

ONLY_WITH_CALLS = ("schema", "arguments")
"""Rewards that a task has only where a call is due: where none is, `tool` says all there is to say."""
WITHOUT_EXPECTED = ("format", "schema", "bfcl")
"""Rewards that need no expected calls."""


def rewards_of(rewards: str | Sequence[str]) -> tuple[str, ...]:
    """The names that a set's name stands for, or the given names.

    Raises:
        UnknownNameError: no such set or reward. TaskError: none at all.
    """
    if isinstance(rewards, str):
        if rewards not in SETS:
            raise unknown("set of rewards", rewards, SETS)
        return SETS[rewards]
    names = tuple(rewards)
    if not names:
        raise TaskError(f"rewards must be one or more of {', '.join(REWARDS)}, or a set's name ({', '.join(SETS)})")
    for name in names:
        if name not in REWARDS:
            raise unknown("reward", str(name), REWARDS)
    return names


@checked(TaskError)
def make_task(
    *,
    question: str | Sequence[Mapping[str, str]],
    tools: Sequence[Mapping[str, Any]],
    expected: Sequence[Any] | None,
    format: str = "hermes",
    rewards: str | Sequence[str] = "default",
    ordered: bool = False,
    prefilled: bool = False,
    lenient: bool = False,
    id: str = "",
    metadata: Mapping[str, Any] | None = None,
    privileged: Mapping[str, Any] | None = None,
) -> Task:
    """A task: answer a request with calls of the tools that are offered.

    Args:
        question: the user's words, or chat messages `{"role", "content"}` that end with the user's.
        tools: JSON Schema tool definitions, in OpenAI's form or `{"name", "description", "parameters"}`.
        expected: the calls that are due, `{"name", "arguments"}` or `Expected` (several accepted values); an empty list
            where no tool fits; None where they are not known: format and schema do without, and bfcl then takes any call.
        format: how calls are written, a name from `FORMATS`.
        rewards: names from `REWARDS`, or a set's name from `SETS`. A task where no call is due has no schema and no
            arguments.
        ordered: the calls are a sequence, and each one counts in its place only.
        prefilled: the chat template ends the prompt with `<think>`, so that responses begin inside the block.
        lenient: read what is nearly a call too (never well formed).

    Raises:
        TaskError: what is missing, double or no JSON Schema. UnknownNameError: no such format or reward.
    """
    if format not in FORMATS:
        raise unknown("format", str(format), FORMATS)
    names = rewards_of(rewards)
    offered = [tool_of(tool) for tool in tools]
    tool_names = [t["function"]["name"] for t in offered]
    if len(set(tool_names)) < len(tool_names):
        raise TaskError(f"two tools have one name: {', '.join(sorted(tool_names))}")
    due: tuple[Expected, ...] | None = None
    if expected is not None:
        due = tuple(expected_call(e) for e in expected)
        if tool_names and (stray := [e.name for e in due if e.name not in tool_names]):
            raise TaskError(f"expected calls of {stray}, but the tools are {tool_names}")
        for call in due:
            _require_writable(call, format)
        if not due:
            names = tuple(n for n in names if n not in ONLY_WITH_CALLS) or names
    elif unjudged := [n for n in names if n not in WITHOUT_EXPECTED]:
        raise TaskError(f"rewards {unjudged} need the expected calls; give an empty list where none is due")
    if format != "toolrl" and any(n.startswith("toolrl") for n in names):
        raise TaskError(f"ToolRL's rewards read ToolRL's format only; give format='toolrl', not {format!r}")
    public = {
        "source": "tool_calls",
        **(metadata or {}),
        "format": format,
        "ordered": ordered,
        "prefilled": prefilled,
        "lenient": lenient,
        "calls_due": bool(due),
        "parameters": {t["function"]["name"]: t["function"]["parameters"] for t in offered},
    }
    return Task(
        _prompt(question, offered, format, "format" in names),
        tuple(REWARDS[name]() for name in names),
        id=id,
        privileged=Privileged({**(privileged or {}), "expected": due}),
        metadata=public,
    )


def _require_writable(due: Expected, format: str) -> None:
    """Raises TaskError where the format cannot write the call, so that nothing could be right."""
    try:
        [found] = find_calls(FORMATS[format].write([due.call]), format).calls
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"the expected call of {due.name!r} cannot be written as {format}: its name and arguments must be JSON values, "
            f"and names in Python's formats identifiers; got {due.call!r:.200}"
        ) from error
    if found.name != due.name or agreement(due, found.name, found.arguments) != 1.0:
        raise TaskError(f"the expected call {due.call!r:.200} is another one when it is read again as {format}")


def _prompt(question: Any, tools: list[dict[str, Any]], format: str, stated: bool) -> Prompt:
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    messages = all(
        isinstance(m, Mapping) and isinstance(m.get("content"), str) and m.get("role") in ROLES for m in question
    )
    if not question or not messages or question[-1]["role"] != "user" or not question[-1]["content"].strip():
        raise TaskError(
            f"a question must be text, or chat messages that end with the user's words, got {question!r:.200}"
        )
    rule = Segment(FORMATS[format].statement, "format" if stated else None)
    shown = (
        Segment(f"Tools:\n{chr(10).join(tool_text(t) for t in tools)}\n\n", template_tools=True)
        if tools
        else Segment("")
    )
    turns = [Message(m["role"], (Segment(m["content"]),)) for m in question[:-1]]
    words = Segment(f"Request: {question[-1]['content']}\n" if tools else f"{question[-1]['content']}\n")
    turns.append(Message("user", (shown, words, rule)))
    return Prompt(tuple(turns), tuple(tools), tools_format=format)


def tool_text(tool: Mapping[str, Any]) -> str:
    """A tool on one line of JSON, as prompts show it where the chat template does not."""
    return json.dumps(tool["function"], ensure_ascii=False, separators=(", ", ": "))


def solution(task: Task) -> str:
    """A response that gets full reward: for supervised warm-up, and for tests.

    Raises:
        TaskError: the expected calls are not known.
    """
    expected = task.privileged["expected"]
    if expected is None:
        raise TaskError(f"task {task.id!r} has no expected calls")
    text = write_answer(task.metadata["format"], [e.call for e in expected])
    return text.removeprefix("<think>") if task.metadata["prefilled"] and text.startswith("<think>") else text
