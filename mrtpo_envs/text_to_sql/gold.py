"""The gold query's result, and which of its rows may change places.

Rows with equal sort keys may stand in any order. Which keys are equal is SQLite's to say (collations, NULL, expressions),
so the query is run once more with a column for each key that it does not select, and with `dense_rank()` over the keys.
What that gives is checked against the query's own rows; where it does not fit them, or cannot be run, each row keeps
its place. The query's text is taken apart by SQLite's lexical rules alone: no parser must read it, none rewrites it.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mrtpo_envs.text_to_sql.pool import PASSING, Limits, Query, Result, execute, prefetch

PATIENCE = 4
"""How many times a query's time limit the gold query may take, and how many times the gold query's time a response: its
failure costs the verdicts of a whole group, and a busy machine must not decide. Both fit in `scoring.TIME_LIMIT_S`."""


class Token(NamedTuple):
    """A word, sign or literal of a query."""

    text: str
    start: int
    end: int
    depth: int
    """How many parentheses are open around it."""


_LEXICAL = re.compile(
    r"""(--[^\n]*|/\*.*?(?:\*/|\Z)|\s+)|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[\w$]+|.""", re.DOTALL
)


@functools.lru_cache(maxsize=1024)
def tokens_of(sql: str) -> tuple[Token, ...]:
    """The tokens of any text, as SQLite reads it; no comments."""
    found: list[Token] = []
    depth = 0
    for match in _LEXICAL.finditer(sql):
        if match.group(1) is None:
            depth -= match.group() == ")"
            found.append(Token(match.group(), *match.span(), depth))
            depth += match.group() == "("
    return tuple(found)


class Ordering(NamedTuple):
    """The outermost ORDER BY of a query, in pieces of its text."""

    body: str
    """The query without a semicolon."""
    insert: int
    """Where another selected expression can be put in; -1 where none can (a compound of queries, DISTINCT)."""
    terms: tuple[tuple[str, str], ...]
    """Each sort key, and what its text ends with: a collation, a direction."""
    selected: tuple[tuple[str, str], ...]
    """Each selected expression, and its alias; empty for a compound of queries."""


@functools.lru_cache(maxsize=1024)
def ordering_of(sql: str) -> Ordering | None:
    """The outermost ORDER BY; None where there is none."""
    tokens = [t for t in tokens_of(sql) if t.text != ";" or t.depth]
    top = [(i, t.text.lower()) for i, t in enumerate(tokens) if t.depth == 0]
    words = {}
    for (i, word), (_, after) in zip(top, [*top[1:], (0, "")], strict=True):
        if word == "order" and after == "by":
            words["order"] = i
        elif (word == "limit" and "order" in words) or word in ("select", "from", "where", "group", "having", "window"):
            words.setdefault(word, i)
    if "order" not in words or "select" not in words:
        return None
    order, select = words["order"], words["select"]
    terms = [_key_and_rest(sql, part) for part in _split(tokens[order + 2 : words.get("limit", len(tokens))])]
    body = sql[: tokens[-1].end]
    compound = any(word in ("union", "intersect", "except") for _, word in top)
    if compound:
        return Ordering(body, -1, tuple(terms), ())
    end = min(i for name, i in words.items() if name not in ("select", "limit"))
    distinct = tokens[select + 1].text.lower() == "distinct"
    selected = [_expression_and_alias(sql, part) for part in _split(tokens[select + 1 + distinct : end])]
    return Ordering(body, -1 if distinct else tokens[end - 1].end, tuple(terms), tuple(selected))


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """What stands between the outermost commas."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _key_and_rest(sql: str, term: list[Token]) -> tuple[str, str]:
    words = [t.text.lower() for t in term]
    size = len(words)
    if size > 2 and words[-2:] in (["nulls", "first"], ["nulls", "last"]):
        size -= 2
    if size > 1 and words[size - 1] in ("asc", "desc"):
        size -= 1
    if size > 2 and words[size - 2] == "collate":
        size -= 2
    return sql[term[0].start : term[size - 1].end], sql[term[size - 1].end : term[-1].end]


def _expression_and_alias(sql: str, part: list[Token]) -> tuple[str, str]:
    if len(part) > 2 and part[-2].text.lower() == "as":
        return sql[part[0].start : part[-3].end], part[-1].text
    bare = len(part) > 1 and re.match(r"[\w$\"`\[)']", part[-2].text) and re.match(r"[^\W\d]|[\"`\[]", part[-1].text)
    if bare and part[-2].text.lower() not in ("case", "distinct", "not") and part[-1].text.lower() != "end":
        return sql[part[0].start : part[-2].end], part[-1].text
    return sql[part[0].start : part[-1].end], ""


def _plain(text: str) -> str:
    """A name or expression without its quotes, spaces and case."""
    return "".join(t.text for t in tokens_of(text)).strip('"`[]').lower()


