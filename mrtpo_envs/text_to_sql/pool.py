"""A pool of worker processes that run untrusted queries, and the results they gave.

`execute` takes one query, `execute_many` a batch that runs over all workers at once. A worker that is overdue is killed
and replaced; the others, and the batch, go on. Workers start when first needed, end with this process (their input
closes), and know nothing of it: no fork of a process that may hold a model, no pickling of anybody's code.

A worker gets several queries at a time, because a query on a small database takes less time than a message does. Its
answers come one by one, and each query has its own deadline; what a killed worker had not begun goes to another.

Results are kept: the same query on the same database is run once. What is wrong with a query is a result too; but what
may be the machine's fault (its load, a file that was gone) is forgotten after a minute.

A forked child has workers and a folder of its own: two processes that read one worker's answers would take each other's.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing.util
import os
import selectors
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mrtpo_envs.errors import TaskError

ERRORS = (
    "timeout", "too_many_rows", "too_big", "too_complex", "unsafe_statement", "multiple_statements", "syntax",
    "no_such_table", "no_such_column", "no_such_function", "empty", "error", "runtime_error", "killed", "database",
)  # fmt: skip
"""Kinds of failure of a query; "error" is any other while it is prepared, and "database" is none of the query's fault."""
NOT_SQL = frozenset({"syntax", "no_such_table", "no_such_column", "no_such_function", "empty", "too_complex", "error"})
"""Failures that say that SQLite could not prepare the query."""
NOT_SAFE = frozenset({"unsafe_statement", "multiple_statements"})
"""Failures that say that the query was more than one, or no reading statement."""
WHILE_RUNNING = frozenset({"timeout", "too_many_rows", "too_big", "runtime_error"})
"""Failures of a query that SQLite could prepare."""
PASSING = frozenset({"timeout", "killed", "database"})
PASSING_S = 60.0
"""Failures that another try may not have, and seconds that they are kept: a response's verifiers all ask for its result."""
GRACE_S = 2.0
"""Seconds beyond a query's own limit after which its worker is killed."""
KEPT_RESULTS = 16_384
KEPT_BYTES = 256 << 20
"""Results, and bytes in them, that are kept; the one that was asked for longest ago goes first."""
SENT_QUERIES = 32
SENT_CHARACTERS = 8_000
"""Queries, and characters in them, that a worker gets at a time: fewer bytes than a pipe holds (json may take 6 for one
character), so that no write waits for a worker which itself waits to be read."""


class Limits(NamedTuple):
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
    reads: tuple[tuple[str, str, str], ...] = ()
    """(table, column, by) as SQLite resolved the query's names; the column is empty where only rows are counted. `by` is
    the view that reads, or a common table expression of the query that has a view's name; empty for any other."""
    size: int = 0
    """About how many bytes the table takes."""
    seconds: float = field(default=0.0, compare=False)
    """How long the query ran."""

    @property
    def ok(self) -> bool:
        """Whether there is a table."""
        return self.error is None

    @property
    def prepared(self) -> bool:
        """Whether SQLite could prepare the query."""
        return self.error not in NOT_SQL


class Query(NamedTuple):
    """A query on a database file."""

    database: str
    sql: str
    limits: Limits = Limits()


class Pool:
    """Worker processes, as many as the machine has processors (4 at most)."""

    def __init__(self, workers: int | None = None) -> None:
        self.size = workers or min(4, os.cpu_count() or 1)
        self._idle: list[_Worker] = []
        self._kept: OrderedDict[Query, tuple[Result, float]] = OrderedDict()
        """Results, and until when they hold, on the monotonic clock."""
        self._bytes = 0
        self._lock = threading.Lock()
        # not atexit: a forked child must not end them, and multiprocessing's children know of this alone
        multiprocessing.util.Finalize(None, self.close, exitpriority=1)

    def run(self, queries: Sequence[Query]) -> list[Result]:
        """Results in order. Never raises on account of a query."""
        with self._lock:
            if len(queries) == 1 and (kept := self._look_up(queries[0])) is not None:
                return [kept]
            found: dict[Query, Result] = {}
            self._find(queries, found)
            return [found[q] for q in queries]

    def prefetch(self, queries: Sequence[Query], *, anew: bool = False) -> None:
        """Runs queries for later, `anew` those whose result is known too; holds no more than is kept anyway."""
        with self._lock:
            for query in queries if anew else ():
                if query in self._kept:
                    self._forget(query)
            self._find(queries, None)

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._idle:
            worker.kill()
        self._idle = []

    def disown(self) -> None:
        """For a forked child: the workers are the parent's, and hear from it alone."""
        for worker in self._idle:
            worker.disown()
        self._idle = []

    def _find(self, queries: Sequence[Query], found: dict[Query, Result] | None) -> None:
        wanted: deque[Query] = deque()
        for query in dict.fromkeys(queries):
            if (kept := self._look_up(query)) is None:
                wanted.append(query)
            elif found is not None:
                found[query] = kept

        def take(query: Query, result: Result) -> None:
            self._keep(query, result)
            if found is not None:
                found[query] = result

        if wanted:
            self._work(wanted, take)

    def _look_up(self, query: Query) -> Result | None:
        if query not in self._kept:
            return None
        result, until = self._kept[query]
        if time.monotonic() > until:
            self._forget(query)
            return None
        self._kept.move_to_end(query)
        return result

    def _keep(self, query: Query, result: Result) -> None:
        self._kept[query] = result, time.monotonic() + PASSING_S if result.error in PASSING else float("inf")
        self._bytes += result.size + len(query.sql)
        while len(self._kept) > KEPT_RESULTS or (self._bytes > KEPT_BYTES and len(self._kept) > 1):
            self._forget(next(iter(self._kept)))

    def _forget(self, query: Query) -> None:
        self._bytes -= self._kept.pop(query)[0].size + len(query.sql)

    def _work(self, wanted: deque[Query], take: Callable[[Query, Result], None]) -> None:
        busy: dict[_Worker, float] = {}
        try:
            self._serve(wanted, take, busy)
        finally:  # an interruption (Ctrl-C, a time limit) leaves workers whose answer nobody waits for
            for worker in busy:
                worker.kill()

    def _serve(self, wanted: deque[Query], take: Callable[[Query, Result], None], busy: dict[_Worker, float]) -> None:
        """Gives queries out and takes results in, until there are none left; `busy` has each worker's deadline."""
        for query in list(wanted):
            if refused := _refused_unseen(query):
                take(query, refused)
                wanted.remove(query)
        # a batch is shared out evenly, and in several helpings, so that no worker ends long after the others
        share = max(1, min(SENT_QUERIES, len(wanted) // (4 * self.size)))
        with selectors.DefaultSelector() as selector:
            while wanted or busy:
                while wanted and len(busy) < self.size:
                    worker = self._idle.pop() if self._idle else _Worker()
                    queries = _helping(wanted, share)
                    if not worker.send(queries):  # it died since its last answer
                        worker.kill()
                        worker = _Worker()
                        worker.send(queries)
                    busy[worker] = worker.deadline()
                    selector.register(worker.output, selectors.EVENT_READ, worker)
                soonest = min(busy.values())
                ready = [key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))]
                now = time.monotonic()
                for worker in [*ready, *(w for w, deadline in busy.items() if w not in ready and now > deadline)]:
                    answers = worker.receive() if worker in ready else []
                    for query, result in answers:
                        take(query, result)
                    if worker.pending and (answers or (worker in ready and worker.alive)):
                        if answers:
                            busy[worker] = worker.deadline()
                        continue  # the rest is on its way
                    selector.unregister(worker.output)
                    del busy[worker]
                    if not worker.pending:
                        self._idle.append(worker)
                        continue
                    worker.kill()
                    killed = Result(error="killed", message="the query ignored its limits, and its process was ended")
                    take(worker.pending.popleft(), killed)
                    wanted.extendleft(reversed(worker.pending))


