"""The verifiers of text-to-SQL: format, validity, schema, execution, and other measures by name.

One response's query runs once on each database it is needed on, whoever asks: `pool` keeps results. A batch's queries run
over all workers at once (`prefetch`). Outcomes speak of the response alone; what quotes the gold query is a reference.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import tokenize
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from mrtpo_envs.task import Task
from mrtpo_envs.text_to_sql import compare
from mrtpo_envs.text_to_sql.analysis import Parts, Schema, f1, parts_of, with_sort_keys
from mrtpo_envs.text_to_sql.answer import STATEMENT, SqlAnswer, find_sql
from mrtpo_envs.text_to_sql.database import foreign_keys_of, schema_of
from mrtpo_envs.text_to_sql.exact_set import differing, parts_to_match
from mrtpo_envs.text_to_sql.pool import NOT_SAFE, TOO_MUCH, Limits, Query, Result, execute, execute_many
from mrtpo_envs.verifier import Evidence, Span, Verdict, Verifier, cannot_judge

SHOWN_ROWS = 5
"""Rows of the gold result that a reference shows."""


class SqlVerifier(Verifier):
    """What all of them share: the answer, the databases, one execution for all."""

    @classmethod
    def prefetch(cls, pairs: Sequence[tuple[Task, str]]) -> None:
        """Runs a batch's queries, and the gold ones, over all workers at once."""
        queries: list[Query] = []
        for task, response in pairs:
            answer = find_sql(response)
            for database in databases(task):
                queries.append(Query(database, _gold_with_keys(task)[0], limits(task)))
                if answer.sql:
                    queries.append(Query(database, answer.sql, limits(task)))
        execute_many(queries)


def databases(task: Task) -> tuple[str, ...]:
    """Paths of the task's databases, the first being the one that the question is about."""
    return tuple(task.privileged["databases"])


def limits(task: Task) -> Limits:
    """What a query of this task may use."""
    return task.privileged.get("limits") or Limits()


def gold_sql(task: Task) -> str:
    """The gold query."""
    return str(task.privileged["gold_sql"])


def schema(task: Task) -> Schema:
    """Tables and columns of the database that the question is about."""
    return schema_of(databases(task)[0])


def gold_parts(task: Task) -> Parts | None:
    """Tables and columns of the gold query."""
    return _parts(task, _gold_with_keys(task)[0]) or _parts(task, gold_sql(task))


def _parts(task: Task, sql: str) -> Parts | None:
    """Tables and columns of a query: what SQLite itself resolved the names to, or, for a query that it does not take,
    what sqlglot can tell; None where neither can."""
    database = databases(task)[0]
    result = execute(Query(database, sql, limits(task)))
    if result.ok or (result.reads and result.error in TOO_MUCH):
        return _known(result.reads, sql, schema_of(database))
    return parts_of(sql, schema_of(database))


@functools.lru_cache(maxsize=4096)
def _known(reads: tuple[tuple[str, str], ...], sql: str, schema: Schema) -> Parts:
    """The tables and columns of the schema among those that were read: no internal table, no bare row number.

    SQLite compares the columns of USING and NATURAL without reporting them as read; they are added.
    """
    columns = {t.lower(): {c.lower() for c in cs} for t, cs in schema}
    read = {(table.lower(), column.lower()) for table, column in reads if table.lower() in columns}
    tables = {table for table, _ in read}
    joined = {name.strip(' \t\n"`[]').lower() for names in _USING.findall(sql) for name in names.split(",")}
    if _NATURAL.search(sql):
        joined |= {c for one, two in itertools.combinations(sorted(tables), 2) for c in columns[one] & columns[two]}
    read |= {(table, column) for table in tables for column in joined}
    return Parts(frozenset(tables), frozenset(f"{t}.{c}" for t, c in read if c in columns[t]))


_USING = re.compile(r"\busing\s*\(([^()]*)\)", re.IGNORECASE)
_NATURAL = re.compile(r"\bnatural\b", re.IGNORECASE)


def _gold_with_keys(task: Task) -> tuple[str, tuple[int, ...] | None]:
    """The gold query as it is run, and where its sort keys stand in a row (see `with_sort_keys`)."""
    keyed = with_sort_keys(gold_sql(task))
    return keyed if keyed is not None else (gold_sql(task), None)


def _gold(task: Task, database: str) -> tuple[Result, Sequence[int] | None]:
    """The gold result on a database, and the sizes of its runs of rows with equal sort keys where order matters."""
    sql, positions = _gold_with_keys(task)
    result = execute(Query(database, sql, limits(task)))
    if result.ok and positions:
        return _in_runs(result, positions)
    if positions is None:
        return result, None
    if not result.ok:  # the keys could not be selected: then every row has its place
        result = execute(Query(database, gold_sql(task), limits(task)))
        return result, [1] * len(result.rows)
    return result, [1] * len(result.rows)


