"""What a query is made of, through sqlglot's scopes: its tables and columns, conditions and joins.

Names are resolved against the database's schema as SQLite would: aliases, common table expressions, sub-queries, stars
and any quoting; a double-quoted word that is no column is text. What sqlglot cannot read gives None: SQLite decides what
is valid, never the parser here.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

F = TypeVar("F", bound=Callable[..., Any])
Schema = tuple[tuple[str, tuple[str, ...]], ...]
"""Tables with their columns, as the database has them."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Tables and `table.column`s that a query uses, in lower case."""

    tables: frozenset[str]
    columns: frozenset[str]


_ours: ContextVar[bool] = ContextVar("mrtpo_parsing", default=False)


class _Quiet(logging.Filter):
    """Drops what sqlglot logs while it reads for us: it warns at every statement that it skips, and responses have many."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _ours.get()


logging.getLogger("sqlglot").addFilter(_Quiet())


def reading(otherwise: Any, maxsize: int = 4096) -> Callable[[F], F]:
    """Marks a function of a query's text: its answers are kept, sqlglot logs nothing meanwhile (but to no one else who
    uses it in this process), and what it cannot read gives `otherwise`.

    The text is a policy's, and sqlglot's parser and scopes meet some of it with whatever exception they come to.
    """

    def mark(function: F) -> F:
        @functools.lru_cache(maxsize=maxsize)
        @functools.wraps(function)
        def read(*args: Any, **kwargs: Any) -> Any:
            token = _ours.set(True)
            try:
                return function(*args, **kwargs)
            except Exception:  # see above
                return otherwise
            finally:
                _ours.reset(token)

        return cast("F", read)

    return mark


@reading(None, maxsize=512)  # trees are large
def parsed(sql: str) -> exp.Query | None:
    """The query's tree, or None where sqlglot cannot read it. Treat it as read-only."""
    if len(sql) > 20_000 or sql.count("(") > 150:
        return None
    trees = [tree for tree in sqlglot.parse(sql, read="sqlite") if tree is not None]
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


@reading(None)
def parts_of(sql: str, schema: Schema) -> Parts | None:
    """The tables and columns that a query uses; None where it cannot be read."""
    tree = parsed(sql)
    if tree is None:
        return None
    known = {table.lower(): {c.lower() for c in columns} for table, columns in schema}
    tables: set[str] = set()
    columns: set[str] = set()
    for scope in traverse_scope(tree):
        sources = {
            alias.lower(): source.name.lower()
            for alias, source in scope.sources.items()
            if isinstance(source, exp.Table)
        }
        tables.update(name for name in sources.values() if name in known)
        reachable = {**_outer(scope), **sources}
        for column in scope.columns:
            columns.update(_resolved(column, sources, reachable, known))
        if any(_is_star(e) for e in _selected(scope)):
            columns.update(f"{t}.{c}" for t in sources.values() for c in known.get(t, ()))
    return Parts(frozenset(tables), frozenset(columns))


def _selected(scope: Scope) -> list[Any]:
    return list(scope.expression.selects) if isinstance(scope.expression, exp.Select) else []


def _is_star(selected: Any) -> bool:
    return isinstance(selected, exp.Star) or (isinstance(selected, exp.Column) and isinstance(selected.this, exp.Star))


def _outer(scope: Scope) -> dict[str, str]:
    """Tables of the enclosing queries, which a correlated sub-query may name."""
    found: dict[str, str] = {}
    parent = scope.parent
    while parent is not None:
        for alias, source in parent.sources.items():
            if isinstance(source, exp.Table):
                found.setdefault(alias.lower(), source.name.lower())
        parent = parent.parent
    return found


def _resolved(
    column: exp.Column, own: dict[str, str], reachable: dict[str, str], known: dict[str, set[str]]
) -> list[str]:
    name, table = column.name.lower(), column.table.lower()
    if table:
        real = reachable.get(table)
        return [f"{real}.{name}"] if real is not None and name in known.get(real, ()) else []
    for sources in (own, reachable):
        owners = [t for t in sources.values() if name in known.get(t, ())]
        if owners:
            return [f"{owners[0]}.{name}"]
    return []


def f1(gold: frozenset[str], found: frozenset[str]) -> float:
    """F1 of two sets; 1 where both are empty."""
    if not gold and not found:
        return 1.0
    return 2 * len(gold & found) / (len(gold) + len(found))


@reading(frozenset())
def named_by_with(sql: str) -> frozenset[str]:
    """Names of the query's common table expressions, in lower case."""
    tree = parsed(sql)
    return frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE)) if tree is not None else frozenset()


