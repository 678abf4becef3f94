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

from mrtpo_envs.task import Task
from mrtpo_envs.text_to_sql import compare
from mrtpo_envs.text_to_sql.analysis import Parts, Schema, f1, joined_columns, named_by_with, parts_of
from mrtpo_envs.text_to_sql.answer import STATEMENT, SqlAnswer, find_sql
from mrtpo_envs.text_to_sql.database import foreign_keys_of, schema_of
from mrtpo_envs.text_to_sql.exact_set import differing, parts_to_match
from mrtpo_envs.text_to_sql.gold import PATIENCE, gold_query, patient, prefetch_golds, run_gold, tokens_of
from mrtpo_envs.text_to_sql.pool import NOT_SAFE, WHILE_RUNNING, Limits, Query, Result, execute, prefetch
from mrtpo_envs.verifier import Evidence, Span, Verdict, Verifier, cannot_judge

SHOWN_ROWS = 5
"""Rows of the gold result that a reference shows."""


class SqlVerifier(Verifier):
    """What all of them share: the answer, the databases, one execution for all."""

    @classmethod
    def prefetch(cls, pairs: Sequence[tuple[Task, str]]) -> None:
        """Runs a batch's queries, and the gold ones, over all workers at once."""
        golds, queries = [], []
        for task, response in pairs:
            answer = find_sql(response)
            for database in databases(task):
                golds.append(_gold_query(task, database))
                if answer.sql:
                    queries.append(Query(database, answer.sql, limits(task)))
        prefetch([*golds, *queries])
        prefetch_golds(golds)


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
    return _parts(_gold_query(task, databases(task)[0]))


def _parts(query: Query) -> Parts | None:
    """Tables and columns of a query: what SQLite itself resolved the names to, or, for a query that it does not take,
    what sqlglot can tell; None where neither can."""
    result = execute(query)
    if result.ok or (result.reads and result.error in WHILE_RUNNING):
        return _known(result.reads, query.sql, schema_of(query.database))
    return parts_of(query.sql, schema_of(query.database))


@functools.lru_cache(maxsize=4096)
def _known(reads: tuple[tuple[str, str, str], ...], sql: str, schema: Schema) -> Parts:
    """The tables and columns of the schema among those that were read: no internal table, no bare row number.

    What a view reads is not the query's own choice, but what a common table expression of the same name reads is. SQLite
    compares the columns of USING and NATURAL without reporting them as read; they are added.
    """
    columns = {t.lower(): {c.lower() for c in cs} for t, cs in schema}
    ours = named_by_with(sql) if any(by for _, _, by in reads) else frozenset()
    read = {(t.lower(), c.lower()) for t, c, by in reads if t.lower() in columns and (not by or by.lower() in ours)}
    if _JOINED.search(sql):  # what the tree says counts; most queries need none
        read |= joined_columns(sql, schema)
    return Parts(frozenset(t for t, _ in read), frozenset(f"{t}.{c}" for t, c in read if c in columns[t]))


_JOINED = re.compile(r"\b(?:using|natural)\b", re.IGNORECASE)


def _gold_query(task: Task, database: str) -> Query:
    return gold_query(database, gold_sql(task), limits(task))


def _run(task: Task, database: str, sql: str, gold: Result) -> Result:
    """A response's query. It may take as long as the gold query did, and some more."""
    result = execute(Query(database, sql, limits(task)))
    if result.error == "timeout" and PATIENCE * gold.seconds > limits(task).time_s:
        return execute(Query(database, sql, patient(limits(task))))
    return result


