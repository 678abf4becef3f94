"""The environment `mrtpo/Instructions-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.errors import ConfigError
from mrtpo_envs.instructions.constraint import Rule, Strictness
from mrtpo_envs.instructions.generator import TaskGenerator, witness
from mrtpo_envs.instructions.tasks import load_jsonl
from mrtpo_envs.task import Task, TaskSet


class InstructionsEnv(MultiRewardEnv):
    """Requests with one to five instruction constraints, each a reward of its own (IFEval's kinds).

    Args:
        split: "train" or "test"; their topics, keywords and phrases are disjoint.
        seed: decides which tasks there are.
        kinds: "easy" (kinds that a small model can learn), "all", or a list of published ids.
        n_constraints: how many constraints a task has, or the smallest and the largest number.
        train_size: number of training tasks; they are made when asked for.
        test_size: number of held-out tasks.
        path: a file in IFEval's JSON lines; its tasks are then both splits, unless `test_path` is given.
        test_path: another such file for the test split.
        skip_bad: leave bad lines of those files out, instead of raising.
        rule: "worded" follows the instruction's words, "published" the benchmark's code.
        strictness: "strict" or "loose".
        render_mode: None or "ansi".

    Raises:
        UnknownNameError, ConfigError: options that are not known, of the wrong type, or impossible.
        DataError: what is missing or wrong in the file.
    """

    def __init__(
        self,
        *,
        split: str = "train",
        seed: int = 0,
        kinds: str | Sequence[str] = "easy",
        n_constraints: int | Sequence[int] = (1, 5),
        train_size: int = 100_000,
        test_size: int = 512,
        path: str | Path | None = None,
        test_path: str | Path | None = None,
        skip_bad: bool = False,
        rule: Rule = "worded",
        strictness: Strictness = "strict",
        render_mode: str | None = None,
    ) -> None:
        if path is None and test_path is not None:
            raise ConfigError("test_path goes with path")
        for name, size in (("train_size", train_size), ("test_size", test_size)):
            if size < 1:
                raise ConfigError(f"{name} must be at least 1, got {size!r}")
        if path is not None:
            train: TaskSet = load_jsonl(path, rule=rule, strictness=strictness, skip_bad=skip_bad)
            test = train
            if test_path is not None:
                test = load_jsonl(test_path, rule=rule, strictness=strictness, skip_bad=skip_bad)
        else:
            train, test = (
                TaskSet(
                    TaskGenerator(
                        seed=seed,
                        split=which,
                        kinds=kinds,
                        n_constraints=n_constraints,
                        rule=rule,
                        strictness=strictness,
                    ),
                    size,
                )
                for which, size in (("train", train_size), ("test", test_size))
            )
        super().__init__(train, test, split=split, render_mode=render_mode)

    def solution(self, task: Task) -> str | None:
        """A witness of a generated task; a loaded one has none."""
        return witness(task) if task.metadata.get("source") == "generated" else None