@functools.lru_cache(maxsize=512)
def _in_runs(result: Result, positions: tuple[int, ...]) -> tuple[Result, Sequence[int]]:
    """The result without the sort keys that were added to it, and the sizes of its runs of equal keys."""
    keys = [tuple(row[p] for p in positions) for row in result.rows]
    blocks: list[int] = []
    for i, key in enumerate(keys):
        if i and key == keys[i - 1]:
            blocks[-1] += 1
        else:
            blocks.append(1)
    extra = sum(p < 0 for p in positions)
    rows = tuple(row[: len(row) - extra] for row in result.rows)
    return Result(result.columns[: len(result.columns) - extra], rows), blocks


class Format(SqlVerifier):
    """One query, where the prompt says that it should stand."""

    name = "format"

    def statement(self, task: Task) -> str:
        """The rule, as the prompt states it."""
        return STATEMENT if self.name in task.prompt.stated else ""

    def reference(self, task: Task) -> str:
        """The rule, where the prompt does not state it."""
        return "" if self.name in task.prompt.stated else STATEMENT

    def check(self, task: Task, response: str) -> Verdict:
        """1 where the rule is met."""
        answer = find_sql(response)
        fences = tuple(Span(*m.span()) for m in re.finditer(r"```[A-Za-z]*", response))[:20]
        return Verdict(float(answer.well_formed), answer.found, fences or Evidence.ABSENT)


class Valid(SqlVerifier):
    """SQLite prepares the query, as one statement that only reads."""

    name = "valid"

    def reference(self, task: Task) -> str:
        """The columns of the tables that the gold query uses."""
        parts = gold_parts(task)
        used = parts.tables if parts else frozenset()
        tables = [f"{t}({', '.join(c)})" for t, c in schema(task) if t.lower() in used or not used]
        return f"the query must run on these tables: {'; '.join(tables)}."

    def check(self, task: Task, response: str) -> Verdict:
        """1 where it is valid, also where it then takes too long or gives too much."""
        answer = find_sql(response)
        if not answer.sql:
            return Verdict(0.0, answer.found, Evidence.ABSENT)
        result = execute(Query(databases(task)[0], answer.sql, limits(task)))
        details = {"error": result.error, "prepared": result.prepared, "safe": result.error not in NOT_SAFE}
        if result.prepared and result.error not in NOT_SAFE and result.error != "error":
            return Verdict(1.0, "a valid query", (_whole(answer),), details)
        return Verdict(0.0, f"{result.error}: {result.message}", _where_it_stopped(answer, result), details)


class SchemaLinking(SqlVerifier):
    """The query uses the tables and columns that the gold query uses: the mean of the two F1 scores."""

    name = "schema"

    def reference(self, task: Task) -> str:
        """The gold query's tables and columns."""
        parts = gold_parts(task)
        if parts is None:
            return f"the query {gold_sql(task)}"
        tables, columns = ", ".join(sorted(parts.tables)), ", ".join(sorted(parts.columns))
        return f"the query uses the tables {tables} and the columns {columns}."

    def check(self, task: Task, response: str) -> Verdict:
        """0 to 1; cannot be judged where the gold query cannot be read."""
        gold = gold_parts(task)
        if gold is None:
            return cannot_judge("the gold query cannot be taken apart")
        answer = find_sql(response)
        found = _parts(task, answer.sql) if answer.sql else None
        if found is None:
            return Verdict(0.0, "no query that can be taken apart" if answer.sql else answer.found, Evidence.ABSENT)
        tables, columns = f1(gold.tables, found.tables), f1(gold.columns, found.columns)
        details = {
            "tables_f1": tables, "columns_f1": columns, "tables": sorted(found.tables), "columns": sorted(found.columns),
        }  # fmt: skip
        stray = {n.rpartition(".")[2] for n in (found.tables - gold.tables) | (found.columns - gold.columns)}
        outcome = f"uses {len(found.tables)} tables and {len(found.columns)} columns"
        spans = (
            _words(answer, stray)
            if stray
            else _words(answer, {n.rpartition(".")[2] for n in found.tables | found.columns})
        )
        if not stray and tables + columns < 2:
            return Verdict((tables + columns) / 2, f"{outcome}; others are missing", Evidence.ABSENT, details)
        return Verdict((tables + columns) / 2, outcome, spans or Evidence.ABSENT, details)