_LOST = "the database cannot be read"


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
        """1 where it is valid, also where it then takes too long, gives too much, or fails on some row."""
        answer = find_sql(response)
        if not answer.sql:
            return Verdict(0.0, answer.found, Evidence.ABSENT)
        result = execute(Query(databases(task)[0], answer.sql, limits(task)))
        if result.error == "database":
            return cannot_judge(_LOST)
        details = {"error": result.error, "prepared": result.prepared, "safe": result.error not in NOT_SAFE}
        if result.prepared and result.error not in NOT_SAFE:
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
        return f"the query uses the tables {tables or '(none)'} and the columns {columns or '(none)'}."

    def check(self, task: Task, response: str) -> Verdict:
        """0 to 1; cannot be judged where the gold query cannot be read."""
        gold = gold_parts(task)
        if gold is None:
            return cannot_judge("the gold query cannot be taken apart")
        answer = find_sql(response)
        found = _parts(Query(databases(task)[0], answer.sql, limits(task))) if answer.sql else None
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

    Two empty results agree by luck more often than not: that is no pass, and `details` flags it (the outcome does not: it
    says the same of any empty result). A gold query that fails gives no verdict.

    Args:
        every_database: agree on all of the task's databases (the test suite's demand), and not on the first alone.
    """

    name = "execution"

    def __init__(self, *, every_database: bool = False, name: str = "execution") -> None:
        self.every_database = every_database
        self.name = name

    def reference(self, task: Task) -> str:
        """The gold query and the first rows of its result."""
        result, _ = run_gold(_gold_query(task, databases(task)[0]))
        rows = "; ".join(", ".join(_shown(v) for v in row) for row in result.rows[:SHOWN_ROWS])
        more = f" and {len(result.rows) - SHOWN_ROWS} more rows" if len(result.rows) > SHOWN_ROWS else ""
        return f"the right query is {gold_sql(task)} and its result is {rows or 'empty'}{more}."

    def check(self, task: Task, response: str) -> Verdict:
        """1 where the results agree."""
        answer = find_sql(response)
        golds = [run_gold(_gold_query(task, d)) for d in databases(task)[: None if self.every_database else 1]]
        for gold, _ in golds:
            if not gold.ok:
                return cannot_judge(f"the gold query fails ({gold.error})")
        if not answer.sql:
            return Verdict(0.0, answer.found, Evidence.ABSENT)
        agree: bool | None = True
        result = Result()
        for database, (gold, blocks) in zip(databases(task), golds, strict=False):
            result = _run(task, database, answer.sql, gold)
            if result.error == "database":
                return cannot_judge(_LOST)
            if not result.ok:
                return Verdict(
                    0.0, f"{result.error}: {result.message}", _where_it_stopped(answer, result), {"error": result.error}
                )
            agree = compare.same_result(gold.rows, result.rows, blocks)
            if not agree:
                break
        empty = all(not gold.rows for gold, _ in golds)
        shape = f"{len(result.rows)} rows, {len(result.columns)} columns"
        details = {"gold_empty": empty, "raw": float(agree is True)}
        if agree and not empty:
            return Verdict(1.0, f"the right result: {shape}", (_whole(answer),), details)
        outcome = f"another result than was asked for: {shape}"
        if not result.rows:
            outcome = "an empty result, which answers nothing"
        elif agree is None:
            outcome = f"columns too much alike to put into order: {shape}"
        return Verdict(0.0, outcome, _differing_clauses(task, answer) if agree is False else (_whole(answer),), details)


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
        gold = execute(_gold_query(task, databases(task)[0]))
        if not gold.ok:
            return cannot_judge(f"the gold query fails ({gold.error})")
        if self.name == "overlap":
            value = _overlap(gold_sql(task), answer.sql)
            return Verdict(value, f"{value:.2f}", (_whole(answer),) if answer.sql else Evidence.ABSENT)
        result = _run(task, databases(task)[0], answer.sql, gold) if answer.sql else Result(error="empty")
        if result.error == "database":
            return cannot_judge(_LOST)
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


_CLAUSES = ("select", "from", "where", "group", "having", "order", "limit")


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
    """Ranges of the outermost clauses of a query without compounds; empty where it has some, or no clauses."""
    outermost = [(t.text.lower(), t.start) for t in tokens_of(sql) if t.depth == 0]
    if any(word in ("union", "intersect", "except", "with") for word, _ in outermost):
        return {}
    starts = [(word, start) for word, start in outermost if word in _CLAUSES]
    ends = [*(start for _, start in starts[1:]), len(sql.rstrip(" ;\n\t"))]
    return {word: (start, end) for (word, start), end in zip(starts, ends, strict=False) if end > start}
