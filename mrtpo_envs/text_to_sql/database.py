"""What a database holds, read by us: its tables, columns, and the text that a prompt shows of them."""

from __future__ import annotations

import functools
import re
import sqlite3
import urllib.parse
from pathlib import Path

from mrtpo_envs.errors import TaskError
from mrtpo_envs.text_to_sql.analysis import Schema


@functools.lru_cache(maxsize=1024)
def schema_of(database: str) -> Schema:
    """Tables and columns of a database file. Raises TaskError where it is none."""
    with _Reading(database) as connection:
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
    with _Reading(database) as connection:
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


class _Reading:
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