def ranked(sql: str, columns: Sequence[str]) -> list[str]:
    """Queries that give the rows of `sql` with their rank by its ORDER BY as one more column, the likeliest first; each
    may fail or mean something else, see `in_place`.

    Args:
        columns: names of the columns that `sql` gives.
    """
    ordering = ordering_of(sql)
    if ordering is None:
        return []
    selected, width = ordering.selected, len(columns)
    stars = [i for i, (text, _) in enumerate(selected) if text == "*" or text.endswith(("*", ".*"))]
    at = {
        i: i if not stars or i < stars[0] else width - len(selected) + i for i in range(len(selected)) if i not in stars
    }
    aliases = {_plain(alias): i for i, (_, alias) in reversed([*enumerate(selected)]) if alias}
    texts = {_plain(text): i for i, (text, _) in reversed([*enumerate(selected)])}
    shown = {name.lower(): i for i, name in reversed([*enumerate(columns)])} if ordering.insert < 0 else {}
    known: list[int | None] = []  # the column of the result that each key is
    for key, _ in ordering.terms:
        plain = _plain(key)
        if number := re.fullmatch(r"[\s(+]*(\d{1,5})[\s)]*", key):
            known.append(int(number.group(1)) - 1)
        else:
            known.append(at.get(aliases.get(plain, texts.get(plain, -1)), shown.get(plain)))
    if any(k is not None and not 0 <= k < width for k in known):
        return []
    found = []
    names = [f"mrtpo_{i}" for i in range(width)]
    if ordering.insert < 0:  # then a key is an expression of the result's own columns
        if None in known:
            return [_ranking(ordering.body, [], ["*"], [key for key, _ in ordering.terms], ordering)]
        return [_ranking(ordering.body, names, names, [names[k or 0] for k in known], ordering)]
    unselected = [i for i, k in enumerate(known) if k is None]
    places = {i: f"mrtpo_{width + n}" for n, i in enumerate(unselected)}
    by = [places.get(i) or names[k or 0] for i, k in enumerate(known)]
    for replaced in ({}, {name: f"({selected[i][0]})" for name, i in aliases.items()}):
        keys = "".join(f", {_with(ordering.terms[i][0], replaced)}" for i in unselected)
        body = ordering.body[: ordering.insert] + keys + ordering.body[ordering.insert :]
        found.append(_ranking(body, [*names, *places.values()], names, by, ordering))
    return list(dict.fromkeys(found))


def _ranking(body: str, given: Sequence[str], shown: Sequence[str], by: Sequence[str], ordering: Ordering) -> str:
    terms = ", ".join(f"{key} {rest}" for key, (_, rest) in zip(by, ordering.terms, strict=True))
    head = f"mrtpo_k({', '.join(given)})" if given else "mrtpo_k"
    return (
        f"WITH {head} AS ({body}\n) SELECT {', '.join(shown)}, dense_rank() OVER (ORDER BY {terms}) AS mrtpo_rank "
        f"FROM mrtpo_k ORDER BY mrtpo_rank"
    )


def _with(key: str, replaced: dict[str, str]) -> str:
    """A sort key with aliases replaced by what they stand for."""
    pieces, last = [], 0
    tokens = tokens_of(key)
    for i, token in enumerate(tokens):
        named = "." in (tokens[i - 1].text if i else "", tokens[i + 1].text if i + 1 < len(tokens) else "")
        if not named and not token.text.startswith("'") and _plain(token.text) in replaced:
            pieces += [key[last : token.start], replaced[_plain(token.text)]]
            last = token.end
    return "".join([*pieces, key[last:]])


def in_place(rows: Sequence[tuple[object, ...]], ranks: Sequence[tuple[object, ...]]) -> list[int] | None:
    """Sizes of the runs of rows of one rank; None where the ranked rows are others, or in another order, than `rows`."""
    if len(rows) != len(ranks):
        return None
    sizes = [*Counter(row[-1] for row in ranks).values()]
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        if Counter(rows[part]) != Counter(row[:-1] for row in ranks[part]):
            return None
        start += size
    return sizes


def gold_query(database: str, sql: str, limits: Limits) -> Query:
    """The gold query as it is run."""
    return Query(database, sql, patient(limits))


@functools.lru_cache(maxsize=64)
def patient(limits: Limits) -> Limits:
    """The limits of a gold query, and of a response where the gold query is slow."""
    return limits._replace(time_s=PATIENCE * limits.time_s)


def run_gold(query: Query) -> tuple[Result, Sequence[int] | None]:
    """The gold query's result, and where order matters the sizes of its runs of rows that may change places."""
    result = execute(query)
    if not result.ok or ordering_of(query.sql) is None:
        return result, None
    for sql in ranked(query.sql, result.columns):
        sizes = in_place(result.rows, execute(query._replace(sql=sql)).rows)
        if sizes is not None:
            return result, sizes
    return result, [1] * len(result.rows)


def prefetch_golds(queries: Sequence[Query]) -> None:
    """Runs what `run_gold` will ask for, after the queries themselves have run: their ranks, and once more those that
    ran out of time while others were running."""
    results = [(q, execute(q)) for q in dict.fromkeys(queries)]
    prefetch([q for q, r in results if r.error in PASSING], anew=True)
    prefetch([q._replace(sql=sql) for q, r in results if r.ok for sql in ranked(q.sql, r.columns)[:1]])
