"""Runs untrusted queries on SQLite databases, in a process of its own: `python -I -S worker.py`.

Threat model. The query is written by a policy under training: anything at all, and over time whatever earns reward. It
may try to write, to read other files, to load code, to run for ever, or to use up the memory. The databases' contents are
trusted, the machine is ours, and SQLite and Python themselves are taken to be sound: this is no defence against a flaw
in them, and it is no operating-system sandbox.

What holds a query back, outermost first:

- the parent kills this process when an answer is overdue, and starts another (`pool.py`);
- limits of the operating system on this process: address space, files it may write (none), open files, core dumps;
- the connection is read-only and immutable, so the database's bytes cannot change, with a heap limit for SQLite's
  own allocations and temporary data in memory;
- SQLite's limits on the length of a value and of the statement, on expression depth, compound selects, program size,
  attached databases (none) and worker threads (none);
- an authorizer that allows reading tables (`json_each` and `json_tree` among them), plain functions and recursion, and
  nothing else: no ATTACH, no PRAGMA, no write of any kind, no function that touches files or code;
- a progress handler that ends a statement when its time is over, and a cap on rows.

The protocol is lines of JSON. One line in holds a list of requests `[database, sql, time_limit_s, max_rows, max_bytes]`;
each gets a line out, as soon as it is done, with `columns` and `rows`, or `error` (a kind from `pool.ERRORS`) and
`message`, and in both cases `seconds`, and `reads`: the tables and columns that SQLite resolved the statement's names
to, each with the view, or the common table expression of a view's name, that reads it. No message names a path. This
file imports the standard library alone, so that a worker starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
import time
import urllib.parse
from contextlib import closing, suppress
from typing import Any

MEMORY_BYTES = 512 << 20
"""Address space that this process may take beyond what it starts with."""
HEAP_BYTES = 128 << 20
"""SQLite's own allocations."""
CELL_BYTES = 64
"""What a value takes in Python, beside its text."""
OPEN_DATABASES = 32
"""Connections kept for the next query on the same database."""

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {
    "load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "sqlite_compileoption_get",
    "sqlite_compileoption_used", "sqlite_log", "random", "randomblob",
}  # fmt: skip
"""Functions that touch files, code or the build; and random ones, whose query has no result to compare."""


_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
"""How a rollback journal begins that has not been rolled back (sqlite.org/fileformat2.html, section 3)."""


def immutable_uri(path: str) -> str:
    """The URI that opens a database for reading, its bytes taken as they are: no lock is taken and no journal is read.

    Raises sqlite3.OperationalError where there is one to read, because without it the database is not what it should be.
    """
    name = os.path.basename(path)
    for suffix, what_to_do in (
        ("-wal", "run PRAGMA wal_checkpoint(TRUNCATE) on it"),
        ("-journal", "open it once to write"),
    ):
        try:
            with open(path + suffix, "rb") as file:
                begins = file.read(len(_JOURNAL_MAGIC))
        except OSError:
            continue
        if begins == _JOURNAL_MAGIC or (begins and suffix == "-wal"):
            raise sqlite3.OperationalError(
                f"{name}{suffix} holds changes that are not in the database file: {what_to_do}, so that they are"
            )
    return f"file:{urllib.parse.quote(path)}?mode=ro&immutable=1"