@reading(frozenset())
def joined_columns(sql: str, schema: Schema) -> frozenset[tuple[str, str]]:
    """(table, column) that USING and NATURAL compare: of each pair of sides, the joined table and the first before it
    that has the column."""
    known = {table.lower(): {c.lower() for c in columns} for table, columns in schema}
    tree = parsed(sql)
    ctes = named_by_with(sql)
    found: set[tuple[str, str]] = set()
    for node in _in_use(tree) if tree is not None else ():
        start = node.args.get("from_") or node.args.get("from")
        before = _tables_in(start.this if start is not None else node, ctes)
        for join in node.args.get("joins") or ():
            sides = _tables_in(join.this, ctes)
            mine = {c for t in sides for c in known.get(t, ())}
            columns = {c.name.lower() for c in join.args.get("using") or ()}
            if "natural" in str(join.args.get("method") or "").lower():
                columns = mine & {c for t in before for c in known.get(t, ())}
            for column in columns:
                for tables in (before, sides):
                    found.update([(t, column) for t in tables if column in known.get(t, ())][:1])
            before += sides
    return frozenset(found)


def _in_use(tree: exp.Query) -> list[Any]:
    """The tree's nodes, without the common table expressions that nothing reads: SQLite does not look at those either."""
    unread = {cte.alias.lower(): cte.this for cte in tree.find_all(exp.CTE)}
    found: list[Any] = []
    todo: list[Any] = [tree]
    while todo:
        for node in todo.pop().walk(prune=lambda node: isinstance(node, exp.CTE)):
            found.append(node)
            if isinstance(node, exp.Table) and node.name.lower() in unread:
                todo.append(unread.pop(node.name.lower()))
    return found


def _tables_in(source: Any, ctes: frozenset[str]) -> list[str]:
    """A source's tables, those of a join in parentheses included, and none of a sub-query."""
    if isinstance(source, exp.Table):
        joined = [t for join in source.args.get("joins") or () for t in _tables_in(join.this, ctes)]
        return [t for t in [source.name.lower()] if t not in ctes] + joined
    if isinstance(source, exp.Paren | exp.Subquery):
        return _tables_in(source.this, ctes)
    return []


# conditions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Condition:
    """A column compared with a constant: `op` is =, <>, <, <=, >, >=, like or a negated one of these, as "not like"."""

    table: str
    column: str
    op: str
    value: str
    """The constant's text, whether it was quoted or not."""


_SIGNS: dict[type[Any], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<=", exp.Like: "like",
}  # fmt: skip
SWAPPED: dict[type[Any], type[Any]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.LT: exp.GT, exp.LTE: exp.GTE,
}  # fmt: skip
"""What a comparison becomes when its sides change places."""


@dataclass(frozen=True, slots=True)
class Block:
    """One SELECT of a query: what it compares with constants, and the `table.column`s that it selects as they are."""

    conditions: tuple[Condition, ...]
    selected: tuple[str, ...]


@reading(())
def blocks_of(sql: str, schema: Schema) -> tuple[Block, ...]:
    """The SELECTs of a query. One within `IN (...)` is also part of the one around it, whose rows must meet both."""
    scopes = scopes_of(sql, schema)
    own = {id(scope): _conditions(scope, resolve) for scope, resolve in scopes}
    blocks: list[Block] = []
    for scope, resolve in scopes:
        inner = [c for s, _ in scopes if s.parent is scope and _is_within_in(s) for c in own[id(s)]]
        selected = [name for e in _selected(scope) if isinstance(e, exp.Column) for name in resolve(e)]
        blocks.append(Block((*own[id(scope)], *inner), tuple(selected)))
    return tuple(blocks)


def _is_within_in(scope: Scope) -> bool:
    around = scope.expression.find_ancestor(exp.In, exp.Select)
    return isinstance(around, exp.In) and not isinstance(around.parent, exp.Not)


def _conditions(scope: Scope, resolve: Callable[[exp.Column], list[str]]) -> list[Condition]:
    found: list[Condition] = []
    for node in scope.find_all(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Between, exp.In):
        negated = "not " if isinstance(node.parent, exp.Not) else ""
        if isinstance(node, exp.Between):
            compared = [(node.this, ">=", node.args["low"]), (node.this, "<=", node.args["high"])]
        elif isinstance(node, exp.In):
            compared = [(node.this, "=", node.expressions[0])] if node.expressions else []
        else:
            there, swapped = _SIGNS[type(node)], _SIGNS[SWAPPED.get(type(node), type(node))]
            compared = [(node.this, there, node.expression), (node.expression, swapped, node.this)]
        for side, op, other in compared:
            value = _constant(other, resolve)
            if isinstance(side, exp.Column) and value is not None:
                for name in resolve(side):
                    table, column = name.split(".", 1)
                    found.append(Condition(table, column, negated + op, value))
    return found


