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
import re
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, TaskError
from mrtpo_envs.task import Message, Prompt, Segment, Task
from mrtpo_envs.tool_calls.records import (
    Rewards,
    Row,
    covering,
    id_of,
    made_of,
    object_of,
    objects_of,
    reward_names,
    rows_of,
    task_of,
    text_of,
    tools_in,
)
from mrtpo_envs.tool_calls.texts import (
    answer_of,
    api_bank_due,
    described_apis,
    listed_tools,
    numbered_tools,
    times_in,
    toolrl_truth,
)


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
    names = reward_names(format, rewards, options)
    if format != "toolrl":
        raise TaskError(f"ToolRL's chats ask for their own format; give format='toolrl', not {format!r}")

    def made(row: Row, default_id: str) -> Task:
        chat = [{"role": text_of(m, "role"), "content": text_of(m, "content")} for m in objects_of(row, "prompt")]
        due, shape = toolrl_truth(text_of(object_of(row, "reward_model"), "ground_truth"))
        tools = numbered_tools("\n".join(m["content"] for m in chat if m["role"] == "system"))
        task = task_of(
            question=chat,
            tools=covering(tools, due),
            expected=due,
            names=names,
            id=id_of(row, default_id),
            metadata={"source": "toolrl", "shape": shape},
            options={**options, "format": format},
        )
        turns = tuple(Message(m["role"], (Segment(m["content"]),)) for m in chat)
        return dataclasses.replace(task, prompt=Prompt(turns, tools_format=format))

    return made_of(rows_of(path), "toolrl", made, skip_bad)


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
    names = reward_names(format, rewards, options)

    def made(row: Row, default_id: str) -> Task:
        return task_of(
            question=text_of(row, "query"),
            tools=tools_in(objects_of(row, "tools")),
            expected=[
                {"name": text_of(a, "name"), "arguments": object_of(a, "arguments")} for a in objects_of(row, "answers")
            ],
            names=names,
            id=id_of(row, default_id),
            metadata={"source": "xlam"},
            options={**options, "format": format},
        )

    return made_of(rows_of(path), "xlam", made, skip_bad)


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
    names = reward_names(format, rewards, options)

    def made(row: Row, default_id: str) -> Task:
        system = text_of(row, "system")
        tools = tools_in(listed_tools(system))
        turns = [{"role": text_of(t, "from"), "content": text_of(t, "value")} for t in objects_of(row, "conversations")]
        first = next((i for i, turn in enumerate(turns) if turn["role"] == "assistant"), None)
        if first is None:
            raise DataError("no turn of the conversation is the assistant's, so there is nothing to answer")
        return task_of(
            question=[*times_in(system), *turns[:first]],
            tools=tools,
            expected=answer_of(turns[first]["content"], [text_of(t, "name") for t in tools]),
            names=names,
            id=id_of(row, default_id),
            metadata={"source": "toolace"},
            options={**options, "format": format},
        )

    return made_of(rows_of(path), "toolace", made, skip_bad)


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
    names = reward_names(format, rewards, options)

    def made(row: Row, default_id: str) -> Task:
        instruction, dialogue = text_of(row, "instruction"), text_of(row, "input", empty=True)
        due = api_bank_due(text_of(row, "expected_output" if "expected_output" in row else "output"))
        described, words = described_apis(dialogue)
        tools = covering(tools_in([*described_apis(instruction)[0], *described]), due)
        words = re.sub(r"\s*Generate (?:API Request|AI Response):\s*$", "", words).strip()
        question: Any = f"{instruction}\n{dialogue}".strip()
        if tools and words:
            question = [*times_in(instruction), {"role": "user", "content": words}]
        return task_of(
            question=question,
            tools=tools,
            expected=due,
            names=names,
            id=id_of(row, default_id),
            metadata={"source": "api-bank"},
            options={**options, "format": format},
        )

    return made_of(rows_of(path), "api-bank", made, skip_bad)