class Database:
    """A read-only connection, and what the authorizer refused last."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.connection = sqlite3.connect(immutable_uri(path), uri=True, isolation_level=None, cached_statements=0)
        self.connection.text_factory = lambda raw: raw.decode(
            "utf-8", "surrogateescape"
        )  # databases hold other encodings
        for pragma in ("temp_store=MEMORY", f"hard_heap_limit={HEAP_BYTES}", "trusted_schema=OFF"):
            self.connection.execute(f"PRAGMA {pragma}")
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
            (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, 100_000),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
        ):
            self.connection.setlimit(limit, value)
        self.views = {row[0] for row in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
        self.refused = ""
        self.reads: dict[tuple[str, str, str], None] = {}
        self.connection.set_authorizer(self._authorize)
        self.json_declared = False

    def _declare_json(self) -> None:
        """Lets SQLite declare its JSON tables: it does so at first use, in a way that looks like a write."""
        self.json_declared = True
        self.connection.set_authorizer(None)
        for function in ("json_each", "json_tree"):
            with suppress(sqlite3.Error):  # this SQLite has none
                self.connection.execute(f"SELECT 1 FROM {function}('[]')").close()
        self.connection.set_authorizer(self._authorize)

    def _authorize(self, action: int, first: Any, second: Any, database: Any, trigger: Any) -> int:
        # `trigger` names the view that reads, or the CTE; which of the two, only the query's text tells
        if action == sqlite3.SQLITE_READ:
            self.reads[first or "", second or "", trigger if trigger in self.views else ""] = None
        if action in _ALLOWED or (
            action == sqlite3.SQLITE_FUNCTION and str(second).lower() not in _FORBIDDEN_FUNCTIONS
        ):
            return sqlite3.SQLITE_OK
        self.refused = (
            f"the function {second} is not allowed" if action == sqlite3.SQLITE_FUNCTION else "only reading is allowed"
        )
        return sqlite3.SQLITE_DENY

    def run(self, sql: str, time_limit_s: float, max_rows: int, max_bytes: int) -> dict[str, Any]:
        """The reply to one request."""
        if not self.json_declared and "json_" in sql.lower():
            self._declare_json()
        self.reads = {}
        start = time.monotonic()
        reply = self._run(sql, time_limit_s, max_rows, max_bytes)
        return {**reply, "reads": list(self.reads), "seconds": time.monotonic() - start}

    def _run(self, sql: str, time_limit_s: float, max_rows: int, max_bytes: int) -> dict[str, Any]:
        connection = self.connection
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max_bytes)
        deadline = time.monotonic() + time_limit_s
        late = False

        def overdue() -> int:
            nonlocal late
            late = time.monotonic() > deadline
            return int(late)

        connection.set_progress_handler(overdue, 2_000)
        self.refused = ""
        cursor = connection.cursor()
        try:
            cursor.execute(sql)
            if cursor.description is None:
                return _error("empty", "the text holds no statement")
            columns = [column[0] for column in cursor.description]
            rows: list[Any] = []
            size = 0
            while batch := cursor.fetchmany(256):
                rows += batch
                size += sum(len(v) if isinstance(v, str | bytes) else 0 for row in batch for v in row)
                size += CELL_BYTES * len(batch) * len(columns)
                if len(rows) > max_rows or size > 16 * max_bytes:
                    return _error("too_many_rows", f"more than {max_rows} rows or {16 * max_bytes} bytes")
            return {"columns": columns, "rows": [[_encoded(v) for v in row] for row in rows], "size": size}
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError, UnicodeError) as error:
            return self._explained(sql, error, late)
        finally:
            cursor.close()
            connection.set_progress_handler(None, 0)

    def _explained(self, sql: str, error: BaseException, late: bool) -> dict[str, Any]:
        # by SQLite's codes, and by words only where they stand first: the rest of a message is the query's own
        text, code = str(error), getattr(error, "sqlite_errorname", "")
        if late or code == "SQLITE_INTERRUPT":
            return _error("timeout", "the time limit was reached")
        if self.refused:
            return _error("unsafe_statement", self.refused)
        if not code and text.startswith("You can only execute one statement"):
            return _error("multiple_statements", text)
        if code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CANTOPEN", "SQLITE_IOERR")) and self._is_lost():
            return _error("database", "the database cannot be read")
        for kind, pattern in (
            _KINDS if code == "SQLITE_ERROR" else ()
        ):  # words that SQLite begins with while it prepares
            if found := re.match(pattern, text, re.IGNORECASE):
                forbidden = kind == "no_such_function" and (found.group(1) or "").lower() in _FORBIDDEN_FUNCTIONS
                return _error("unsafe_statement" if forbidden else kind, text)  # not there, but meant
        too_big = isinstance(error, MemoryError) or code == "SQLITE_TOOBIG"
        if self._prepares(sql):
            return _error("too_big" if too_big else "runtime_error", text or "out of memory")
        if not code and "null character" in text:
            return _error("syntax", text)
        too_complex = too_big or text == "query string is too large"
        return _error("too_complex" if too_complex else "error", text or "out of memory")

    def _prepares(self, sql: str) -> bool:
        """Whether SQLite takes a statement, whatever then comes of it."""
        try:
            self.connection.execute(f"EXPLAIN QUERY PLAN {sql}").close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError):
            return False
        return True

    def _is_lost(self) -> bool:
        """Whether the database itself is broken, and no query can be blamed."""
        try:
            with closing(sqlite3.connect(immutable_uri(self.path), uri=True)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            return True
        return False


_KINDS = (
    ("too_complex", "too many|at most|parser stack|expression tree is too"),
    ("syntax", r'near "|incomplete input|unrecognized token|unterminated'),
    ("no_such_table", "no such table"),
    ("no_such_column", "no such column|ambiguous column"),
    ("no_such_function", r"no such function: (\w*)|wrong number of arguments to function (\w*)"),
)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": kind, "message": message[:500]}


def _encoded(value: Any) -> Any:
    return {"b": value.hex()} if isinstance(value, bytes) else value


def _limit_process() -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system: the others stand
        return
    start = 0
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            start = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        start = 1 << 30
    for name, value in (
        ("RLIMIT_AS", start + MEMORY_BYTES),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NOFILE", 128),
    ):
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (ValueError, OSError):
            continue


def main() -> None:
    """Answers requests until standard input ends."""
    _limit_process()
    opened: dict[str, Database] = {}
    for line in sys.stdin:
        for path, sql, time_limit_s, max_rows, max_bytes in json.loads(line):
            try:
                if path not in opened:
                    if len(opened) >= OPEN_DATABASES:
                        opened.pop(next(iter(opened))).connection.close()
                    opened[path] = Database(path)
                reply = opened[path].run(sql, time_limit_s, max_rows, max_bytes)
            except (sqlite3.Error, MemoryError, RecursionError) as error:  # run() explains a query's own
                opened.pop(path, None)
                reply = _error("database", re.sub(r"\S*/\S*", "", str(error)) or "the database cannot be read")
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