class Execution(SqlVerifier):
    """The query's result is the gold query's, by `compare.same_result`.

    Two empty results agree by luck more often than not: that is no pass, and `details` flags it. A gold query that fails
    gives no verdict.

    Args:
        every_database: agree on all of the task's databases (the test suite's demand), and not on the first alone.
    """

    name = "execution"

    def __init__(self, *, every_database: bool = False, name: str = "execution") -> None:
        self.every_database = every_database
        self.name = name

    def reference(self, task: Task) -> str:
        """The gold query and the first rows of its result."""
        result, _ = _gold(task, databases(task)[0])
        rows = "; ".join(", ".join(_shown(v) for v in row) for row in result.rows[:SHOWN_ROWS])
        more = f" and {len(result.rows) - SHOWN_ROWS} more rows" if len(result.rows) > SHOWN_ROWS else ""
        return f"the right query is {gold_sql(task)} and its result is {rows or 'empty'}{more}."

    def check(self, task: Task, response: str) -> Verdict:
        """1 where the results agree."""
        answer = find_sql(response)
        golds = [_gold(task, d) for d in (databases(task) if self.every_database else databases(task)[:1])]
        for gold, _ in golds:
            if not gold.ok:
                return cannot_judge(f"the gold query fails ({gold.error})")
        if not answer.sql:
            return Verdict(0.0, answer.found, Evidence.ABSENT)
        agree = True
        result = Result()
        for database, (gold, blocks) in zip(databases(task), golds, strict=False):
            result = execute(Query(database, answer.sql, limits(task)))
            if not result.ok:
                return Verdict(
                    0.0, f"{result.error}: {result.message}", _where_it_stopped(answer, result), {"error": result.error}
                )
            if not compare.same_result(gold.rows, result.rows, blocks):
                agree = False
                break
        empty = all(not gold.rows for gold, _ in golds)
        shape = f"{len(result.rows)} rows, {len(result.columns)} columns"
        details = {"gold_empty": empty, "raw": float(agree)}
        if agree and empty:
            return Verdict(0.0, "an empty result, which tells nothing", (_whole(answer),), details)
        if agree:
            return Verdict(1.0, f"the right result: {shape}", (_whole(answer),), details)
        return Verdict(0.0, f"another result than was asked for: {shape}", _differing_clauses(task, answer), details)


class ExactSet(SqlVerifier):
    """The query is made of the gold query's parts (Spider's exact-set match, see `exact_set`)."""

    name = "exact_set"

    def reference(self, task: Task) -> str:
        """The gold query."""
        return f"the right query is {gold_sql(task)}."

    def check(self, task: Task, response: str) -> Verdict:
        """1 where all parts agree; cannot be judged where the gold query cannot be read."""
        database = databases(task)[0]
        gold = parts_to_match(gold_sql(task), schema(task), foreign_keys_of(database))
        if gold is None:
            return cannot_judge("the gold query cannot be taken apart")
        answer = find_sql(response)
        found = parts_to_match(answer.sql, schema(task), foreign_keys_of(database)) if answer.sql else None
        if found is None:
            return Verdict(0.0, "no query that can be taken apart" if answer.sql else answer.found, Evidence.ABSENT)
        different = differing(gold, found)
        if not different:
            return Verdict(1.0, "every part agrees", (_whole(answer),), {"differing": []})
        outcome = f"differs in {', '.join(different)}"
        return Verdict(0.0, outcome, _differing_clauses(task, answer), {"differing": different})


class Measure(SqlVerifier):
    """A named measure of the result or the text, from 0 to 1: `cells`, `rows`, `overlap`, `bird`, `soft_f1`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def reference(self, task: Task) -> str:
        """As for execution."""
        return Execution().reference(task)

    def check(self, task: Task, response: str) -> Verdict:
        """The measure's value."""
        answer = find_sql(response)
        gold = execute(Query(databases(task)[0], gold_sql(task), limits(task)))
        if not gold.ok:
            return cannot_judge(f"the gold query fails ({gold.error})")
        if self.name == "overlap":
            value = _overlap(gold_sql(task), answer.sql)
            return Verdict(value, f"{value:.2f}", (_whole(answer),) if answer.sql else Evidence.ABSENT)
        result = execute(Query(databases(task)[0], answer.sql, limits(task))) if answer.sql else Result(error="empty")
        if not result.ok:
            return Verdict(
                0.0, f"{result.error}: {result.message}", Evidence.ABSENT if not answer.sql else (_whole(answer),)
            )
        value = float(_MEASURES[self.name](gold.rows, result.rows))
        return Verdict(value, f"{value:.2f}", (_whole(answer),))


def _row_count(gold: Sequence[Any], found: Sequence[Any]) -> float:
    return min(len(gold), len(found)) / max(1, len(gold), len(found)) if gold or found else 1.0


_MEASURES: dict[str, Callable[[Any, Any], float]] = {
    "cells": compare.cell_f1,
    "rows": _row_count,
    "bird": compare.bird,
    "soft_f1": compare.soft_f1,
}

