"""Text-to-SQL data sets as users have them on disk: Spider, BIRD, BIRD mini-dev, WikiSQL, and one's own questions.

Every loader returns `Questions`: a task set that makes each task when it is asked for, knows which database each one is on
(`split` divides by database, so that no schema is in both parts), and, with `skip_bad`, which records it left out and why.
None of these sets is bundled.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import ConfigError, DataError, MrtpoError, unknown
from mrtpo_envs.task import Task, TaskSet
from mrtpo_envs.text_to_sql.database import Descriptions, schema_of
from mrtpo_envs.text_to_sql.tasks import make_task
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS

QUESTION = ("question", "input", "text")
GOLD = ("query", "SQL", "sql", "gold_sql", "gold")
DATABASE = ("db_id", "database_id", "database")
"""Names that a field goes by, the first that is there counts."""


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


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


class Questions(TaskSet):
    """Records, each a task when it is asked for.

    Args:
        records: at least one.
        source: the data set's name.
        rewards: names from `REWARDS`.
        options: of `make_task`, for every task.
        skipped: number and reason of each record that was left out.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        source: str,
        rewards: Sequence[str] = DEFAULT_REWARDS,
        options: dict[str, Any] | None = None,
        skipped: Sequence[tuple[int, str]] = (),
    ) -> None:
        self.records, self.source, self.rewards = list(records), source, tuple(rewards)
        self.options, self.skipped = dict(options or {}), list(skipped)
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
        kept = [self.records[i * len(self.records) // size] for i in range(size)]
        return self._with(kept)

    def _with(self, records: Sequence[Record]) -> Questions:
        return Questions(records, source=self.source, rewards=self.rewards, options=self.options, skipped=self.skipped)

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
            **self._options(record),
        )

    def _options(self, record: Record) -> dict[str, Any]:
        options = dict(self.options)
        if options.pop("described", False) and record.database is not None:
            options["descriptions"] = bird_descriptions(record.database)
        return options


def load_spider(folder: str | Path, split: str = "dev", *, skip_bad: bool = False, **options: Any) -> Questions:
    """Spider: `train_spider.json` (and `train_others.json`), `dev.json` or `test.json`, and `database/<db_id>/`.

    More SQLite files in a database's folder are a test suite's (the reward "suite" wants them all right).

    Args:
        folder: the unpacked data set.
        split: "train", "dev" or "test".
        skip_bad: leave bad records out, and say which in `skipped`, instead of raising.
        options: `rewards`, and options of `make_task`.

    Raises:
        DataError: what is missing or wrong, and where.
    """
    root = _folder(folder)
    files = _split_files(root, SPIDER_FILES, split)
    homes = _existing(root, ("test_database", "database") if split == "test" else ("database", "test_database"))
    return _questions("spider", files, homes, skip_bad, options)


def load_bird(
    folder: str | Path, split: str = "dev", *, descriptions: bool = True, skip_bad: bool = False, **options: Any
) -> Questions:
    """BIRD: `<split>.json` (mini-dev: `mini_dev_sqlite.json`) and `<split>_databases/<db_id>/`.

    A record's evidence is shown as a hint. The columns' descriptions (`database_description/*.csv`) are comments in the
    schema, as far as its token budget goes.

    Args:
        folder: the unpacked data set.
        split: "train", "dev" or "mini_dev".
        descriptions: show the columns' descriptions.
        skip_bad: leave bad records out, and say which in `skipped`, instead of raising.
        options: `rewards`, and options of `make_task`.

    Raises:
        DataError: what is missing or wrong, and where.
    """
    root = _folder(folder)
    files = _split_files(root, BIRD_FILES, split)
    homes = _existing(root, (f"{split}_databases", "dev_databases", "databases", "database"))
    return _questions("bird", files[:1], homes, skip_bad, {**options, "described": descriptions})


def load_questions(path: str | Path, *, database: str | Path, skip_bad: bool = False, **options: Any) -> Questions:
    """Your own questions: a CSV, JSON, JSON-lines or Parquet file, and the database that they are on.

    A record has `question`, `query` (or `sql`, `gold_sql`), and may have `hint` (or `evidence`), `id` and, where `database`
    is a folder of databases, `db_id`.

    Args:
        path: the file of questions.
        database: a SQLite file; or a folder with `<db_id>.sqlite` or `<db_id>/<db_id>.sqlite`.
        skip_bad: leave bad records out, and say which in `skipped`, instead of raising.
        options: `rewards`, and options of `make_task`.

    Raises:
        DataError: what is missing or wrong, and where.
    """
    file, home = Path(path).expanduser(), Path(database).expanduser()
    if not file.is_file():
        raise DataError(f"there is no file of questions {str(path)!r}")
    if not home.exists():
        raise DataError(f"there is no database {str(database)!r}: a SQLite file, or a folder of them")
    return _questions(file.stem, [file], [home], skip_bad, options)


def load_wikisql(folder: str | Path, split: str = "dev", *, skip_bad: bool = False, **options: Any) -> Questions:
    """WikiSQL: `<split>.jsonl` and `<split>.tables.jsonl`; each table becomes a database of its own, with its real headers.

    Text compares without regard to case, as in the official executor. The set's own `.db` file is not needed.

    Args:
        folder: the unpacked data set.
        split: "train", "dev" or "test".
        skip_bad: leave bad records out, and say which in `skipped`, instead of raising.
        options: `rewards`, and options of `make_task`.

    Raises:
        DataError: what is missing or wrong, and where.
    """
    root = _folder(folder)
    _known_split(WIKISQL_FILES, split)
    files = [root / f"{split}.jsonl", root / f"{split}.tables.jsonl"]
    for file in files:
        if not file.is_file():
            raise DataError(f"{root} has no {file.name}; WikiSQL has {split}.jsonl and {split}.tables.jsonl")
    tables = {str(table["id"]): table for table in _read(files[1]) if isinstance(table, dict) and "id" in table}
    records: list[Record] = []
    skipped: list[tuple[int, str]] = []
    for number, row in enumerate(_read(files[0]), 1):
        try:
            if isinstance(row, DataError):
                raise ValueError(str(row))
            table = tables[str(row["table_id"])]
            columns = _headers(table["header"])
            record = Record(
                question=str(row["question"]),
                gold_sql=_wikisql_query(row["sql"], columns, table["types"]),
                db_id=str(row["table_id"]),
                setup_sql=functools.partial(_wikisql_setup, table),
            )
            records.append(record)
        except KeyError as error:
            missing = "table" if error.args == (str(row.get("table_id")),) else "field"
            _bad(skip_bad, skipped, files[0], number, f"there is no {missing} {error}")
        except (IndexError, TypeError, ValueError, AttributeError) as error:
            _bad(skip_bad, skipped, files[0], number, f"not a record of WikiSQL: {error}")
    rewards = options.pop("rewards", DEFAULT_REWARDS)
    return Questions(records, source="wikisql", rewards=rewards, options=options, skipped=skipped)


# what they share ----------------------------------------------------------------------------------------------------


def _questions(
    source: str, files: Sequence[Path], homes: Sequence[Path], skip_bad: bool, options: dict[str, Any]
) -> Questions:
    records: list[Record] = []
    skipped: list[tuple[int, str]] = []
    for file in files:
        for number, row in enumerate(_read(file), 1):
            try:
                records.append(_record(row, homes, f"{source}-{file.stem}-{number - 1}"))
            except MrtpoError as error:
                _bad(skip_bad, skipped, file, number, str(error))
    rewards = options.pop("rewards", DEFAULT_REWARDS)
    return Questions(records, source=source, rewards=rewards, options=options, skipped=skipped)


Splits = Mapping[str, tuple[str, ...]]

SPIDER_FILES: Splits = {"train": ("train_spider", "train_others", "train"), "dev": ("dev",), "test": ("test",)}
BIRD_FILES: Splits = {"train": ("train",), "dev": ("dev",), "mini_dev": ("mini_dev_sqlite", "mini_dev")}
WIKISQL_FILES: Splits = {"train": ("train",), "dev": ("dev",), "test": ("test",)}
"""Names of each split's files, without their endings."""


def _known_split(splits: Splits, split: str) -> None:
    if split not in splits:
        raise unknown("split", str(split), splits)


def _split_files(root: Path, splits: Splits, split: str) -> list[Path]:
    _known_split(splits, split)
    files = [f for name in splits[split] if (f := _file(root, name)) is not None]
    if not files:
        names = ", ".join(f"{name}.json" for name in splits[split])
        raise DataError(f"{root} has none of {names} (or .jsonl, .csv, .parquet)")
    return files


def splits_in(folder: str | Path, splits: Splits) -> list[str]:
    """Which splits of a data set a folder has."""
    root = _folder(folder)
    return [split for split, names in splits.items() if any(_file(root, name) for name in names)]


def _bad(skip_bad: bool, skipped: list[tuple[int, str]], file: Path, number: int, why: str) -> None:
    if not skip_bad:
        raise DataError(f"{file}, record {number}: {why}")
    skipped.append((number, why))


_SURROGATE = re.compile("[\ud800-\udfff]")


def _record(row: Any, homes: Sequence[Path], default_id: str) -> Record:
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise DataError(f"a record is an object with fields, got {type(row).__name__}")

    def field_of(names: Sequence[str], what: str) -> str:
        for name in names:
            if isinstance(row.get(name), str) and row[name].strip():
                if not row[name].isascii() and _SURROGATE.search(row[name]):
                    raise DataError(f"the field {name} is no Unicode text: it has half of a surrogate pair")
                return str(row[name])
        raise DataError(
            f"no {what}: none of the fields {', '.join(names)} holds text; there are {', '.join(map(str, row))}"
        )

    question, gold = field_of(QUESTION, "question"), field_of(GOLD, "gold query")
    extra: tuple[str, ...] = ()
    if len(homes) == 1 and homes[0].is_file():
        database, db_id = str(homes[0]), homes[0].stem
    else:
        db_id = field_of(DATABASE, "database")
        database, extra = _database(homes, db_id)
    hint = next((str(row[name]) for name in ("evidence", "hint") if row.get(name)), "")
    identity = next((str(row[name]) for name in ("question_id", "id") if row.get(name) is not None), default_id)
    metadata = {"difficulty": str(row["difficulty"])} if row.get("difficulty") else {}
    return Record(question, gold, db_id, database, extra_databases=extra, hint=hint, id=identity, metadata=metadata)


@functools.lru_cache(maxsize=4096)
def _found(homes: tuple[Path, ...], db_id: str) -> tuple[str, tuple[str, ...]] | None:
    for home in homes:
        for ending in (".sqlite", ".db", ".sqlite3"):
            nested, flat = home / db_id / f"{db_id}{ending}", home / f"{db_id}{ending}"
            if nested.is_file():
                others = sorted(p for p in nested.parent.glob(f"*{ending}") if p != nested)
                return str(nested), tuple(map(str, others))
            if flat.is_file():
                return str(flat), ()
    return None


def _database(homes: Sequence[Path], db_id: str) -> tuple[str, tuple[str, ...]]:
    if not re.fullmatch(r"[^/\\\x00]+", db_id) or db_id in (".", ".."):
        raise DataError(f"{db_id!r} is no database's name")
    found = _found(tuple(homes), db_id)
    if found is None:
        where = " or ".join(str(home) for home in homes)
        raise DataError(f"there is no {db_id}/{db_id}.sqlite (or {db_id}.sqlite) in {where}")
    schema_of(found[0])  # or say now that it is no database
    return found


def _folder(folder: str | Path) -> Path:
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError(f"there is no folder {str(folder)!r}")
    return root


def _file(root: Path, name: str) -> Path | None:
    return next((f for end in (".json", ".jsonl", ".csv", ".parquet") if (f := root / f"{name}{end}").is_file()), None)


def _existing(root: Path, names: Sequence[str]) -> list[Path]:
    homes = [root / name for name in dict.fromkeys(names) if (root / name).is_dir()]
    if not homes:
        raise DataError(f"{root} has no folder of databases: none of {', '.join(dict.fromkeys(names))}")
    return homes


def _read(file: Path) -> Iterator[Any]:
    """The records of a file, by its ending; in place of a line of JSON lines that is no JSON, what is wrong with it."""
    try:
        if file.suffix == ".parquet":
            yield from _parquet(file)
            return
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    if file.suffix == ".csv":
        try:
            yield from csv.DictReader(io.StringIO(text))
        except csv.Error as error:
            raise DataError(f"{file} is not CSV: {error}") from error
        return
    if file.suffix == ".jsonl":
        for line in text.split("\n"):
            if line.strip():
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    row = DataError(f"not JSON: {error}")
                yield row
        return
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not {file.suffix[1:].upper()}: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{file} should hold a list of records, got {type(rows).__name__}")
    yield from rows


def _parquet(file: Path) -> list[Any]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(f"reading {file.name} needs pyarrow: pip install pyarrow") from error
    try:
        rows: list[Any] = pyarrow.parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    return rows


# BIRD ---------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def bird_descriptions(database: str) -> Descriptions:
    """What BIRD says of the columns of a database, from the folder `database_description` beside it; files that cannot be
    read are passed over (some of BIRD's are in other encodings, or no CSV)."""
    found: list[tuple[str, str, str]] = []
    for file in sorted(Path(database).parent.glob("database_description/*.csv")):
        raw = file.read_bytes()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = raw.decode("cp1252", "replace")
        try:
            rows = list(csv.DictReader(io.StringIO(text)))
        except csv.Error:
            continue
        for row in rows:
            clean = {str(k).strip(): " ".join(str(v).split()) for k, v in row.items() if k and isinstance(v, str)}
            column = clean.get("original_column_name", "")
            said = [clean.get("column_description") or clean.get("column_name", ""), clean.get("value_description", "")]
            meaning = "; ".join(part for part in said if part and part.lower() != column.lower())
            if column and meaning:
                found.append((file.stem, column, meaning[:200]))
    return tuple(found)


# WikiSQL ------------------------------------------------------------------------------------------------------------

_AGGREGATES = ("", "MAX", "MIN", "COUNT", "SUM", "AVG")
_OPERATORS = ("=", ">", "<")
_NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*|[-+]?\.\d+")


def _headers(header: Sequence[str]) -> list[str]:
    """Column names, made different where a table has one twice."""
    names: list[str] = []
    for i, name in enumerate(header):
        clean = " ".join(str(name).split()) or f"column {i + 1}"
        while clean.lower() in {n.lower() for n in names}:
            clean += " 2"
        names.append(clean)
    return names


def _number(value: Any) -> float | int | None:
    if isinstance(value, int | float):
        return value
    match = _NUMBER.search(str(value))
    if match is None:
        return None
    number = float(match.group().replace(",", ""))
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _literal(value: Any, kind: str) -> str:
    number = _number(value) if kind == "real" else None
    return str(number) if number is not None else "'" + str(value).replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _wikisql_query(sql: dict[str, Any], columns: Sequence[str], types: Sequence[str]) -> str:
    column = _identifier(columns[sql["sel"]])
    aggregate = _AGGREGATES[sql["agg"]]
    conditions = [
        f"{_identifier(columns[c])} {_OPERATORS[o]} {_literal(value, types[c])}" for c, o, value in sql["conds"]
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {f'{aggregate}({column})' if aggregate else column} FROM data{where}"


def _wikisql_setup(table: dict[str, Any]) -> str:
    columns = _headers(table["header"])
    kinds = ["REAL" if kind == "real" else "TEXT COLLATE NOCASE" for kind in table["types"]]
    names = ", ".join(f"{_identifier(c)} {k}" for c, k in zip(columns, kinds, strict=True))
    rows = ", ".join(
        "(" + ", ".join(_literal(value, kind) for value, kind in zip(row, table["types"], strict=True)) + ")"
        for row in table["rows"]
    )
    return f"CREATE TABLE data ({names});" + (f"INSERT INTO data VALUES {rows};" if rows else "")
