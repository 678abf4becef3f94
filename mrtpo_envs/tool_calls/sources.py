"""Where the environment's tasks come from, by name; each source gives training tasks and held-out ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mrtpo_envs.errors import ConfigError, DataError, unknown
from mrtpo_envs.task import Task, TaskSet
from mrtpo_envs.tool_calls import load, load_bfcl
from mrtpo_envs.tool_calls.generator import KINDS, TaskGenerator


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked of a source."""

    path: str | None
    format: str | None
    kinds: str | Sequence[str]
    n_tools: int | Sequence[int]
    categories: str | Sequence[str] | None
    seed: int
    train_size: int
    test_size: int
    skip_bad: bool
    options: dict[str, Any]
    """Options of `make_task`."""

    @property
    def written(self) -> dict[str, Any]:
        """The options, with a format where one is asked for."""
        return self.options if self.format is None else {**self.options, "format": self.format}


Pair = tuple[TaskSet, TaskSet]
TEST_SHARE = 5
"""One in this many loaded tasks is held out, by their tools."""


def _generated(w: Wanted) -> Pair:
    options = w.written
    if w.options["rewards"] == "toolrl" and w.format is None:
        options = {**options, "format": "toolrl"}
    train, test = (
        TaskSet(TaskGenerator(seed=w.seed, split=split, kinds=w.kinds, n_tools=w.n_tools, **options), size)
        for split, size in (("train", w.train_size), ("test", w.test_size))
    )
    return train, test


def _loaded(w: Wanted, tasks: list[Task]) -> Pair:
    """Dealt out so that two tasks with the same tools are on one side."""
    sides: tuple[list[Task], list[Task]] = ([], [])
    for task in tasks:
        names = "\0".join(sorted(task.metadata["parameters"])) or task.prompt.text
        held_out = (
            int.from_bytes(hashlib.sha256(names.encode("utf-8", "replace")).digest()[:4], "big") % TEST_SHARE == 0
        )
        sides[held_out].append(task)
    train, test = sides
    if not train or not test:
        raise DataError(
            f"{len(tasks)} tasks have too few sets of tools to be dealt out to two splits by them; load them with "
            "mrtpo_envs.tool_calls.load and pass task sets of your own to mrtpo_envs.MultiRewardEnv"
        )
    return TaskSet(train[: w.train_size]), TaskSet(test[: w.test_size])


def _bfcl(w: Wanted) -> Pair:
    categories = load_bfcl.BFCL_CATEGORIES if w.categories is None else w.categories
    return _loaded(w, load_bfcl.load_bfcl(w.path, categories, skip_bad=w.skip_bad, **w.written))


def _file(loader: Callable[..., list[Task]]) -> Callable[[Wanted], Pair]:
    return lambda w: _loaded(w, loader(str(w.path), skip_bad=w.skip_bad, **w.written))


SOURCES: dict[str, Callable[[Wanted], Pair]] = {
    "generated": _generated,
    "bfcl": _bfcl,
    "toolrl": _file(load.load_toolrl),
    "xlam": _file(load.load_xlam),
    "toolace": _file(load.load_toolace),
    "api-bank": _file(load.load_api_bank),
}
"""Every source by its name."""

NEEDS_PATH = ("toolrl", "xlam", "toolace", "api-bank")


def tasks_of(source: str, wanted: Wanted) -> Pair:
    """Training and held-out tasks of a source.

    Raises:
        UnknownNameError: no such source, kind, format or reward.
        ConfigError: options that do not fit the source.
        DataError: what is missing or wrong in the user's files, or a package that carries data is not installed.
    """
    if source not in SOURCES:
        raise unknown("source", str(source), SOURCES)
    if source in NEEDS_PATH and wanted.path is None:
        raise ConfigError(f"source={source!r} needs path=, the data set's file")
    if source == "generated" and wanted.path is not None:
        raise ConfigError("source='generated' takes no path; those that do are bfcl, " + ", ".join(NEEDS_PATH))
    if source != "generated" and (tuple(wanted.kinds) != KINDS or _tuple(wanted.n_tools) != (2, 4)):
        raise ConfigError(
            f"kinds and n_tools are for source='generated'; source={source!r} takes its tasks as they are"
        )
    if source != "bfcl" and wanted.categories is not None:
        raise ConfigError(f"source={source!r} has no categories; only source='bfcl' has")
    for name, size in (("train_size", wanted.train_size), ("test_size", wanted.test_size)):
        if size < 1:
            raise ConfigError(f"{name} must be at least 1, got {size!r}")
    return SOURCES[source](wanted)


def _tuple(n: int | Sequence[int]) -> tuple[int, ...]:
    return (n,) if isinstance(n, int) else tuple(n)
