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
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, MrtpoError, unknown
from mrtpo_envs.text_to_sql.database import Descriptions, quoted, schema_of
from mrtpo_envs.text_to_sql.questions import Questions, Record
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS

QUESTION = ("question", "input", "text")
GOLD = ("query", "SQL", "sql", "gold_sql", "gold")
DATABASE = ("db_id", "database_id", "database")
"""Names that a field goes by, the first that is there counts."""


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
    return _questions("bird", files[:1], homes, skip_bad, options, bird_descriptions if descriptions else None)


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
    source: str,
    files: Sequence[Path],
    homes: Sequence[Path],
    skip_bad: bool,
    options: dict[str, Any],
    describe: Callable[[str], Descriptions] | None = None,
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


def _wikisql_query(sql: dict[str, Any], columns: Sequence[str], types: Sequence[str]) -> str:
    column = quoted(columns[sql["sel"]])
    aggregate = _AGGREGATES[sql["agg"]]
    conditions = [f"{quoted(columns[c])} {_OPERATORS[o]} {_literal(value, types[c])}" for c, o, value in sql["conds"]]
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
