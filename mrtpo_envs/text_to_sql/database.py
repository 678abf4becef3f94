"""What a database holds, read by us: its tables, columns, and the text that a prompt shows of them."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import TaskError
from mrtpo_envs.text_to_sql.analysis import Schema
from mrtpo_envs.text_to_sql.worker import immutable_uri


@functools.lru_cache(maxsize=1024)
def schema_of(database: str) -> Schema:
    """Tables and columns of a database file. Raises TaskError where it is none, or not all of it is in the file (a
    write-ahead log, or a journal to roll back)."""
    with _Reading(database) as connection:
        tables = [row[0] for row in connection.execute(_TABLES)]
        return tuple((name, tuple(row[1] for row in _columns_of(connection, name))) for name in tables)


def _columns_of(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    """The rows of `PRAGMA table_info`, generated columns included, which only `table_xinfo` has."""
    rows = connection.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
    return [row[:6] for row in rows if row[6] != 1]  # 1: hidden, of a virtual table


@functools.lru_cache(maxsize=1024)
def foreign_keys_of(database: str) -> frozenset[tuple[str, str]]:
    """Pairs of `table.column`, in lower case, that a foreign key links. Raises TaskError where it is no database."""
    found: set[tuple[str, str]] = set()
    with _Reading(database) as connection:
        for name, _ in connection.execute(_TABLES).fetchall():
            for row in connection.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall():
                target = row[4] or _primary(connection, row[2])
                if target:
                    found.add((f"{name}.{row[3]}".lower(), f"{row[2]}.{target}".lower()))
    return frozenset(found)


def _primary(connection: sqlite3.Connection, table: str) -> str | None:
    """The column that a foreign key without one means."""
    columns = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    return next((row[1] for row in columns if row[5] == 1), None)


Descriptions = tuple[tuple[str, str, str], ...]
"""(table, column, what it means), as some data sets document their columns."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a language model's tokenizer makes of a schema: one for every 5 letters of a word, and one for
    every other sign. Within a fifth of SmolLM2's count on CREATE TABLE statements."""
    return sum(1 if len(piece) < 6 else -(-len(piece) // 5) for piece in re.findall(r"[A-Za-z0-9]+|[^\w\s]|_", text))


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    definition: str
    key: bool


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    sql: str
    """The statement that made it, on one line."""
    columns: tuple[_Column, ...]
    foreign: tuple[str, ...]

    def text(self, kept: Collection[str] | None = None) -> str:
        """The statement, or one with `kept` columns alone."""
        if kept is None or len(kept) == len(self.columns):
            return self.sql
        parts = [c.definition for c in self.columns if c.name in kept]
        keys = [f for f in self.foreign if any(_names(f, name) for name in kept)]
        return f"CREATE TABLE {sql_name(self.name)} ({', '.join(parts + keys)});"


@functools.lru_cache(maxsize=4096)
def schema_text(
    database: str,
    gold_sql: str,
    sample_values: int = 0,
    tokens: int = 2000,
    count_tokens: Callable[[str], int] = estimate_tokens,
    descriptions: Descriptions = (),
) -> str:
    """The schema as CREATE TABLE statements, with values and descriptions of columns where wanted.

    A prompt that does not fit the model teaches nothing, so a schema of more than `tokens` is cut, as a retriever in front
    of a real system would: values and descriptions go first, then tables that the gold query does not name, then columns
    that it does not name and that are no keys. What the gold query needs always stays, even over the budget.
    """
    with _Reading(database) as connection:
        tables = [_table(connection, *row) for row in connection.execute(_TABLES).fetchall()]
        notes = {t.name: _notes(connection, t, sample_values, descriptions) for t in tables}
    full = [t.text() + notes[t.name] for t in tables]
    if count_tokens("\n".join(full)) <= tokens:
        return "\n".join(full)
    needed = [t for t in tables if _names(gold_sql, t.name)]
    texts = {t.name: t.text() for t in needed}
    left = tokens - sum(count_tokens(text) for text in texts.values())
    for table in sorted(needed, key=lambda t: -len(t.text())):
        if left < 0:  # the tables that it needs are too large already
            texts[table.name], left = _narrowed(table, gold_sql, left, count_tokens)
    for table in needed:
        cost = count_tokens(notes[table.name])
        if cost <= left:
            texts[table.name] += notes[table.name]
            left -= cost
    for table in tables:
        if table.name not in texts and (cost := count_tokens(table.text())) <= left:
            texts[table.name] = table.text()
            left -= cost
    return "\n".join(texts[t.name] for t in tables if t.name in texts)


def _narrowed(table: _Table, gold_sql: str, left: int, count_tokens: Callable[[str], int]) -> tuple[str, int]:
    """The table with as few columns as make up for what is over the budget, and what is left of it then."""
    left += count_tokens(table.text())
    kept = {c.name for c in table.columns if c.key or _names(gold_sql, c.name)}
    for column in table.columns:
        if column.name not in kept and count_tokens(table.text({*kept, column.name})) <= left:
            kept.add(column.name)
    text = table.text(kept or {table.columns[0].name})
    return text, left - count_tokens(text)


_TABLES = (
    "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
)


def _table(connection: sqlite3.Connection, name: str, sql: str) -> _Table:
    foreign = connection.execute(f"PRAGMA foreign_key_list({quoted(name)})").fetchall()
    keys = {row[3].lower() for row in foreign}
    columns = tuple(
        _Column(
            column,
            f"{sql_name(column)} {kind}".strip() + (" PRIMARY KEY" if primary else ""),
            bool(primary) or column.lower() in keys,
        )
        for _, column, kind, _, _, primary in _columns_of(connection, name)
    )
    references = tuple(
        f"FOREIGN KEY ({sql_name(row[3])}) REFERENCES {sql_name(row[2])}" + (f"({sql_name(row[4])})" if row[4] else "")
        for row in foreign
    )
    return _Table(name, re.sub(r"\s+", " ", str(sql)).strip() + ";", columns, references)


def _notes(connection: sqlite3.Connection, table: _Table, sample_values: int, descriptions: Descriptions) -> str:
    """A comment line for each column that there is something to say of."""
    meaning = {column.lower(): text for t, column, text in descriptions if t.lower() == table.name.lower()}
    lines = []
    for column in table.columns:
        said = meaning.get(column.name.lower(), "")
        values = ""
        if sample_values:
            c, t = quoted(column.name), quoted(table.name)
            rows = connection.execute(f"SELECT DISTINCT {c} FROM {t} WHERE {c} IS NOT NULL LIMIT {sample_values}")
            values = ", ".join(str(value)[:30] for (value,) in rows)
        if said or values:
            lines.append(f"\n-- {column.name}: {'; '.join(part for part in (said, values) if part)}")
    return "".join(lines)


def _names(sql: str, name: str) -> bool:
    """Whether a name stands in a query, whatever its case."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None


class _Reading:
    """A trusted read-only connection that closes."""

    def __init__(self, database: str) -> None:
        self.database = database

    def __enter__(self) -> sqlite3.Connection:
        try:
            uri = immutable_uri(self.database)
        except sqlite3.Error as error:
            raise TaskError(str(error)) from error
        try:
            self.connection = sqlite3.connect(uri, uri=True)
            self.connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise TaskError(f"{Path(self.database).name} is no SQLite database: {error}") from error
        return self.connection

    def __exit__(self, *exception: object) -> None:
        self.connection.close()


def quoted(name: str) -> str:
    """A name as SQL takes any name."""
    return '"' + name.replace('"', '""') + '"'


_RESERVED = frozenset(
    "order group table index transaction references match to from end select where by having limit join on as in is "
    "not null and or union values case when then else default check primary "
    "foreign key unique create drop set update delete".split()
)


def sql_name(name: str) -> str:
    """A name as it is where SQL takes it so, else quoted."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in _RESERVED else quoted(name)
