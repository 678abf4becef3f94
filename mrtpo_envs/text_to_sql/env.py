"""The environment `mrtpo/TextToSQL-v0`."""

from __future__ import annotations

from collections.abc import Sequence

from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.task import Task, TaskSet
from mrtpo_envs.text_to_sql.generator import TaskGenerator
from mrtpo_envs.text_to_sql.tasks import solution
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS
from mrtpo_envs.verifier import Verification


class TextToSQLEnv(MultiRewardEnv):
    """A schema and a question: the policy writes one query, and it runs on a real SQLite database.

    Args:
        split: "train" or "test"; no schema is in both.
        seed: decides which tasks there are.
        levels: kinds of question, of filter, aggregate, group, join, nested and set.
        rewards: names of the rewards, in order; beside the default four there are suite, cells, rows, overlap, bird and
            soft_f1.
        train_size: number of training tasks; they are made when asked for.
        test_size: number of held-out tasks.
        max_turns: responses to a task; a query that fails or finds nothing is told so, and may be tried again.
        render_mode: None or "ansi".
    """

    def __init__(
        self,
        *,
        split: str = "train",
        seed: int = 0,
        levels: Sequence[str] = ("filter", "aggregate", "group", "join"),
        rewards: Sequence[str] = DEFAULT_REWARDS,
        train_size: int = 20_000,
        test_size: int = 512,
        max_turns: int = 1,
        render_mode: str | None = None,
    ) -> None:
        train, test = (
            TaskSet(TaskGenerator(seed=seed, split=which, levels=levels, rewards=rewards), size)
            for which, size in (("train", train_size), ("test", test_size))
        )
        super().__init__(train, test, split=split, max_turns=max_turns, render_mode=render_mode)

    def solution(self, task: Task) -> str:
        """The gold query in a code block."""
        return solution(task)

    def feedback(self, task: Task, response: str, verification: Verification) -> str | None:
        """What a failed or empty query came to. A query with a result ends the episode: it is the answer."""
        for name in ("valid", "execution"):
            verdict = verification.verdicts.get(name)
            if verdict is None or verdict.reward is None or verdict.reward == 1.0:
                continue
            if name == "valid" or verdict.details.get("error") or "empty result" in verdict.outcome:
                return f"That did not work: {verdict.outcome}. Answer again with one query in a ```sql code block."
        return None
