"""Exact-set match: two queries are made of the same parts, whatever the order, the aliases and the constants.

The metric of Spider (Yu et al. 2018, arXiv:1809.08887, section 6), on sqlglot's trees. Compared are, of each SELECT: tables,
selected expressions, conditions with how they are joined, GROUP BY, HAVING, ORDER BY and whether there is a LIMIT; and set
operations and nested queries the same way. Constants and DISTINCT are left out of it, and columns that a foreign key
links are one. As in Spider, a column says which table it is of and not which of two uses of that table (`a.name` and
`b.name` of a self-join are one), and the number of LIMIT does not matter. It says nothing about results: use it beside
execution, never in its place.

Spider's own evaluator reads a small grammar and compares nested queries as they are written; here everything that SQLite
takes is read, nested queries are compared as sets too, the sides of UNION and INTERSECT may change places, a constant
may stand on either side of its comparison, and joining tables in WHERE is joining them. What Spider's grammar lacks counts:
ALL of a UNION, OFFSET, where NULLs go, and all of a window.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from mrtpo_envs.text_to_sql.analysis import SWAPPED, Schema, parsed, reading, scopes_of

Parts = tuple[tuple[str, Any], ...]
"""Names of the parts, each with something that is equal where the parts are."""
Resolve = Callable[[exp.Column], list[str]]
_VALUE = "value"


@reading(None)
def parts_to_match(sql: str, schema: Schema, foreign: frozenset[tuple[str, str]] = frozenset()) -> Parts | None:
    """The parts of a query; None where it cannot be read.

    Args:
        schema: tables with their columns.
        foreign: pairs of `table.column`, in lower case, linked by foreign keys.
    """
    tree = parsed(sql)
    if tree is None:
        return None
    resolvers = {id(scope.expression): resolve for scope, resolve in scopes_of(sql, schema)}
    return _Reader(resolvers, _representatives(foreign)).query(tree)


def differing(gold: Parts, found: Parts) -> list[str]:
    """Names of the parts in which two queries differ."""
    one, two = dict(gold), dict(found)
    return [name for name in {**one, **two} if one.get(name) != two.get(name)]


def _representatives(foreign: frozenset[tuple[str, str]]) -> dict[str, str]:
    """For each linked column the first one of all those that are linked with it."""
    first: dict[str, str] = {}
    for pair in sorted(foreign):
        group = {first.get(column, column) for column in pair}
        for column, name in [*first.items(), *((column, column) for column in pair)]:
            if name in group or column in pair:
                first[column] = min(group)
    return first


class _Reader:
    def __init__(self, resolvers: dict[int, Resolve], first: dict[str, str]) -> None:
        self.resolvers, self.first = resolvers, first

    def query(self, node: Any) -> Parts:
        node = node.unnest()
        found: list[tuple[str, Any]] = []
        scope = self.resolvers.get(id(node), lambda column: [])
        named = {e.alias.lower(): e.this for e in node.selects if isinstance(e, exp.Alias)}
        read = functools.partial(self.read, resolve=scope, named=named if isinstance(node, exp.Select) else {})
        if (with_ := node.args.get("with_") or node.args.get("with")) is not None:
            found.append(("with", _bag(self.query(cte.this) for cte in with_.expressions)))
        if isinstance(node, exp.SetOperation):
            sides = [self.query(node.this), self.query(node.expression)]
            name = node.key if node.args.get("distinct") else f"{node.key} all"
            found.append((name, tuple(sides) if isinstance(node, exp.Except) else _bag(sides)))
        else:
            conditions = self._from(node, found, read)
            found.append(("select", _bag(read(e, values=True) for e in node.selects)))
            found.append(("where", self._conditions([node.args.get("where"), *conditions], read)))
            group = node.args.get("group")
            keys = group.expressions if group is not None else []
            found.append(("group", _bag(read(_position(key, node)) for key in keys)))
            found.append(("having", self._conditions([node.args.get("having")], read)))
        order = node.args.get("order")
        keys = order.expressions if order is not None else []
        found.append(("order", tuple((read(_position(k.this, node)), *_flags(k)) for k in keys)))
        found.append(("limit", node.args.get("limit") is not None))
        found.append(("offset", node.args.get("offset") is not None))
        return tuple(found)

    def _from(self, node: Any, found: list[tuple[str, Any]], read: Callable[..., Any]) -> list[Any]:
        """Adds the tables; gives back what ON says beside joining columns, which is a condition like those of WHERE."""
        start = node.args.get("from_") or node.args.get("from")
        joins = node.args.get("joins") or []
        sources = [s.this for s in ([start] if start is not None else []) + joins]
        found.append(
            ("from", _bag(s.name.lower() if isinstance(s, exp.Table) else self._source(s, read) for s in sources))
        )
        found.append(("outer joins", _bag(j.side.lower() for j in joins if j.side)))
        return [j.args["on"] for j in joins if j.args.get("on") is not None]

    def _source(self, source: Any, read: Callable[..., Any]) -> Any:
        return self.query(source) if isinstance(source, exp.Query) else read(source)

    def _conditions(self, roots: list[Any], read: Callable[..., Any]) -> Any:
        joined_by, units = set(), []
        todo = [root.this if isinstance(root, exp.Where | exp.Having) else root for root in roots if root is not None]
        while todo:
            node = todo.pop().unnest()
            if isinstance(node, exp.And | exp.Or):
                joined_by.add(node.key)
                todo += [node.this, node.expression]
            elif not _joins(node):
                units.append(read(node))
        return (_bag(units), tuple(sorted(joined_by)) if len(units) > 1 else ())

    def read(self, node: Any, resolve: Resolve, named: dict[str, Any], values: bool = False) -> Any:
        """What an expression says. Constants are all the same, unless `values`."""
        again = functools.partial(self.read, resolve=resolve, named=named, values=values)
        if isinstance(node, exp.Paren | exp.Alias):
            return again(node.this)
        if isinstance(node, exp.Query | exp.Subquery):
            return self.query(node)
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            name = node.name.lower()
            if real := resolve(node):
                return self.first.get(real[0], real[0])
            if name in named and not node.table:
                return self.read(named[name], resolve, {}, values)
            quoted = isinstance(node.this, exp.Identifier) and node.this.quoted and not node.table
            return _VALUE if quoted and not values else name  # a text in double quotes
        if isinstance(node, exp.Literal) or (isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)):
            return node.sql("sqlite") if values else _VALUE
        if isinstance(node, exp.In) and node.expressions:
            return ("in", again(node.this), _VALUE)
        if type(node) in SWAPPED and again(node.this) == _VALUE:
            return (SWAPPED[type(node)].key, "", again(node.expression), _VALUE)
        if isinstance(node, exp.Distinct) and len(node.expressions) == 1:
            return again(node.expressions[0])
        children = [again(child) for child in node.iter_expressions()]
        name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
        return (node.key, name, *_flags(node), *children) if children else node.sql("sqlite").lower()


def _bag(items: Any) -> frozenset[Any]:
    """Equal where the same items are in it the same number of times."""
    return frozenset(Counter(items).items())


def _flags(node: Any) -> tuple[tuple[str, Any], ...]:
    """What an expression says by words of its own and by no expression: DESC, NULLS FIRST, a window's ROWS."""
    return tuple(sorted((k, v) for k, v in node.args.items() if v and isinstance(v, bool | str) and k != "this"))


def _joins(node: Any) -> bool:
    """Whether a condition only says which columns of two tables belong together."""
    if not isinstance(node, exp.EQ):
        return False
    one, two = node.this, node.expression
    columns = isinstance(one, exp.Column) and isinstance(two, exp.Column)
    return columns and bool(one.table and two.table) and one.table.lower() != two.table.lower()


def _position(key: Any, query: Any) -> Any:
    """ORDER BY 2 and GROUP BY 2 mean the second selected expression."""
    if isinstance(key, exp.Literal) and key.is_int and 0 < int(key.name) <= len(query.selects):
        return query.selects[int(key.name) - 1]
    return key
