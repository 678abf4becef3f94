"""What calls are due, and how far the calls that were made are from them.

Two values are the same under JSON's types: a boolean is no number, 1 and 1.0 are the same number, strings are compared
letter by letter, lists in order. Calls in parallel are a multiset, matched to the expected ones so that most agrees; a
sequence is matched in its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mrtpo_envs.errors import TaskError


@dataclass(frozen=True, slots=True)
class Expected:
    """One call that is due."""

    name: str
    accepted: Mapping[str, tuple[Any, ...]]
    """For each parameter the values that are right, the best first."""
    optional: frozenset[str] = frozenset()
    """Parameters that may be left out."""

    @property
    def call(self) -> dict[str, Any]:
        """The call with its best values, without what may be left out."""
        arguments = {k: v[0] for k, v in self.accepted.items() if k not in self.optional and v}
        return {"name": self.name, "arguments": arguments}


def expected_call(given: Any) -> Expected:
    """The expected call that `{"name": ..., "arguments": {...}}` describes, or `given` itself where it is one already.

    Raises:
        TaskError: it is neither.
    """
    if isinstance(given, Expected):
        return given
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise TaskError(f'an expected call is {{"name": ..., "arguments": {{...}}}}, got {given!r:.200}')
    arguments = given.get("arguments", given.get("parameters", {}))
    if not isinstance(arguments, Mapping) or not all(isinstance(k, str) for k in arguments):
        raise TaskError(f"expected call {given['name']!r}: arguments must be an object, got {arguments!r:.200}")
    return Expected(given["name"], {k: (v,) for k, v in arguments.items()})


def same(one: Any, two: Any) -> bool:
    """Whether two values are the same JSON value."""
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, (int, float)) and isinstance(two, (int, float)):
        return one == two
    if isinstance(one, str) or isinstance(two, str):
        return isinstance(one, str) and isinstance(two, str) and one == two
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        return one.keys() == two.keys() and all(same(v, two[k]) for k, v in one.items())
    return one is None and two is None


def agreement(due: Expected, name: str, arguments: Mapping[str, Any] | None) -> float:
    """From 0 to 1: the share of parameters, among those due and those given, that are given and right.

    0 under another name or without an object of arguments; 1 for the right call, also where it has no parameters.
    """
    if name != due.name or arguments is None:
        return 0.0
    wanted = {k for k in due.accepted if k not in due.optional or k in arguments}
    right = sum(k in due.accepted and any(same(v, a) for a in due.accepted[k]) for k, v in arguments.items())
    keys = len(wanted | set(arguments))
    return right / keys if keys else 1.0


def assignment(weights: Sequence[Sequence[float]]) -> list[int | None]:
    """The column of each row in an assignment of greatest total weight; None for a row without a column.

    The Hungarian method with potentials, O(rows^2 columns) (Kuhn 1955, Munkres 1957). Weights must not be negative.
    """
    rows, columns = len(weights), max((len(row) for row in weights), default=0)
    if not rows or not columns:
        return [None] * rows
    size = max(rows, columns)
    cost = [[-weights[i][j] if i < rows and j < columns else 0.0 for j in range(size)] for i in range(size)]
    row_potential, column_potential = [0.0] * (size + 1), [0.0] * (size + 1)
    row_of, previous = [0] * (size + 1), [0] * (size + 1)  # 1-based; 0 means free
    for i in range(1, size + 1):
        row_of[0], j = i, 0
        least, seen = [float("inf")] * (size + 1), [False] * (size + 1)
        while row_of[j]:
            seen[j] = True
            step, following = float("inf"), 0
            for k in range(1, size + 1):
                if not seen[k]:
                    reduced = cost[row_of[j] - 1][k - 1] - row_potential[row_of[j]] - column_potential[k]
                    if reduced < least[k]:
                        least[k], previous[k] = reduced, j
                    if least[k] < step:
                        step, following = least[k], k
            for k in range(size + 1):
                if seen[k]:
                    row_potential[row_of[k]] += step
                    column_potential[k] -= step
                else:
                    least[k] -= step
            j = following
        while j:
            row_of[j] = row_of[previous[j]]
            j = previous[j]
    found: list[int | None] = [None] * rows
    for column, row in enumerate(row_of[1 : columns + 1]):
        if 1 <= row <= rows:
            found[row - 1] = column
    return found
