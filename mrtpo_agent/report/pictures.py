"""Draws a run folder as one picture, from its logs alone.

Left, each reward's held-out pass rate before and after, with 95 % intervals. Right above, the mean training reward by
step. Right below, one sampled response, its tokens shaded by their weight for each reward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mrtpo_agent.checkpoint import RunFolder
from mrtpo_agent.evaluation import Evaluation
from mrtpo_envs.errors import RunError

BEFORE, AFTER, INK, FAINT = "#b3a58f", "#1f6f8b", "#222222", "#888888"
SHADE = "#e07b39"
WIDTH = 64
"""Characters in a line of a shown response."""


def draw_run(folder: str | Path, out: str | Path | None = None) -> Path:
    """Draws the run in `folder`.

    Args:
        folder: a run folder with an evaluation and at least one step.
        out: where to write the picture (PNG or SVG by its ending); `report.png` in the folder where None.

    Returns:
        The picture's path.

    Raises:
        RunError: the folder holds too little to draw.
    """
    run = RunFolder(folder)
    config = run.config()
    metrics, evals, rollouts = (run.read(name) for name in ("metrics.jsonl", "evals.jsonl", "rollouts.jsonl"))
    if not metrics or len(evals) < 2:
        raise RunError(f"{folder} has {len(metrics)} steps and {len(evals)} evaluations: a picture needs 1 and 2")
    shown = pick_rollout(rollouts)
    figure = Figure(figsize=(13, 6.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1, 1.25], height_ratios=[1, 1.5 if shown else 0.01])
    before, after = (Evaluation.from_dict(evals[i]["evaluation"]) for i in (0, -1))
    _rates(figure.add_subplot(grid[:, 0]), before, after, int(evals[-1]["step"]))
    _curve(figure.add_subplot(grid[0, 1]), metrics)
    if shown is not None:
        _tokens(figure.add_subplot(grid[1, 1]), shown)
    figure.suptitle(f"{config.method} on {config.env.name}, {config.policy.model}", color=INK)
    path = Path(out) if out is not None else run.path / "report.png"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, dpi=110, facecolor="white")
    return path


def pick_rollout(rollouts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The rollout that shows most: late, several rewards looked into, evidence to compare with, and short."""

    def worth(record: Mapping[str, Any]) -> tuple[int, int, int]:
        told = [
            v for n, v in record["verification"].items() if n in record["weight"] and isinstance(v["evidence"], list)
        ]
        passed = sum(v["reward"] == v["range"][1] for v in told)
        return passed, int(record["step"]), -len(record["tokens"])

    usable = [r for r in rollouts if r.get("weight") and "spans" in r and len(r["response"]) > 20]
    plain = [r for r in usable if len(r["weight"]) >= 2 and r["response"].isascii()]
    return max(plain or usable, key=worth, default=None)


def _rates(axes: Axes, before: Evaluation, after: Evaluation, step: int) -> None:
    names = sorted(after.passed, key=lambda n: after.passed[n].mean)
    rows = [(n, before.passed.get(n), after.passed[n]) for n in names]
    rows.append(("mean over tasks", before.mean_passed, after.mean_passed))
    for row, (_, old, new) in enumerate(rows):
        y = row + 0.6 * (row == len(rows) - 1)
        for rate, color, shift in ((old, BEFORE, -0.12), (new, AFTER, 0.12)):
            if rate is not None:
                axes.plot([rate.low, rate.high], [y + shift] * 2, color=color, alpha=0.45, linewidth=3)
                axes.plot(rate.mean, y + shift, "o", color=color, markersize=6)
    ticks = [y + 0.6 * (y == len(rows) - 1) for y in range(len(rows))]
    axes.set_yticks(ticks, [name for name, _, _ in rows])
    axes.get_yticklabels()[-1].set_fontweight("bold")
    axes.set_xlim(-0.02, 1.02)
    axes.set_title("held-out pass rate", loc="left", fontsize=11)
    axes.plot([], [], "o", color=BEFORE, label="before")
    axes.plot([], [], "o", color=AFTER, label=f"after {step} steps")
    axes.legend(loc="lower right", frameon=False)
    _tidy(axes)


def _curve(axes: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    steps = [m["step"] for m in metrics]
    rewards = [m["reward"] for m in metrics]
    axes.plot(steps, rewards, ".", color=AFTER, alpha=0.5)
    window = max(1, min(5, len(rewards) // 3))
    smooth = [
        sum(rewards[max(0, i - window + 1) : i + 1]) / len(rewards[max(0, i - window + 1) : i + 1])
        for i in range(len(rewards))
    ]
    axes.plot(steps, smooth, color=AFTER, linewidth=2)
    axes.set_title(f"mean training reward by step (line: mean of {window})", loc="left", fontsize=11)
    axes.set_ylim(0, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _tidy(axes)


def _tokens(axes: Axes, record: Mapping[str, Any]) -> None:
    """The response once for each reward, each token on a ground as dark as its weight, evidence underlined."""
    axes.set_axis_off()
    axes.set_title("a response, tokens shaded by weight, evidence underlined", loc="left", fontsize=11)
    lines = _wrapped(record["tokens"])
    names = list(record["weight"])[:3]
    total = sum(len(lines) + 1.6 for _ in names)
    y = 1.0
    step = 1.0 / total
    for name in names:
        verdict = record["verification"][name]
        axes.text(0, y, f"{name}: {verdict['outcome']}", fontsize=9, color=INK, fontweight="bold", va="top")
        y -= step
        weight = record["weight"][name]
        evidence = verdict["evidence"] if isinstance(verdict["evidence"], list) else []
        for line in lines:
            for index, column, text in line:
                start, end = record["spans"][index]
                pointed = any(start < b and a < end for a, b in evidence)
                left, right = column / WIDTH, (column + len(text)) / WIDTH
                shade = min(1.0, weight[index] / 4)
                axes.fill_between(
                    [left, right], y - step * 0.92, y - step * 0.02, color=SHADE, alpha=shade, linewidth=0
                )
                if pointed:
                    axes.plot([left, right], [y - step * 0.9] * 2, color=AFTER, linewidth=1.6)
                axes.text(left, y - step * 0.5, text, family="monospace", fontsize=8.2, va="center", color=INK)
            y -= step
        y -= step * 0.6
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def _wrapped(tokens: Sequence[str]) -> list[list[tuple[int, int, str]]]:
    """Lines of (token's index, column, text to show)."""
    lines: list[list[tuple[int, int, str]]] = [[]]
    column = 0
    for index, token in enumerate(tokens):
        text = token.replace("\n", "\u21b5").replace("\t", "\u2192").replace("$", r"\$") or " "
        if column + len(text) > WIDTH:
            lines.append([])
            column = 0
        lines[-1].append((index, column, text))
        column += len(text)
    return lines


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=FAINT, labelcolor=INK)
    axes.grid(axis="x" if axes.get_yticklabels() else "both", alpha=0.15)
