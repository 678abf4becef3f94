"""Where the answer is in a response: the same rule for every domain.

A reasoning model writes `<think>...</think>` first. One leading block, up to its *first* closing tag, is not part of
the answer; what follows is, byte for byte. A block that never closes means that no answer was given. Later tags are
ordinary text: cutting at the last one would let a model hide a bad answer before a second closing tag.
"""

from __future__ import annotations

from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"


class Answer(NamedTuple):
    """The part of a response that the user sees."""

    text: str
    start: int
    """Index in the response at which `text` begins: add it to a position in `text` to point into the response."""
    given: bool
    """False where the reasoning never ended: there is no answer, and `text` is empty."""


def find_answer(response: str, *, prefilled: bool = False) -> Answer:
    """The answer within `response`.

    Args:
        response: any string.
        prefilled: the prompt itself ends with the opening tag, so that the response begins inside the block.
    """
    inside = prefilled or response.lstrip().startswith(OPEN)
    if not inside:
        return Answer(response, 0, True)
    close = response.find(CLOSE)
    if close < 0:
        return Answer("", len(response), False)
    start = close + len(CLOSE)
    return Answer(response[start:], start, True)