@reading(frozenset())
def joins_of(sql: str, schema: Schema) -> frozenset[tuple[str, str]]:
    """Pairs of `table.column`s of different tables that the query sets equal."""
    pairs: set[tuple[str, str]] = set()
    for scope, resolve in scopes_of(sql, schema):
        for node in scope.find_all(exp.EQ):
            if isinstance(node.this, exp.Column) and isinstance(node.expression, exp.Column):
                one, two = resolve(node.this), resolve(node.expression)
                if one and two and one[0].split(".")[0] != two[0].split(".")[0]:
                    pairs.add((min(one[0], two[0]), max(one[0], two[0])))
    return frozenset(pairs)


def scopes_of(sql: str, schema: Schema) -> list[tuple[Scope, Callable[[exp.Column], list[str]]]]:
    """The query's scopes, each with what resolves its columns to `table.column`s; none where it cannot be parsed. May
    raise whatever sqlglot's scopes do: call it from a function marked `reading`."""
    tree = parsed(sql)
    if tree is None:
        return []
    known = {table.lower(): {c.lower() for c in columns} for table, columns in schema}
    found: list[tuple[Scope, Callable[[exp.Column], list[str]]]] = []
    for scope in traverse_scope(tree):
        sources = {a.lower(): s.name.lower() for a, s in scope.sources.items() if isinstance(s, exp.Table)}
        found.append(
            (scope, functools.partial(_resolved, own=sources, reachable={**_outer(scope), **sources}, known=known))
        )
    return found


def _constant(node: Any, resolve: Callable[[exp.Column], list[str]]) -> str | None:
    if isinstance(node, exp.Literal):
        return node.name
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return "-" + node.this.name
    if isinstance(node, exp.Column) and not node.table and not resolve(node):
        return node.name  # a double-quoted text
    return None


# ties ---------------------------------------------------------------------------------------------------------------


@reading(None)
def with_sort_keys(sql: str) -> tuple[str, tuple[int, ...]] | None:
    """A query that also selects what the outermost ORDER BY sorts by, and the positions of those keys in its rows.

    None where there is no outermost ORDER BY. Where the keys cannot be selected beside the rows (DISTINCT, a compound of
    queries), the query comes back as it was with no positions, and every row's place counts.
    """
    tree = parsed(sql)
    order = tree.args.get("order") if tree is not None else None
    if tree is None or order is None:
        return None
    tree = tree.copy()
    selects = tree.selects
    names = {e.alias_or_name.lower(): i for i, e in reversed([*enumerate(selects)])}  # the first of a name, as SQLite
    texts = {(e.this if isinstance(e, exp.Alias) else e).sql("sqlite").lower(): i for i, e in enumerate(selects)}
    positions: list[int] = []
    extra: list[Any] = []
    starred = any(_is_star(e) for e in selects)  # then positions in the row are not positions in the list
    for ordered in order.expressions:
        key = ordered.this if isinstance(ordered, exp.Ordered) else ordered
        if isinstance(key, exp.Literal) and key.is_int and not starred:
            positions.append(int(key.name) - 1)
        elif isinstance(key, exp.Column) and not key.table and key.name.lower() in names and not starred:
            positions.append(names[key.name.lower()])
        elif key.sql("sqlite").lower() in texts and not starred:
            positions.append(texts[key.sql("sqlite").lower()])
        elif isinstance(tree, exp.Select) and not tree.args.get("distinct") and not isinstance(key, exp.Literal):
            positions.append(-1 - len(extra))
            extra.append(key)
        else:
            return sql, ()
    if extra and isinstance(tree, exp.Select):
        # from the end, so that a star before them does not matter
        for i, key in enumerate(reversed(extra)):
            tree.append("expressions", exp.alias_(key.copy(), f"mrtpo_key_{i}"))
    return tree.sql("sqlite"), tuple(positions)


@reading(None)
def without_limit(sql: str) -> tuple[str, tuple[int, ...], int] | None:
    """A query with ORDER BY and LIMIT, its LIMIT taken away: the query with its sort keys, their positions (see
    `with_sort_keys`), and how many rows the limit let through, offset included. None for other queries, and where the
    keys cannot be selected."""
    tree = parsed(sql)
    limit = tree.args.get("limit") if tree is not None else None
    if tree is None or limit is None or not isinstance(limit.expression, exp.Literal):
        return None
    tree = tree.copy()
    offset = tree.args.get("offset")
    kept = int(limit.expression.name) + (int(offset.expression.name) if offset is not None else 0)
    tree.set("limit", None)
    tree.set("offset", None)
    keyed = with_sort_keys(tree.sql("sqlite"))
    return (*keyed, kept) if keyed is not None and keyed[1] else None
