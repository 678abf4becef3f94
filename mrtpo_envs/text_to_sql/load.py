"""Text-to-SQL data sets as users have them on disk: Spider, BIRD, BIRD mini-dev, WikiSQL, and one's own questions.

Every loader returns `Questions`: a task set that makes each task when it is asked for, knows which database each one is on
(`split` divides by database, so that no schema is in both parts), and, with `skip_bad`, which records it left out and why.
None of these sets is bundled.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, MrtpoError, unknown
from mrtpo_envs.options import checked
from mrtpo_envs.text_to_sql.database import Descriptions, quoted
from mrtpo_envs.text_to_sql.questions import Questions, Record
from mrtpo_envs.text_to_sql.tasks import existing_database
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS

QUESTION = ("question", "input", "text")
GOLD = ("query", "SQL", "sql", "gold_sql", "gold")
DATABASE = ("db_id", "database_id", "database")
"""Names that a field goes by, the first that is there counts."""


@checked()
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
        ConfigError, UnknownNameError: options that no task can have.
    """
    root = _folder(folder)
    files = _split_files(root, SPIDER_FILES, split)
    homes = _existing(root, ("test_database", "database") if split == "test" else ("database", "test_database"))
    return _questions("spider", files, homes, skip_bad, options)


@checked()
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
        ConfigError, UnknownNameError: options that no task can have.
    """
    root = _folder(folder)
    files = _split_files(root, BIRD_FILES, split)
    homes = _existing(root, (f"{split}_databases", "dev_databases", "databases", "database"))
    return _questions("bird", files[:1], homes, skip_bad, options, bird_descriptions if descriptions else None)


@checked()
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
        ConfigError, UnknownNameError: options that no task can have.
    """
    file, home = _there(path), _there(database)
    if file is None or not file.is_file():
        raise DataError(f"there is no file of questions {str(path)!r:.300}")
    if home is None:
        raise DataError(f"there is no database {str(database)!r:.300}: a SQLite file, or a folder of them")
    if home.is_file():
        try:
            existing_database(home)  # it is every record's: say so once, and leave none out for it
        except MrtpoError as error:
            raise DataError(str(error)) from error
    return _questions(file.stem, [file], [home], skip_bad, options)


@checked()
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
        ConfigError, UnknownNameError: options that no task can have.
    """
    root = _folder(folder)
    _known_split(WIKISQL_FILES, split)
    files = [root / f"{split}.jsonl", root / f"{split}.tables.jsonl"]
    for file in files:
        if not file.is_file():
            raise DataError(f"{root} has no {file.name}; WikiSQL has {split}.jsonl and {split}.tables.jsonl")
    tables: dict[str, Any] = {}
    for number, table in enumerate(_read(files[1]), 1):
        if isinstance(table, dict) and "id" in table:
            tables[str(table["id"])] = _wikisql_table(table, f"{files[1].name}, record {number}")
    records: list[Record] = []
    skipped: list[tuple[int, str]] = []
    for number, row in enumerate(_read(files[0]), 1):
        try:
            records.append(_wikisql_record(row, tables, f"wikisql-{split}-{number - 1}"))
        except DataError as error:
            _bad(skip_bad, skipped, files[0], number, str(error))
    rewards = options.pop("rewards", DEFAULT_REWARDS)
    return Questions(records, source="wikisql", rewards=rewards, options=options, skipped=skipped)


# what they share ----------------------------------------------------------------------------------------------------


def _questions(
    source: str,
    files: Sequence[Path],
    homes: Sequence[Path],
    skip_bad: bool,
    options: dict[str, Any],
    describe: Callable[[str], Descriptions] | None = None,
) -> Questions:
    records: list[Record] = []
    skipped: list[tuple[int, str]] = []
    seen: dict[str, str] = {}
    for file in files:
        for number, row in enumerate(_read(file), 1):
            try:
                record = _record(row, homes, f"{source}-{file.stem}-{number - 1}")
                place = f"{file.name}, record {number}"
                if (other := seen.setdefault(record.id, place)) != place:
                    raise DataError(f"its id {record.id!r} is that of {other} too; each needs one of its own")
                records.append(record)
            except MrtpoError as error:
                _bad(skip_bad, skipped, file, number, str(error))
    rewards = options.pop("rewards", DEFAULT_REWARDS)
    return Questions(records, source=source, rewards=rewards, options=options, describe=describe, skipped=skipped)


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


def _text(value: Any) -> str | None:
    """A field's text; None where it is no text or blank. Raises DataError for half a character, which no model takes."""
    if not isinstance(value, str) or not value.strip():
        return None
    if not value.isascii() and _SURROGATE.search(value):
        raise DataError(f"{value!r:.100} is no Unicode text: it has half of a surrogate pair")
    return value


