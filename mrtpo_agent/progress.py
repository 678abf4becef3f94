"""How a run shows itself: a live panel in a terminal, plain lines anywhere else, nothing at all by default.

The trainer calls a `Progress` and does not know which. The live panel says what matters while waiting: the step and the
time left, the reward of each verifier and where it is going, tokens per second, and what is being done right now.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mrtpo_agent.config import TrainConfig
from mrtpo_agent.evaluation import Evaluation, Rate

SMOOTHING = 0.7
"""Weight of the past in the moving averages that are shown; the logs hold the raw numbers."""
_BARS = "▁▂▃▄▅▆▇█"


class Progress:
    """What the trainer tells while it runs. This one shows nothing; a subclass overrides what it wants to show."""

    def start(self, config: TrainConfig, steps_done: int) -> None:
        """The run begins, `steps_done` steps in."""

    def phase(self, name: str) -> None:
        """What is being done now: sample, replay, update or evaluate."""

    def step(self, record: Mapping[str, Any]) -> None:
        """A step is over; `record` is its line of `metrics.jsonl`."""

    def evaluating(self, done: int, total: int) -> None:
        """An evaluation has `done` of `total` responses."""

    def evaluated(self, step: int, found: Evaluation) -> None:
        """An evaluation is over."""

    def interrupted(self, step: int, folder: Path | None) -> None:
        """Ctrl-C; the state after `step` steps has been saved where there is a folder."""

    def stop(self) -> None:
        """Nothing more is shown live."""

    def finished(self, before: Evaluation | None, after: Evaluation | None, folder: Path | None) -> None:
        """The run is over."""


class ConsoleProgress(Progress):
    """Live in a terminal, a plain line for each event elsewhere.

    Args:
        console: where to write; standard output where None.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._live: Live | None = None
        self._took: list[float] = []
        self._config = TrainConfig()
        self._done = 0
        self._phase = ""
        self._history: dict[str, list[float]] = {}
        self._record: Mapping[str, Any] = {}

    def start(self, config: TrainConfig, steps_done: int) -> None:
        """Shows the panel, in a terminal."""
        self._config, self._done = config, steps_done
        self.console.print(
            f"[bold]{config.method}[/bold] on {config.env.name}: {config.steps} steps of "
            f"{config.rollout.prompts_per_step} prompts x {config.rollout.group_size} responses"
            + (f", going on after step {steps_done}" if steps_done else "")
        )
        if self.console.is_terminal:
            self._live = Live(self._panel(), console=self.console, refresh_per_second=4, get_renderable=self._panel)
            self._live.start()

    def phase(self, name: str) -> None:
        """Names the phase in the panel."""
        self._phase = name

    def step(self, record: Mapping[str, Any]) -> None:
        """Moves the bar and the averages; outside a terminal, prints a line."""
        self._record, self._done = record, int(record["step"])
        self._took.append(sum(record["seconds"].values()))
        for name, value in {"mean reward": record["reward"], **record["rewards"]}.items():
            past = self._history.setdefault(name, [])
            past.append(value if not past else SMOOTHING * past[-1] + (1 - SMOOTHING) * value)
        if self._live is None:
            rewards = "  ".join(f"{name} {value:.2f}" for name, value in record["rewards"].items())
            seconds = " ".join(f"{phase} {s:.1f}" for phase, s in record["seconds"].items())
            self.console.print(
                f"step {self._done:>{len(str(self._config.steps))}}/{self._config.steps}  "
                f"reward {record['reward']:.3f}  all passed {record['all_passed']:.2f}  dead {record['dead']:.2f}  "
                f"{record['tokens_per_s']:.0f} tok/s  left {_duration(self._left())}  | {rewards} | s: {seconds}",
                soft_wrap=True,
            )

    def evaluating(self, done: int, total: int) -> None:
        """Counts the evaluation's responses in the panel."""
        self._phase = f"evaluate {done}/{total}"

    def evaluated(self, step: int, found: Evaluation) -> None:
        """Prints the held-out rates."""
        self.console.print(
            f"held-out after step {step}: {found.mean_passed.mean:.3f} of the rewards pass "
            f"({found.mean_passed.low:.2f} to {found.mean_passed.high:.2f}), all of a task's: {found.all_passed.mean:.3f}"
        )

    def interrupted(self, step: int, folder: Path | None) -> None:
        """Says what was saved and how to go on."""
        self.stop()
        if folder is None:
            self.console.print(f"\nStopped after step {step}; there is no run folder, so nothing was saved.")
        else:
            self.console.print(
                f"\nStopped after step {step}, which is saved. Go on with:\n  mrtpo train --resume {folder}",
                soft_wrap=True,
            )

    def stop(self) -> None:
        """Takes the panel away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def finished(self, before: Evaluation | None, after: Evaluation | None, folder: Path | None) -> None:
        """Prints the table of held-out pass rates before and after."""
        if before is not None and after is not None:
            self.console.print(before_after_table(before, after))
        if folder is not None:
            self.console.print(f"adapter and logs: {folder}", soft_wrap=True)

    # inside ---------------------------------------------------------------------------------------------------------

    def _left(self) -> float | None:
        if not self._took:
            return None
        return statistics.median(self._took) * (self._config.steps - self._done)

    def _panel(self) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            f"step {self._done}/{self._config.steps}",
            ProgressBar(total=self._config.steps, completed=self._done, width=40),
            f"left {_duration(self._left())}",
            f"{self._record['tokens_per_s']:.0f} tok/s" if self._record else "",
            Text(self._phase, style="cyan"),
        )
        rows = Table.grid(padding=(0, 2))
        for name, values in self._history.items():
            style = "bold" if name == "mean reward" else ""
            rows.add_row(
                Text(name, style=style), Text(f"{values[-1]:.2f}", style=style), Text(_spark(values), style="green")
            )
        return Panel(
            Group(bar, rows) if self._history else bar,
            title=f"{self._config.method} on {self._config.env.name}",
            expand=False,
        )


def _table() -> Table:
    """Narrow enough for 80 columns."""
    title = "held-out pass rates (95 % interval)"
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)


def before_after_table(before: Evaluation, after: Evaluation) -> Table:
    """Held-out pass rates before and after, a row a reward, with 95 % intervals."""
    table = _table()
    for column, side in (
        ("reward", "left"),
        ("before", "right"),
        ("after", "right"),
        ("change", "right"),
        ("n", "right"),
    ):
        table.add_column(column, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for name in sorted(before.passed.keys() | after.passed.keys()):
        table.add_row(name, *_change(before.passed.get(name), after.passed.get(name)))
    table.add_section()
    table.add_row("mean over tasks", *_change(before.mean_passed, after.mean_passed), style="bold")
    table.add_row("all of a task's rewards", *_change(before.all_passed, after.all_passed))
    return table


def evaluation_table(found: Evaluation) -> Table:
    """Held-out pass rates, a row a reward, with 95 % intervals."""
    table = _table()
    table.add_column("reward")
    for column in ("passes", "mean reward", "n"):
        table.add_column(column, justify="right")
    for name, rate in found.passed.items():
        table.add_row(name, _show(rate), f"{found.reward[name]:.3f}", str(rate.n))
    table.add_section()
    table.add_row("mean over tasks", _show(found.mean_passed), "", str(found.mean_passed.n), style="bold")
    table.add_row("all of a task's rewards", _show(found.all_passed), "", str(found.all_passed.n))
    return table


def _show(rate: Rate | None) -> str:
    return "-" if rate is None else f"{rate.mean:.2f} ({rate.low:.2f}-{rate.high:.2f})"


def _change(before: Rate | None, after: Rate | None) -> tuple[str, str, str, str]:
    change = "-" if before is None or after is None else f"{after.mean - before.mean:+.2f}"
    return _show(before), _show(after), change, str((after or before or Rate(0, 0, 0, 0)).n)


def _spark(values: list[float], width: int = 30) -> str:
    shown = values[-width:]
    low, high = min(shown), max(shown)
    if high - low < 1e-9:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, int((v - low) / (high - low) * len(_BARS)))] for v in shown)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "--:--"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"