REWARDS: dict[str, Callable[[], SqlVerifier]] = {
    "format": Format,
    "valid": Valid,
    "schema": SchemaLinking,
    "execution": Execution,
    "exact_set": ExactSet,
    "suite": lambda: Execution(every_database=True, name="suite"),
    "cells": lambda: Measure("cells"),
    "rows": lambda: Measure("rows"),
    "overlap": lambda: Measure("overlap"),
    "bird": lambda: Measure("bird"),
    "soft_f1": lambda: Measure("soft_f1"),
}
"""Every verifier by its reward's name."""
DEFAULT_REWARDS = ("format", "valid", "schema", "execution")


def _shown(value: Any) -> str:
    text = "NULL" if value is None else repr(value) if isinstance(value, bytes) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _overlap(gold: str, found: str) -> float:
    """F1 of the words and pairs of words of two queries."""

    def grams(sql: str) -> Counter[tuple[str, ...]]:
        words = re.findall(r"\w+|[^\w\s]", sql.lower())
        return Counter([(w,) for w in words] + list(itertools.pairwise(words)))

    a, b = grams(gold), grams(found[:20_000])
    return 2 * sum((a & b).values()) / max(1, sum(a.values()) + sum(b.values()))


# evidence -----------------------------------------------------------------------------------------------------------


def _whole(answer: SqlAnswer) -> Span:
    return Span(answer.start, answer.start + len(answer.sql))


def _words(answer: SqlAnswer, names: set[str]) -> tuple[Span, ...]:
    """Where identifiers stand in the query, as whole words whatever their case."""
    names = names - {""}  # a message that stops at "." names nothing
    if not names:
        return ()
    pattern = r"(?<!\w)(?:" + "|".join(re.escape(n) for n in sorted(names)) + r")(?!\w)"
    found = re.finditer(pattern, answer.sql, re.IGNORECASE)
    return tuple(Span(answer.start + m.start(), answer.start + m.end()) for m in found)[:50]


def _where_it_stopped(answer: SqlAnswer, result: Result) -> tuple[Span, ...]:
    """The words that SQLite's message names, or the whole query."""
    named = re.search(r'near "(.+?)"|no such \w+: (\S+)|ambiguous column name: (\S+)|function (\w+)', result.message)
    if named:
        name = next(g for g in named.groups() if g)
        spans = _words(answer, {name.rpartition(".")[2]})
        if not spans and (at := answer.sql.find(name)) >= 0:
            spans = (Span(answer.start + at, answer.start + at + len(name)),)
        if spans:
            return spans
    return (_whole(answer),)


_CLAUSES = {
    TokenType.SELECT: "select", TokenType.FROM: "from", TokenType.WHERE: "where", TokenType.GROUP_BY: "group",
    TokenType.HAVING: "having", TokenType.ORDER_BY: "order", TokenType.LIMIT: "limit",
}  # fmt: skip


def _differing_clauses(task: Task, answer: SqlAnswer) -> tuple[Span, ...]:
    """The clauses of the query that are not the gold query's, where both are plain enough to tell; else all of it."""
    gold, found = _clauses(gold_sql(task)), _clauses(answer.sql)
    if not gold or not found:
        return (_whole(answer),)
    spans = []
    for name, (start, end) in found.items():
        other = gold.get(name)
        theirs = gold_sql(task)[slice(*other)] if other else ""
        if _plain(answer.sql[start:end]) != _plain(theirs):
            spans.append(Span(answer.start + start, answer.start + end))
    return tuple(spans) or (_whole(answer),)


@functools.lru_cache(maxsize=4096)
def _plain(sql: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", sql.lower().replace('"', "'").rstrip(" ;"))


@functools.lru_cache(maxsize=4096)
def _clauses(sql: str) -> dict[str, tuple[int, int]]:
    """Ranges of the outermost clauses of a query without compounds; empty where it has some."""
    try:
        tokens: list[Token] = tokenize(sql, read="sqlite")
    except SqlglotError:
        return {}
    depth, starts = 0, []
    for token in tokens:
        if token.token_type == TokenType.L_PAREN:
            depth += 1
        elif token.token_type == TokenType.R_PAREN:
            depth -= 1
        elif depth == 0 and token.token_type in (
            TokenType.UNION,
            TokenType.INTERSECT,
            TokenType.EXCEPT,
            TokenType.WITH,
        ):
            return {}
        elif depth == 0 and token.token_type in _CLAUSES:
            starts.append((_CLAUSES[token.token_type], token.start))
    ends = [start for _, start in starts[1:]] + [len(sql.rstrip(" ;\n\t"))]
    return {name: (start, end) for (name, start), end in zip(starts, ends, strict=True)}