def _record(row: Any, homes: Sequence[Path], default_id: str) -> Record:
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise DataError(f"a record is an object with fields, got {type(row).__name__}")
    if None in row:  # so csv.DictReader says it
        raise DataError("it has more cells than the header: is a text with a comma not in quotes?")

    def field_of(names: Sequence[str], what: str) -> str:
        for name in names:
            if (text := _text(row.get(name))) is not None:
                return text
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
    hint = next((text for name in ("evidence", "hint") if (text := _text(row.get(name))) is not None), "")
    named = (row.get(name) for name in ("question_id", "id"))
    identity = next((str(value) for value in named if value is not None and str(value).strip()), default_id)
    metadata = {"difficulty": str(row["difficulty"])} if row.get("difficulty") else {}
    return Record(question, gold, db_id, database, extra_databases=extra, hint=hint, id=identity, metadata=metadata)


def _database(homes: Sequence[Path], db_id: str) -> tuple[str, tuple[str, ...]]:
    """Paths of a database, and of a test suite's others beside it."""
    if not re.fullmatch(r"[^/\\\x00]+", db_id) or db_id in (".", ".."):
        raise DataError(f"{db_id!r:.100} is no database's name")
    return _found(tuple(homes), db_id)


@functools.lru_cache(maxsize=4096)
def _found(homes: tuple[Path, ...], db_id: str) -> tuple[str, tuple[str, ...]]:
    for home in homes:
        for ending in (".sqlite", ".db", ".sqlite3"):
            nested, flat = _there(home / db_id / f"{db_id}{ending}"), _there(home / f"{db_id}{ending}")
            if nested is not None and nested.is_file():
                others = sorted(p for p in nested.parent.glob(f"*{ending}") if p != nested)
                return existing_database(nested), tuple(map(existing_database, others))
            if flat is not None and flat.is_file():
                return existing_database(flat), ()
    where, name = " or ".join(map(str, homes)), db_id if len(db_id) < 100 else f"{db_id[:100]}..."
    raise DataError(f"there is no {name}/{name}.sqlite (or {name}.sqlite) in {where}")


def _there(path: str | Path) -> Path | None:
    """The path, its ~ expanded; None where nothing is there, or nothing can be: too long a name, nobody's home, a NUL."""
    try:
        expanded = Path(path).expanduser()
        return expanded if expanded.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _folder(folder: str | Path) -> Path:
    root = _there(folder)
    if root is None or not root.is_dir():
        raise DataError(f"there is no folder {str(folder)!r:.300}")
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
    ending = file.suffix.lower()
    try:
        if ending == ".parquet":
            yield from _parquet(file)
            return
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    if ending == ".csv":
        lines = csv.DictReader(io.StringIO(text))
        try:
            yield from lines
        except csv.Error as error:
            raise DataError(f"{file}, line {lines.line_num}: not CSV: {error}") from error
        return
    if ending == ".jsonl":
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
        other = "" if ending == ".json" else ", and its ending is none of .json, .jsonl, .csv and .parquet"
        raise DataError(f"{file} is not JSON{other}: {error}") from error
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
        try:
            raw = file.read_bytes()
        except OSError:  # a folder of that name, too
            continue
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


def _clean(value: Any) -> str:
    """A cell's text without what SQLite does not take: NUL, and half a character."""
    return str(value).replace("\x00", "").encode("utf-8", "replace").decode()


