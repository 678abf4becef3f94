"""A pool of worker processes that run untrusted queries, and the results they gave.

`execute` takes one query, `execute_many` a batch that runs over all workers at once. A worker that is overdue is killed
and replaced; the others, and the batch, go on. Workers start when first needed, end with this process (their input
closes), and know nothing of it: no fork of a process that may hold a model, no pickling of anybody's code.

Results are kept: the same query on the same database is run once. What is wrong with a query is a result too.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import selectors
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import TaskError

ERRORS = (
    "timeout", "too_many_rows", "too_big", "too_complex", "unsafe_statement", "multiple_statements", "syntax",
    "no_such_table", "no_such_column", "no_such_function", "empty", "killed", "error",
)  # fmt: skip
"""Kinds of failure of a query."""
NOT_SQL = frozenset({"syntax", "no_such_table", "no_such_column", "no_such_function", "empty", "too_complex"})
"""Failures that say that SQLite could not prepare the query."""
NOT_SAFE = frozenset({"unsafe_statement", "multiple_statements"})
"""Failures that say that the query was more than one, or no reading statement."""
GRACE_S = 2.0
"""Seconds beyond a query's own limit after which its worker is killed."""
KEPT_RESULTS = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """What one query may use."""

    time_s: float = 2.0
    """Wall-clock seconds."""
    rows: int = 10_000
    """Rows of the result."""
    value_bytes: int = 2_000_000
    """Bytes of one value."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a query gave: a table, or an error."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    error: str | None = None
    """A kind from `ERRORS`."""
    message: str = ""
    """SQLite's words, or ours; never a path."""

    @property
    def ok(self) -> bool:
        """Whether there is a table."""
        return self.error is None

    @property
    def prepared(self) -> bool:
        """Whether SQLite could prepare the query."""
        return self.error not in NOT_SQL


@dataclass(frozen=True, slots=True)
class Query:
    """A query on a database file."""

    database: str
    sql: str
    limits: Limits = Limits()


class Pool:
    """Worker processes, as many as the machine has processors (4 at most)."""

    def __init__(self, workers: int | None = None) -> None:
        self.size = workers or min(4, os.cpu_count() or 1)
        self._idle: list[_Worker] = []
        self._kept: OrderedDict[Query, Result] = OrderedDict()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def run(self, queries: Sequence[Query]) -> list[Result]:
        """Results in order. Never raises on account of a query."""
        with self._lock:
            wanted = deque(dict.fromkeys(q for q in queries if q not in self._kept))
            self._work(wanted)
            found = [self._kept[q] for q in queries]
            while len(self._kept) > KEPT_RESULTS:
                self._kept.popitem(last=False)
            return found

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._idle:
            worker.kill()
        self._idle = []

    def _work(self, wanted: deque[Query]) -> None:
        busy: dict[_Worker, tuple[Query, float]] = {}
        try:
            self._serve(wanted, busy)
        finally:  # an interruption (Ctrl-C, a time limit) leaves workers whose answer nobody waits for
            for worker in busy:
                worker.kill()

    def _serve(self, wanted: deque[Query], busy: dict[_Worker, tuple[Query, float]]) -> None:
        with selectors.DefaultSelector() as selector:
            while wanted or busy:
                while wanted and len(busy) < self.size:
                    query = wanted.popleft()
                    if refused := _refused_unseen(query):
                        self._kept[query] = refused
                        continue
                    worker = self._idle.pop() if self._idle else _Worker()
                    if not worker.send(query):  # it died since its last answer
                        worker.kill()
                        worker = _Worker()
                        worker.send(query)
                    busy[worker] = (query, time.monotonic() + query.limits.time_s + GRACE_S)
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                if not busy:
                    continue
                soonest = min(deadline for _, deadline in busy.values())
                ready = [key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))]
                overdue = [w for w, (_, deadline) in busy.items() if w not in ready and time.monotonic() > deadline]
                for worker in [*ready, *overdue]:
                    query, _ = busy[worker]
                    result = worker.receive() if worker in ready else None
                    if result is None and worker in ready and worker.alive:
                        continue  # half a line: the rest is on its way
                    selector.unregister(worker.output)
                    del busy[worker]
                    if result is None:
                        worker.kill()
                        result = Result(
                            error="killed", message="the query ignored its limits, and its process was ended"
                        )
                    else:
                        self._idle.append(worker)
                    self._kept[query] = result


class _Worker:
    """One process. Its output is read as it comes, so that no long line blocks the others."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=_scratch(),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        self._buffer = bytearray()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, query: Query) -> bool:
        request = {
            "database": query.database,
            "sql": query.sql,
            "time_limit_s": query.limits.time_s,
            "max_rows": query.limits.rows,
            "max_bytes": query.limits.value_bytes,
        }
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, OSError):
            return False
        return True

    def receive(self) -> Result | None:
        """The reply, or None where it is not whole yet or the process has died."""
        while chunk := self.output.read(1 << 20):
            self._buffer += chunk
        if not self._buffer.endswith(b"\n"):
            return None
        reply = json.loads(bytes(self._buffer))
        self._buffer.clear()
        if "error" in reply:
            return Result(error=reply["error"], message=reply["message"])
        rows = tuple(tuple(_decoded(v) for v in row) for row in reply["rows"])
        return Result(tuple(reply["columns"]), rows)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue


def _decoded(value: Any) -> Any:
    return bytes.fromhex(value["b"]) if isinstance(value, dict) else value


def _refused_unseen(query: Query) -> Result | None:
    """What need not be sent: no query of 100,000 characters answers a question."""
    if len(query.sql) > 100_000:
        return Result(error="too_complex", message="the query has more than 100,000 characters")
    if "\x00" in query.sql:
        return Result(error="syntax", message="the query holds a NUL character")
    try:
        query.sql.encode()
    except UnicodeEncodeError:
        return Result(error="syntax", message="the query holds half a character (a lone surrogate)")
    return None


_POOL: Pool | None = None


def execute_many(queries: Sequence[Query]) -> list[Result]:
    """Runs queries on this process's pool, results in order."""
    global _POOL
    if _POOL is None:
        _POOL = Pool()
    return _POOL.run(queries)


def execute(query: Query) -> Result:
    """Runs one query on this process's pool."""
    return execute_many([query])[0]


# databases made from SQL --------------------------------------------------------------------------------------------

_FOLDER: tempfile.TemporaryDirectory[str] | None = None


def _scratch() -> str:
    global _FOLDER
    if _FOLDER is None:
        _FOLDER = tempfile.TemporaryDirectory(prefix="mrtpo-sql-")
    return _FOLDER.name


def database_of(setup_sql: str) -> str:
    """The path of a database that `setup_sql` (trusted) sets up; the same text gives the same file in this process.

    Raises TaskError where SQLite does not take it.
    """
    path = Path(_scratch()) / f"{hashlib.sha256(setup_sql.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}.sqlite"
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        connection = sqlite3.connect(partial)
        try:
            connection.executescript(setup_sql)
            connection.commit()
        except (sqlite3.Error, ValueError) as error:
            raise TaskError(f"setup_sql is not what SQLite takes: {error}") from error
        finally:
            connection.close()
        os.replace(partial, path)
    return str(path)
