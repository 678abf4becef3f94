"""Verdicts as text that a person reads: the response with its evidence marked, then a table of rewards.

    I love trains, ships and planes.
                 ^                      no_comma

Each line of the response that holds evidence is followed by a line of marks for each reward that points into it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from mrtpo_envs.env import Episode
from mrtpo_envs.verifier import Evidence, Span, Verification

_GREEN, _RED, _YELLOW, _DIM, _OFF = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


def render_episode(episode: Episode) -> str:
    """The task's prompt, and each response given with its verdicts."""
    parts = [episode.task.prompt.text]
    for turn in episode.turns:
        parts.append(render_verification(turn.response, turn.verification))
        if turn.feedback is not None:
            parts.append(turn.feedback)
    return "\n\n".join(parts)


def render_verification(response: str, verification: Verification, *, color: bool = False) -> str:
    """The response with its evidence marked, and a table of rewards.

    Args:
        response: what was judged.
        verification: its verdicts.
        color: use the terminal's colours: green passed, red not, yellow could not be judged.
    """
    return "\n".join([*_marked(response, verification, color), "", *_table(verification, color)])


def _marked(response: str, verification: Verification, color: bool) -> list[str]:
    out, start = [], 0
    for line in response.split("\n"):
        end = start + len(line)
        cells = [_visible(c) for c in line]
        out.append("".join(cells))
        for name, verdict in verification.verdicts.items():
            marks = _marks(cells, start, end, verdict.spans)
            if marks:
                out.append(_painted(f"{marks}  {name}", verification.passed(name), color))
        start = end + 1
    return out


def _marks(cells: Sequence[str], start: int, end: int, spans: Sequence[Span]) -> str:
    """Carets under the characters of the line that `spans` cover; under its end where only its line break is covered."""
    covered = [False] * (end - start + 1)
    for span in spans:
        for i in range(max(span.start, start), min(span.end, end + 1)):
            covered[i - start] = True
    if not any(covered):
        return ""
    if any(covered[:-1]):
        covered[-1] = False
    widths = [*(_width(cell) for cell in cells), 1]
    return "".join(("^" if hit else " ") * width for hit, width in zip(covered, widths, strict=True)).rstrip()


def _visible(character: str) -> str:
    """A character as it can be shown on one line: control characters and lone surrogates as escapes."""
    if character == "\t":
        return "    "
    category = unicodedata.category(character)
    if category in ("Cc", "Cs") or (category == "Cf" and character != "\u200d"):
        return f"\\u{ord(character):04x}"
    return character


def _width(cell: str) -> int:
    """Columns that a cell takes in a terminal."""
    if len(cell) != 1:
        return len(cell)
    if unicodedata.combining(cell) or cell in "\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(cell) in "WF" else 1


def _table(verification: Verification, color: bool) -> list[str]:
    names = list(verification.verdicts)
    wide = max((len(name) for name in names), default=0)
    out = []
    for name in names:
        verdict, spec = verification.verdicts[name], verification.specs[name]
        value = "  n/a" if verdict.reward is None else f"{verdict.reward:5.2f}"
        reach = "" if (spec.low, spec.high) == (0, 1) else f" of {spec.low:g}..{spec.high:g}"
        where = " (nothing to point at)" if verdict.evidence is Evidence.ABSENT else ""
        outcome = "".join(_visible(c) for c in verdict.outcome)
        out.append(
            _painted(f"{name:<{wide}}  {value}{reach}", verification.passed(name), color) + f"  {outcome}{where}"
        )
    out.append(f"{'total':<{wide}}  {verification.total:5.2f}")
    return out


def _painted(text: str, passed: bool | None, color: bool) -> str:
    if not color:
        return text
    return {True: _GREEN, False: _RED, None: _YELLOW}[passed] + text + _OFF
