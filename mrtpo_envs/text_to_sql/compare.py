"""Whether two result tables are the same: the default rule, and the benchmarks' rules by name.

`same_result` is the default: bags of rows under one permutation of the columns, NULL equal to NULL, numbers equal within
a relative 1e-9 where one of them is a float (40 is 40.0), text never taken for a number, and the order of rows only as
far as the gold query's outermost ORDER BY fixes it: rows with equal sort keys may stand in any order.

`bird` is BIRD's execution accuracy (sets of rows, columns by position, Python equality); `soft_f1` is BIRD mini-dev's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

RELATIVE = 1e-9
MAX_TRIES = 20_000
"""Partial column assignments that are tried. Only tables with many alike columns come near; they then must agree as
they stand."""

Row = tuple[Any, ...]


def same_result(gold: Sequence[Row], found: Sequence[Row], blocks: Sequence[int] | None = None) -> bool:
    """The default rule.

    Args:
        gold: the gold query's rows.
        found: the response's rows.
        blocks: sizes of the runs of gold rows with equal sort keys, where the gold's order matters; None where not.
    """
    if len(gold) != len(found):
        return False
    if not gold:
        return True
    if len(gold[0]) != len(found[0]):
        return False
    if list(gold) == list(found):  # most right answers; Python's equality of SQLite's values is no looser than ours
        return True
    gold_ids, found_ids = _with_equal_values_named_alike(gold, found)
    order = _column_order(gold_ids, found_ids)
    if order is None:
        return False
    if blocks is None:
        return True
    start = 0
    for size in blocks:
        part = slice(start, start + size)
        if Counter(gold_ids[part]) != Counter(tuple(row[c] for c in order) for row in found_ids[part]):
            return False
        start += size
    return True


def bird(gold: Sequence[Row], found: Sequence[Row]) -> bool:
    """BIRD's execution accuracy: order and duplicates do not matter, columns stand by position, floats are exact."""
    return set(gold) == set(found)


def soft_f1(gold: Sequence[Row], found: Sequence[Row]) -> float:
    """BIRD mini-dev's soft F1: rows without duplicates, paired by position, the share of cells that each side has."""
    if not gold and not found:
        return 1.0
    gold_rows, found_rows = list(dict.fromkeys(gold)), list(dict.fromkeys(found))
    matched = only_found = only_gold = 0.0
    for i in range(max(len(gold_rows), len(found_rows))):
        if i >= len(found_rows):
            only_gold += 1
        elif i >= len(gold_rows):
            only_found += 1
        else:
            g, f = gold_rows[i], found_rows[i]
            width = max(1, len(g))
            matched += sum(v in g for v in f) / width
            only_found += sum(v not in g for v in f) / width
            only_gold += sum(v not in f for v in g) / width
    precision = matched / (matched + only_found) if matched + only_found else 0.0
    recall = matched / (matched + only_gold) if matched + only_gold else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def cell_f1(gold: Sequence[Row], found: Sequence[Row]) -> float:
    """F1 of the cells as a bag, wherever they stand: a dense reward for a result that is partly right."""
    gold_ids, found_ids = _with_equal_values_named_alike(gold, found)
    ours = Counter(v for row in found_ids for v in row)
    theirs = Counter(v for row in gold_ids for v in row)
    both = sum((ours & theirs).values())
    total = sum(ours.values()) + sum(theirs.values())
    return 2 * both / total if total else 1.0


def _with_equal_values_named_alike(*tables: Sequence[Row]) -> list[list[Row]]:
    """The tables with each value replaced by a name, the same for values that count as equal."""
    numbers = sorted(
        {
            (float(v) if abs(v) < 1 << 52 else v, isinstance(v, float))
            for t in tables
            for r in t
            for v in r
            if _is_number(v)
        },
        key=lambda pair: pair[0],
    )
    names: dict[Hashable, int] = {}
    current = -1
    last: Any = None
    last_float = False
    for value, is_float in numbers:
        near = (
            last is not None and (is_float or last_float) and abs(value - last) <= RELATIVE * max(abs(value), abs(last))
        )
        if not (near or value == last):
            current += 1
        names[value] = current
        last, last_float = value, is_float

    def name(value: Any) -> Hashable:
        if _is_number(value):
            return ("number", names[float(value) if abs(value) < 1 << 52 else value])
        return (type(value).__name__, value)

    return [[tuple(name(v) for v in row) for row in table] for table in tables]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _column_order(gold: Sequence[Row], found: Sequence[Row]) -> list[int] | None:
    """For each gold column, the found column that plays its part, so that the rows agree as bags; None where none does."""
    width = len(gold[0])
    gold_columns = [Counter(row[c] for row in gold) for c in range(width)]
    found_columns = [Counter(row[c] for row in found) for c in range(width)]
    candidates = [[f for f in range(width) if found_columns[f] == gold_columns[g]] for g in range(width)]
    if not all(candidates):
        return None
    sequence = sorted(range(width), key=lambda g: (len(candidates[g]), -len(gold_columns[g])))
    tries = 0

    def place(at: int, chosen: dict[int, int]) -> dict[int, int] | None:
        nonlocal tries
        if at == width:
            return chosen
        g = sequence[at]
        # a column that stands where the gold's does is tried first
        for f in sorted(candidates[g], key=lambda f: f != g):
            if f in chosen.values():
                continue
            tries += 1
            if tries > MAX_TRIES:
                return None
            extended = {**chosen, g: f}
            keys = list(extended)
            ours = Counter(tuple(row[extended[k]] for k in keys) for row in found)
            if ours == Counter(tuple(row[k] for k in keys) for row in gold):
                complete = place(at + 1, extended)
                if complete is not None:
                    return complete
        return None

    complete = place(0, {})
    return None if complete is None else [complete[g] for g in range(width)]
