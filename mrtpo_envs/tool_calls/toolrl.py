"""ToolRL's two rewards, by the published formula and with its known faults (Qian et al. 2025, arXiv 2504.13958; GDPO's
experiments use the same).

They are here to compare with published numbers. To train, prefer the default rewards: by this formula `True` equals 1,
extra calls are cheap, JSON over several lines gets the lowest score, and a call costs nothing where a reply is due.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.formats import FORMATS
from mrtpo_envs.tool_calls.verifiers import calls_of, due_text, expected_of
from mrtpo_envs.verifier import Evidence, Span, Verdict, Verifier

_THINK, _CALL, _SAY = r"<think>.*?</think>", r"<tool_call>\n.*?\n</tool_call>", r"<response>.*?</response>"
_SHAPES = {
    "call": re.compile(rf"^{_THINK}\n{_CALL}$", re.DOTALL),
    "response": re.compile(rf"^{_THINK}\n{_SAY}$", re.DOTALL),
    "both": re.compile(rf"^{_THINK}\n{_CALL}\n{_SAY}$", re.DOTALL),
    "think": re.compile(rf"^{_THINK}$", re.DOTALL),
}
_TAGS = {"call": ("tool_call",), "response": ("response",), "both": ("tool_call", "response"), "think": ()}


class ToolRLFormat(Verifier):
    """1 where the response has the gold's shape (thoughts, calls, a reply) and each of its tags once."""

    name = "toolrl_format"

    def statement(self, task: Task) -> str:
        """Nothing: the format verifier states the rule."""
        return ""

    def reference(self, task: Task) -> str:
        """The rule."""
        return FORMATS["toolrl"].statement

    def check(self, task: Task, response: str) -> Verdict:
        """0 or 1."""
        shape = str(task.metadata.get("shape") or ("call" if expected_of(task) else "response"))
        if len(response) > 100_000:
            return Verdict(0.0, "an answer too long to be read")
        whole = "<think>" * bool(task.metadata["prefilled"]) + response
        good = _SHAPES[shape].match(whole) is not None
        for tag in ("think", *_TAGS[shape]):
            good = good and whole.count(f"<{tag}>") == 1 and whole.count(f"</{tag}>") == 1
        spans = tuple(Span(*m.span()) for m in re.finditer(r"</?(?:think|tool_call|response)>", response))[:20]
        return Verdict(
            float(good), "the right shape" if good else "another shape than is due", spans or Evidence.ABSENT
        )


class ToolRLCorrectness(Verifier):
    """From -3 to 3: names, keys and values against the gold's, by ToolRL's formula. 0 for anything where a reply is due."""

    name = "toolrl_correctness"
    reward_range = (-3.0, 3.0)

    def reference(self, task: Task) -> str:
        """The expected answer."""
        return f"the right answer is {due_text(task)}"

    def check(self, task: Task, response: str) -> Verdict:
        """-3 to 3."""
        gold = [e.call for e in expected_of(task)]
        if not gold:
            return Verdict(0.0, "no call is due, so nothing is compared")
        found = calls_of(task, response)
        spans = tuple(c.span for c in found.calls[:20]) or Evidence.ABSENT
        made = _lines(response)
        if made is None:
            return Verdict(-3.0, "the calls cannot be read line by line", spans)
        score, most = _score(gold, made)
        return Verdict(6 * score / most - 3, f"{score:.3g} of {most} points", spans)


def _lines(response: str) -> list[Mapping[str, Any]] | None:
    """The calls as the published code reads them: one JSON object on each line after the first <tool_call>."""
    _, opened, rest = response.partition("<tool_call>")
    inside, closed, _ = rest.partition("</tool_call>")
    if not opened or not closed or len(inside) > 100_000:
        return None
    try:
        calls = [json.loads(line) for line in inside.strip().split("\n")]
    except (ValueError, RecursionError):
        return None
    if not all(
        isinstance(c, dict) and isinstance(c.get("name"), str) and isinstance(c.get("parameters"), dict) for c in calls
    ):
        return None
    return calls


def _score(gold: list[dict[str, Any]], made: list[Mapping[str, Any]]) -> tuple[float, int]:
    """Points, and the most there are."""
    most = 1 + sum(1 + len(g["arguments"]) for g in gold)
    if len(gold) == len(made) and all(
        g["name"] == m["name"] and g["arguments"] == m["parameters"] for g, m in zip(gold, made, strict=True)
    ):
        return float(most), most
    score = _jaccard(Counter(g["name"] for g in gold), Counter(m["name"] for m in made))
    unused = list(made)
    for g in gold:
        rated = [
            (_agreement(g["arguments"], m["parameters"]), i) for i, m in enumerate(unused) if m["name"] == g["name"]
        ]
        if rated:
            points, i = max(rated, key=lambda r: (r[0], -r[1]))
            score += points
            del unused[i]
    return score, most


def _agreement(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> float:
    equal = sum(bool(k in given and given[k] == v) for k, v in wanted.items())
    return _jaccard(Counter(wanted.keys()), Counter(given.keys())) + equal


def _jaccard(one: Counter[str], two: Counter[str]) -> float:
    union = (one | two).total()
    return (one & two).total() / union if union else 1.0