def _helping(wanted: deque[Query], share: int) -> list[Query]:
    """The next queries for one worker: at least one, and no more than fit into a pipe."""
    queries = [wanted.popleft()]
    size = len(queries[0].sql)
    while wanted and len(queries) < share and size + len(wanted[0].sql) <= SENT_CHARACTERS:
        size += len(wanted[0].sql)
        queries.append(wanted.popleft())
    return queries


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
        self.pending: deque[Query] = deque()
        """Queries that it was given and has not answered, in order."""

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, queries: Sequence[Query]) -> bool:
        """Gives the worker queries to run; False where it is dead."""
        requests = [(q.database, q.sql, q.limits.time_s, q.limits.rows, q.limits.value_bytes) for q in queries]
        self.pending = deque(queries)
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(requests).encode() + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, OSError):
            return False
        return True

    def deadline(self) -> float:
        """When the answer to the query that it works on is overdue, on the monotonic clock."""
        return time.monotonic() + self.pending[0].limits.time_s + GRACE_S

    def receive(self) -> list[tuple[Query, Result]]:
        """The answers that have come in whole since the last time."""
        while chunk := self.output.read(1 << 20):
            self._buffer += chunk
        whole, newline, rest = self._buffer.rpartition(b"\n")
        if not newline:
            return []
        self._buffer = bytearray(rest)
        return [(self.pending.popleft(), _result(json.loads(line))) for line in whole.split(b"\n")]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue

    def disown(self) -> None:
        """Closes this process's ends of the pipes, and leaves the worker to another."""
        self.process.returncode = 0  # not this process's child: nothing to wait for
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _result(reply: dict[str, Any]) -> Result:
    reads = tuple((str(table), str(column), str(by)) for table, column, by in reply.get("reads", ()))
    seconds = reply.get("seconds", 0.0)
    if "error" in reply:
        return Result(error=reply["error"], message=reply["message"], reads=reads, seconds=seconds)
    rows = reply["rows"]
    if any(isinstance(value, dict) for row in rows for value in row):
        rows = [[_decoded(value) for value in row] for row in rows]
    return Result(tuple(reply["columns"]), tuple(map(tuple, rows)), None, "", reads, reply["size"], seconds)


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
    return _pool().run(queries)


def prefetch(queries: Sequence[Query], *, anew: bool = False) -> None:
    """Runs queries on this process's pool, so that `execute` has their results; `anew` those whose result is known too."""
    _pool().prefetch(queries, anew=anew)


def _pool() -> Pool:
    global _POOL
    if _POOL is None:
        _POOL = Pool()
    return _POOL


def execute(query: Query) -> Result:
    """Runs one query on this process's pool."""
    return execute_many([query])[0]


# databases made from SQL --------------------------------------------------------------------------------------------

_FOLDER: str | None = None


def _scratch() -> str:
    global _FOLDER
    if _FOLDER is None:
        _FOLDER = tempfile.mkdtemp(prefix="mrtpo-sql-")
        multiprocessing.util.Finalize(None, shutil.rmtree, (_FOLDER, True), exitpriority=0)  # not in a forked child
    return _FOLDER


def _after_fork() -> None:
    global _POOL, _FOLDER
    if _POOL is not None:
        _POOL.disown()
    _POOL = _FOLDER = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


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
