"""The environment `mrtpo/ToolCalls-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.generator import KINDS
from mrtpo_envs.tool_calls.sources import Wanted, tasks_of
from mrtpo_envs.tool_calls.tasks import solution


class ToolCallsEnv(MultiRewardEnv):
    """Requests that are answered by calling tools, judged by name, by schema and by value.

    Args:
        source: "generated", "bfcl", "toolrl", "xlam", "toolace" or "api-bank".
        path: the file or folder of a data set; `bfcl` takes the one in the package bfcl-eval where None.
        format: how calls are written: hermes, llama3_json, llama3_pythonic, mistral, json, bfcl_python or toolrl.
        rewards: a list of format, tool, schema, arguments, match, bfcl, toolrl_format and toolrl_correctness, or a set
            of them: "default", "bfcl", or "toolrl" (ToolRL's two, the second from -3 to 3).
        kinds: which generated tasks: simple, options, parallel, sequence, none.
        n_tools: how many tools a generated task offers, or the smallest and the largest number.
        categories: which of BFCL's categories; all single-turn ones where None.
        prefilled: the chat template ends the prompt with `<think>`.
        lenient: read what is nearly a call too; it earns no format credit.
        split: "train" or "test"; generated tasks of the two share no tool, loaded ones are dealt out by their tools.
        seed: decides which generated tasks there are.
        train_size: number of generated training tasks, or the most loaded ones.
        test_size: the same of held-out tasks.
        skip_bad: leave bad records of a file out, instead of raising.
        render_mode: None or "ansi".
    """

    def __init__(
        self,
        *,
        source: str = "generated",
        path: str | Path | None = None,
        format: str | None = None,
        rewards: str | Sequence[str] = "default",
        kinds: str | Sequence[str] = KINDS,
        n_tools: int | Sequence[int] = (2, 4),
        categories: str | Sequence[str] | None = None,
        prefilled: bool = False,
        lenient: bool = False,
        split: str = "train",
        seed: int = 0,
        train_size: int = 100_000,
        test_size: int = 512,
        skip_bad: bool = False,
        render_mode: str | None = None,
    ) -> None:
        options = {"rewards": rewards, "prefilled": prefilled, "lenient": lenient}
        wanted = Wanted(
            path=None if path is None else str(path),
            format=format,
            kinds=kinds,
            n_tools=n_tools,
            categories=categories,
            seed=seed,
            train_size=train_size,
            test_size=test_size,
            skip_bad=skip_bad,
            options=options,
        )
        train, test = tasks_of(source, wanted)
        super().__init__(train, test, split=split, render_mode=render_mode)

    def solution(self, task: Task) -> str | None:
        """The calls that are due, well formed; None where they are not known."""
        return None if task.privileged["expected"] is None else solution(task)
