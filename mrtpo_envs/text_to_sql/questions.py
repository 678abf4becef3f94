"""Questions of a data set, each a task when it is asked for."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mrtpo_envs.errors import ConfigError, DataError
from mrtpo_envs.task import Task, TaskSet
from mrtpo_envs.text_to_sql.database import Descriptions
from mrtpo_envs.text_to_sql.tasks import make_task, require_settings
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS


@dataclass(frozen=True, slots=True)
class Record:
    """One question of a data set."""

    question: str
    gold_sql: str
    db_id: str
    database: str | None = None
    """Path of the SQLite file; or
    """
    setup_sql: Callable[[], str] | None = None
    """what makes the database, asked for when the task is made."""
    extra_databases: tuple[str, ...] = ()
    extra_setup_sql: tuple[Callable[[], str], ...] = ()
    hint: str = ""
    id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


def evenly(n: int, size: int) -> list[int]:
    """`size` of the first `n` numbers, or all of them where there are not so many, evenly spread."""
    size = min(n, size)
    return [i * n // size for i in range(size)]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


class Questions(TaskSet):
    """Records, each a task when it is asked for.

    Args:
        records: at least one.
        source: the data set's name.
        rewards: names from `REWARDS`.
        options: of `make_task`, for every task.
        describe: from a database's path to what its columns mean.
        skipped: number and reason of each record that was left out.

    Raises:
        ConfigError, UnknownNameError: options that no task can have.
        DataError: no record.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        source: str,
        rewards: Sequence[str] = DEFAULT_REWARDS,
        options: dict[str, Any] | None = None,
        describe: Callable[[str], Descriptions] | None = None,
        skipped: Sequence[tuple[int, str]] = (),
    ) -> None:
        require_settings(rewards=rewards, **(options or {}))  # now, and not at the first task
        self.records, self.source, self.rewards = list(records), source, tuple(rewards)
        self.options, self.describe, self.skipped = dict(options or {}), describe, list(skipped)
        if not self.records:
            raise DataError(f"{source}: no question" + (f"; {len(self.skipped)} were left out" if self.skipped else ""))
        super().__init__(self._task, len(self.records))

    @property
    def databases(self) -> list[str]:
        """Names of the databases, each once, in the order in which they first appear."""
        return list(dict.fromkeys(record.db_id for record in self.records))

    def on(self, databases: Iterable[str]) -> Questions:
        """The questions on some of the databases."""
        wanted = set(databases)
        return self._with([record for record in self.records if record.db_id in wanted])

    def spread(self, size: int | None) -> Questions:
        """At most `size` of them, evenly spread over the whole."""
        if size is None or size >= len(self.records):
            return self
        if size < 1:
            raise ConfigError(f"a size must be at least 1, got {size!r}")
        return self._with([self.records[i] for i in evenly(len(self.records), size)])

    def _with(self, records: Sequence[Record]) -> Questions:
        return Questions(
            records,
            source=self.source,
            rewards=self.rewards,
            options=self.options,
            describe=self.describe,
            skipped=self.skipped,
        )

    def split_questions(self, test_share: float = 0.2) -> tuple[Questions, Questions]:
        """Two parts, train and test, by question: databases are in both. Which is where follows from the question alone.

        Raises DataError where there is only one question.
        """
        order = sorted(range(len(self.records)), key=lambda i: _hash(self.records[i].question))
        if len(order) < 2:
            raise DataError(f"{self.source}: one question cannot be split")
        cut = min(len(order) - 1, max(1, math.ceil(len(order) * test_share)))
        test, train = (sorted(part) for part in (order[:cut], order[cut:]))
        return self._with([self.records[i] for i in train]), self._with([self.records[i] for i in test])

    def split(self, test_share: float = 0.2) -> tuple[Questions, Questions]:
        """Two parts, train and test, with no database in common: which is where follows from the databases' names alone.

        Raises DataError where there is only one database.
        """
        names = sorted(self.databases, key=_hash)
        if len(names) < 2:
            raise DataError(f"{self.source}: all questions are on {names[0]!r}, and one database cannot be split")
        cut = min(len(names) - 1, max(1, math.ceil(len(names) * test_share)))
        return self.on(names[cut:]), self.on(names[:cut])

    def _task(self, index: int) -> Task:
        record = self.records[index]
        options = dict(self.options)
        if self.describe is not None and record.database is not None:
            options["descriptions"] = self.describe(record.database)
        return make_task(
            question=record.question,
            gold_sql=record.gold_sql,
            database=record.database,
            setup_sql=record.setup_sql() if record.setup_sql is not None else None,
            extra_databases=record.extra_databases,
            extra_setup_sql=[make() for make in record.extra_setup_sql],
            rewards=self.rewards,
            hint=record.hint,
            id=record.id or f"{self.source}-{index}",
            metadata={"source": self.source, "database": record.db_id, **record.metadata},
            **options,
        )
