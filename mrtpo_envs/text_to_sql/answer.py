"""Where the query is in a response.

The stated rule: one SQL query in a fenced code block marked `sql`. Several blocks are a train of thought, and the last
one is the answer. Without a closed block the format is not met, but what was clearly meant is still judged, so that the
other rewards tell good from bad: the text of a block that is open or that closes in the middle of a line, or an answer
that begins as a query does.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from mrtpo_envs.answer import find_answer

STATEMENT = "Answer with one SQLite query in a code block that begins with ```sql."
_FENCE = re.compile(r"^[ \t]*```[ \t]*([A-Za-z0-9_]*)[ \t]*\r?\n", re.MULTILINE)
_CLOSE = re.compile(r"^[ \t]*```[ \t]*\r?$", re.MULTILINE)
_BEGINS = re.compile(r"\s*(?:SELECT|WITH|VALUES)\b", re.IGNORECASE)


class SqlAnswer(NamedTuple):
    """The query in a response."""

    sql: str
    """The query; empty where there is none."""
    start: int
    """Where it begins in the response."""
    well_formed: bool
    """Whether the stated rule is met."""
    found: str
    """What was found, in words."""


@functools.lru_cache(maxsize=1024)
def find_sql(response: str) -> SqlAnswer:
    """The query in any string."""
    answer = find_answer(response)
    if not answer.given:
        return SqlAnswer("", len(response), False, "the reasoning never ends: there is no answer")
    text, offset = answer.text, answer.start
    at, last = 0, None
    while opening := _FENCE.search(text, at):
        # a block ends at the next fence, wherever that stands; it is closed where that is a line of its own
        end = text.find("```", opening.end())
        end = end if end >= 0 else len(text)
        closing = _CLOSE.match(text, text.rfind("\n", 0, end) + 1)
        if closing is None or opening.group(1).lower() in ("sql", "sqlite", ""):
            last = (opening, end, closing)
        at = end if closing is None else closing.end()
    if last is not None:
        opening, end, closing = last
        sql, start = _stripped(text, opening.end(), end)
        marked = opening.group(1).lower() in ("sql", "sqlite")
        if closing is None:
            return SqlAnswer(sql, offset + start, False, "a code block that is not closed on a line of its own")
        found = "one query in a code block" if marked else "a code block that is not marked sql"
        return SqlAnswer(sql, offset + start, marked and bool(sql), found if sql else "an empty code block")
    if _BEGINS.match(text):
        sql, start = _stripped(text, 0, len(text))
        return SqlAnswer(sql, offset + start, False, "a query without a code block")
    return SqlAnswer("", len(response), False, "no query")


def _stripped(text: str, start: int, end: int) -> tuple[str, int]:
    part = text[start:end]
    return part.strip(), start + len(part) - len(part.lstrip())
