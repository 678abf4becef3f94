"""Text-to-SQL tasks from a question, a gold query and a database."""

from __future__ import annotations

import functools
import re
import sqlite3
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import TaskError, unknown
from mrtpo_envs.task import Prompt, Segment, Task
from mrtpo_envs.text_to_sql.analysis import Schema
from mrtpo_envs.text_to_sql.answer import STATEMENT
from mrtpo_envs.text_to_sql.pool import Limits, database_of
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS, REWARDS


def make_task(
    *,
    question: str,
    gold_sql: str,
    setup_sql: str | None = None,
    database: str | Path | None = None,
    extra_setup_sql: Sequence[str] = (),
    rewards: Sequence[str] = DEFAULT_REWARDS,
    hint: str = "",
    sample_values: int = 0,
    schema_characters: int = 6000,
    limits: Limits | None = None,
    id: str = "",
    metadata: dict[str, Any] | None = None,
) -> Task:
    """A task: write the query that answers a question on a SQLite database.

    Args:
        question: the user's words.
        gold_sql: a query that answers it.
        setup_sql: SQL that makes the database, trusted; or
        database: path of a SQLite file.
        extra_setup_sql: more databases that the query must be right on, for the reward "suite".
        rewards: names from `REWARDS`, in order.
        hint: knowledge that the question needs (BIRD's evidence), shown in the prompt.
        sample_values: how many values of each column the prompt shows.
        schema_characters: longest schema text; tables that the gold query does not use are left out of a longer one.
        limits: what a query may use.

    Raises:
        TaskError: no database or two, a file that is none, SQL that SQLite does not take, no reward or one that is not
            known. A gold query that fails is no error here: it gives no verdict.
    """
    if (setup_sql is None) == (database is None):
        raise TaskError("a task needs setup_sql or database, one of the two")
    if not question.strip() or not gold_sql.strip():
        raise TaskError(f"question and gold_sql must not be blank, got {question!r} and {gold_sql!r}")
    if not rewards or isinstance(rewards, str):
        raise TaskError(f"rewards must be a list of one or more of {', '.join(REWARDS)}; got {rewards!r}")
    for name in rewards:
        if name not in REWARDS:
            raise unknown("reward", name, REWARDS)
    first = database_of(setup_sql) if setup_sql is not None else _existing(str(database))
    paths = (first, *(database_of(sql) for sql in extra_setup_sql))
    schema = schema_of(first)
    verifiers = tuple(REWARDS[name]() for name in rewards)
    text = schema_text(first, gold_sql, sample_values, schema_characters)
    parts = [f"{text}\n\n{hint + chr(10) if hint else ''}Question: {question}\n"]
    stated = Segment(STATEMENT, "format") if "format" in rewards else Segment(STATEMENT)
    return Task(
        Prompt.user(*parts, stated),
        verifiers,
        id=id,
        privileged={"gold_sql": gold_sql, "databases": paths, "schema": schema, "limits": limits},  # type: ignore[arg-type]
        metadata={"source": "text_to_sql", **(metadata or {})},
    )


def solution(task: Task) -> str:
    """A response that gets full reward: for supervised warm-up, and for tests."""
    return f"```sql\n{task.privileged['gold_sql']}\n```"


@functools.lru_cache(maxsize=1024)
def schema_of(database: str) -> Schema:
    """Tables and columns of a database file. Raises TaskError where it is none."""
    with _reading(database) as connection:
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
            )
        ]
        return tuple(
            (name, tuple(row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")))
            for name in tables
        )


@functools.lru_cache(maxsize=4096)
def schema_text(database: str, gold_sql: str, sample_values: int, characters: int) -> str:
    """The schema as CREATE TABLE statements, with values by option.

    A schema longer than `characters` keeps the tables that the gold query names and then as many others as fit: a real
    system would retrieve them, and a prompt that does not fit the model teaches nothing.
    """
    with _reading(database) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        ).fetchall()
        texts = []
        for name, sql in rows:
            text = re.sub(r"\s+", " ", str(sql)).strip() + ";"
            if sample_values:
                text += _values(connection, name, sample_values)
            texts.append((name, text))
    if sum(len(text) for _, text in texts) > characters:
        named = {word.lower() for word in re.findall(r"\w+", gold_sql)}
        left = characters
        kept = set()
        for name, text in sorted(texts, key=lambda pair: pair[0].lower() not in named):
            if len(text) <= left or name.lower() in named:
                kept.add(name)
                left -= len(text)
        texts = [pair for pair in texts if pair[0] in kept]
    return "\n".join(text for _, text in texts)


def _values(connection: sqlite3.Connection, table: str, n: int) -> str:
    lines = []
    for row in connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall():
        column = row[1]
        query = f"SELECT DISTINCT {_quoted(column)} FROM {_quoted(table)} WHERE {_quoted(column)} IS NOT NULL LIMIT {n}"
        values = ", ".join(str(v[0])[:30] for v in connection.execute(query))
        lines.append(f"\n-- {column}: {values}")
    return "".join(lines)


class _reading:
    """A trusted read-only connection that closes."""

    def __init__(self, database: str) -> None:
        self.database = database

    def __enter__(self) -> sqlite3.Connection:
        uri = f"file:{urllib.parse.quote(self.database)}?mode=ro&immutable=1"
        try:
            self.connection = sqlite3.connect(uri, uri=True)
            self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise TaskError(f"{Path(self.database).name} is no SQLite database: {error}") from error
        return self.connection

    def __exit__(self, *exception: object) -> None:
        self.connection.close()


def _existing(database: str) -> str:
    path = Path(database).expanduser().resolve()
    if not path.is_file():
        raise TaskError(f"there is no database file {database!r}")
    return str(path)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
