"""Whether two result tables are the same: the default rule, and the benchmarks' rules by name.

`same_result` is the default: bags of rows under one permutation of the columns, NULL equal to NULL, numbers equal within
a relative 1e-9 where one of them is a float (40 is 40.0; an infinite one equals itself alone), text never taken for a
number, and the order of rows only as far as the gold query's outermost ORDER BY fixes it: rows with equal sort keys may
stand in any order.

`bird` is BIRD's execution accuracy (sets of rows, columns by position, Python equality); `soft_f1` is BIRD mini-dev's.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, cast

RELATIVE = 1e-9
MAX_CELLS = 1_000_000
"""Cells that the search for a column order looks at (about a second). Only tables with many alike columns come near."""

Row = tuple[Any, ...]


def same_result(gold: Sequence[Row], found: Sequence[Row], blocks: Sequence[int] | None = None) -> bool | None:
    """The default rule; None where the columns are too many and too alike to tell within `MAX_CELLS`.

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
    # a row's place is the run that it stands in: part of the row for the comparison, so that one search settles both
    places = [0] * len(gold) if blocks is None else [i for i, size in enumerate(blocks) for _ in range(size)]
    if Counter(zip(places, gold_ids, strict=True)) == Counter(zip(places, found_ids, strict=True)):
        return True
    return _columns_can_be_reordered(places, gold_ids, found_ids)


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
    floats: dict[Any, bool] = {}
    for value in (v for table in tables for row in table for v in row):
        if isinstance(value, float) and math.isfinite(value):
            floats[value] = floats.get(value, True)
        elif isinstance(value, int):
            floats[value] = False
    names = _names_of_numbers(floats)

    def name(value: Any) -> Hashable:
        if isinstance(value, int | float):
            return ("number", names.get(value, value))  # an infinite one is its own name
        return (type(value).__name__, value)

    return [[tuple(name(v) for v in row) for row in table] for table in tables]


def _names_of_numbers(floats: dict[Any, bool]) -> dict[Any, int]:
    """The same name for numbers that are near each other; `floats` says of each whether it only occurs as a float.

    Nearness is not transitive, so groups grow from the nearest neighbours on, and only as long as *each pair* in them is
    near and no two are different integers.
    """
    numbers = sorted(floats)
    first, last = list(range(len(numbers))), list(range(len(numbers)))  # of the group that begins, or ends, here
    whole = [0, *itertools.accumulate(not floats[v] for v in numbers)]  # integers before each place
    if whole[-1] < len(numbers):
        gaps = [
            (high - low, i)
            for i, (low, high) in enumerate(itertools.pairwise(numbers))
            if high - low <= RELATIVE * max(abs(low), abs(high))
        ]
        for _, i in sorted(gaps):
            start, end = first[i], last[i + 1]
            low, high = numbers[start], numbers[end]
            if whole[end + 1] - whole[start] < 2 and high - low <= RELATIVE * max(abs(low), abs(high)):
                last[start], first[end] = end, start
    names: dict[Any, int] = {}
    start = 0
    while start < len(numbers):
        names.update(dict.fromkeys(numbers[start : last[start] + 1], start))
        start = last[start] + 1
    return names


def _columns_can_be_reordered(places: Sequence[int], gold: Sequence[Row], found: Sequence[Row]) -> bool | None:
    """Whether some order of the found columns makes the rows agree as bags, each in its place; None where the search
    for one was given up."""
    gold_columns, found_columns = list(zip(*gold, strict=True)), list(zip(*found, strict=True))
    width = len(gold_columns)
    alike: dict[Hashable, list[int]] = {}
    for f, column in enumerate(found_columns):
        alike.setdefault(_contents(places, column), []).append(f)
    candidates = [alike.get(_contents(places, column), []) for column in gold_columns]
    if not all(candidates):
        return False
    sequence = sorted(range(width), key=lambda g: (len(candidates[g]), -len(set(gold_columns[g]))))
    # rows that agree in the first columns of the sequence have one number; column by column, there are more numbers
    numbers: list[dict[tuple[int, Hashable], int]] = []
    counts: list[Counter[int | None]] = []
    groups: Sequence[int] = places
    for g in sequence:
        number: dict[tuple[int, Hashable], int] = {}
        groups = [number.setdefault(key, len(number)) for key in zip(groups, gold_columns[g], strict=True)]
        numbers.append(number)
        counts.append(Counter(groups))
    cells = 0

    def place(at: int, used: frozenset[int], groups: Sequence[int]) -> bool | None:
        nonlocal cells
        if at == width:
            return True
        for f in candidates[sequence[at]]:
            if f in used:
                continue
            cells += len(groups)
            if cells > MAX_CELLS:
                return None
            refined = [numbers[at].get(key) for key in zip(groups, found_columns[f], strict=True)]
            if Counter(refined) == counts[at]:  # so none of them is None
                answer = place(at + 1, used | {f}, cast("list[int]", refined))
                if answer is not False:
                    return answer
        return False

    return place(0, frozenset(), places)


def _contents(places: Sequence[int], column: Sequence[Hashable]) -> Hashable:
    """What a column holds in each place, whatever the order within it."""
    return frozenset(Counter(zip(places, column, strict=True)).items())