def _headers(header: Sequence[str]) -> list[str]:
    """Column names, made different where a table has one twice."""
    names: list[str] = []
    for i, name in enumerate(header):
        clean = " ".join(_clean(name).split()) or f"column {i + 1}"
        while clean.lower() in {n.lower() for n in names}:
            clean += " 2"
        names.append(clean)
    return names


def _number(value: Any) -> float | int | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    match = _NUMBER.search(str(value))
    number = math.inf if match is None else float(match.group().replace(",", ""))
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def _literal(value: Any, kind: str) -> str:
    number = _number(value) if kind == "real" else None
    if value is None:
        return "NULL"
    return str(number) if number is not None else "'" + _clean(value).replace("'", "''") + "'"


def _wikisql_table(table: dict[str, Any], place: str) -> dict[str, Any] | str:
    """A table that a database can be made of; or what is wrong with it, for the records that are on it."""
    header, types, rows = table.get("header"), table.get("types"), table.get("rows")
    if not isinstance(header, list) or not isinstance(types, list) or not 0 < len(header) == len(types):
        return f"{place}: header and types must be lists of one length, got {header!r:.100} and {types!r:.100}"
    if not isinstance(rows, list):
        return f"{place}: rows must be a list of rows, got {rows!r:.100}"
    for i, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != len(header):
            return f"{place}: row {i} must be a list of {len(header)} values, as the header is, got {row!r:.100}"
    return table


def _wikisql_record(row: Any, tables: Mapping[str, Any], identity: str) -> Record:
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise DataError(f"a record is an object with fields, got {type(row).__name__}")
    if (question := _text(row.get("question"))) is None:
        raise DataError(f"question must be text, got {row.get('question')!r:.100}")
    name = str(row.get("table_id"))
    if (table := tables.get(name)) is None:
        raise DataError(f"there is no table {name!r:.100}")
    if isinstance(table, str):
        raise DataError(table)
    columns = _headers(table["header"])
    query = _wikisql_query(row.get("sql"), columns, table["types"])
    return Record(question, query, name, setup_sql=functools.partial(_wikisql_setup, table), id=identity)


def _wikisql_query(sql: Any, columns: Sequence[str], types: Sequence[str]) -> str:
    if not isinstance(sql, dict) or not isinstance(sql.get("conds"), list):
        raise DataError(f"sql must be an object with sel, agg and a list of conds, got {sql!r:.200}")

    def at(values: Sequence[str], index: Any, what: str) -> str:
        if type(index) is not int or not 0 <= index < len(values):  # Python takes -1 for the last, and True for 1
            raise DataError(f"{what} must be a number from 0 to {len(values) - 1}, got {index!r:.100}")
        return values[index]

    column = quoted(at(columns, sql.get("sel"), "sel"))
    aggregate = at(_AGGREGATES, sql.get("agg"), "agg")
    conditions = []
    for condition in sql["conds"]:
        if not isinstance(condition, list) or len(condition) != 3 or not isinstance(condition[2], (str, int, float)):
            raise DataError(f"a condition must be [column, operator, value], got {condition!r:.100}")
        name, operator = at(columns, condition[0], "a condition's column"), at(_OPERATORS, condition[1], "an operator")
        conditions.append(f"{quoted(name)} {operator} {_literal(condition[2], types[condition[0]])}")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {f'{aggregate}({column})' if aggregate else column} FROM data{where}"


def _wikisql_setup(table: dict[str, Any]) -> str:
    columns = _headers(table["header"])
    kinds = ["REAL" if kind == "real" else "TEXT COLLATE NOCASE" for kind in table["types"]]
    names = ", ".join(f"{quoted(c)} {k}" for c, k in zip(columns, kinds, strict=True))
    rows = ", ".join(
        "(" + ", ".join(_literal(value, kind) for value, kind in zip(row, table["types"], strict=True)) + ")"
        for row in table["rows"]
    )
    return f"CREATE TABLE data ({names});" + (f"INSERT INTO data VALUES {rows};" if rows else "")
