"""Generated text-to-SQL tasks: small databases, questions and gold queries of graded difficulty.

A *theme* is a pair of tables, one naming the other by a foreign key. Each task draws its rows, a question form of some
*level* and the values in it. A draw is kept only if its gold query gives a result that is not empty, is not the whole
table where it filters, and does not hang on a tie. Themes of the test split share no table name with the training ones,
so no schema is in both. The same seed, split and index give the same task in every process.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from mrtpo_envs.errors import ConfigError, TaskError, unknown
from mrtpo_envs.options import checked
from mrtpo_envs.task import Task
from mrtpo_envs.text_to_sql.tasks import make_task, require_settings
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS


@dataclass(frozen=True, slots=True)
class Theme:
    """Two tables: things with a name, a kind and a number; and records that belong to them."""

    table: str
    kind: str
    kinds: tuple[str, ...]
    number: str
    low: int
    high: int
    child: str
    place: str
    places: tuple[str, ...]
    amount: str

    def setup(self, rng: random.Random) -> str:
        """SQL that makes the tables and fills them."""
        names = rng.sample(_NAMES, rng.randint(7, 10))
        rows = [
            f"({i}, '{name}', '{rng.choice(self.kinds)}', {rng.randint(self.low, self.high)})"
            for i, name in enumerate(names, 1)
        ]
        records = [
            f"({i}, {rng.randint(1, len(names))}, '{rng.choice(self.places)}', {rng.randint(1, 40) * 5})"
            for i in range(1, rng.randint(10, 16))
        ]
        return (
            f"CREATE TABLE {self.table} (id INTEGER PRIMARY KEY, name TEXT, {self.kind} TEXT, {self.number} INTEGER);\n"
            f"CREATE TABLE {self.child} (id INTEGER PRIMARY KEY, {self.table}_id INTEGER REFERENCES {self.table}(id), "
            f"{self.place} TEXT, {self.amount} INTEGER);\n"
            f"INSERT INTO {self.table} VALUES {', '.join(rows)};\n"
            f"INSERT INTO {self.child} VALUES {', '.join(records)};"
        )


_NAMES = (
    "Ada Ben Cleo Dan Eva Finn Gina Hugo Ida Jan Kim Leo Mia Ned Ola Pia Quin Rosa Sam Tess Uma Vic Wes Xena Yara Zoe"
).split()


def _theme(line: str) -> Theme:
    table, kind, kinds, number, low, high, child, place, places, amount = line.split("|")
    return Theme(
        table,
        kind,
        tuple(kinds.split(",")),
        number,
        int(low),
        int(high),
        child,
        place,
        tuple(places.split(",")),
        amount,
    )


THEMES = {
    "train": [
        _theme(line)
        for line in """
singer|country|France,Spain,Italy,Japan|age|18|70|concert|city|Rome,Oslo,Lima,Cairo|tickets
student|major|Biology,History,Law,Music|year|1|6|exam|subject|Algebra,Poetry,Optics,Logic|score
employee|department|Sales,Legal,Design,Support|salary|30|90|trip|destination|Bern,Graz,Turin,Porto|cost
player|team|Lions,Bears,Hawks,Sharks|goals|0|40|game|stadium|North,South,East,West|minutes
farmer|region|Hills,Coast,Plain,Valley|cows|2|60|harvest|crop|Wheat,Corn,Beans,Oats|tons
doctor|ward|Heart,Eyes,Bones,Skin|patients|5|80|visit|room|A1,B2,C3,D4|duration
driver|company|Swift,Metro,Cargo,Blue|trips|1|90|delivery|district|Harbor,Center,Park,Hill|weight
author|genre|Crime,Poetry,Travel,Drama|books|1|25|review|magazine|Globe,Times,Mirror,Echo|stars
member|plan|Basic,Family,Gold,Student|months|1|48|booking|court|Red,Green,Blue,White|price
seller|category|Toys,Tools,Food,Shoes|sales|10|99|parcel|carrier|Fast,Cheap,Green,Night|kilos
""".strip().split("\n")
    ],
    "test": [
        _theme(line)
        for line in """
pilot|airline|Nordic,Iberia,Delta,Alpine|flights|3|95|landing|airport|Basel,Dublin,Malaga,Riga|delay
teacher|school|Oak,Elm,Pine,Maple|classes|1|12|lesson|topic|Drama,Physics,Latin,Chess|pupils
painter|style|Cubism,Realism,Pop,Baroque|works|4|88|auction|house|Smith,Lang,Ortiz,Weiss|bids
climber|club|Summit,Ridge,Peak,Rock|climbs|2|70|ascent|mountain|Eiger,Denali,Elbrus,Fuji|hours
""".strip().split("\n")
    ],
}

Draw = Callable[[random.Random, Theme], tuple[str, str]]
"""A question and its gold query; values that the rows must fit are drawn here and tried against them."""


def _filter(rng: random.Random, t: Theme) -> tuple[str, str]:
    kind, n = rng.choice(t.kinds), rng.randint(t.low, t.high)
    return rng.choice(
        [
            (f"What are the names of the {t.table}s whose {t.kind} is {kind}?",
             f"SELECT name FROM {t.table} WHERE {t.kind} = '{kind}'"),
            (f"List the name and {t.number} of every {t.table} with {t.kind} {kind}.",
             f"SELECT name, {t.number} FROM {t.table} WHERE {t.kind} = '{kind}'"),
            (f"Which {t.table}s have more than {n} {t.number}? Give their names.",
             f"SELECT name FROM {t.table} WHERE {t.number} > {n}"),
            (f"Show the names of {t.table}s with {t.number} under {n}, in order of their name.",
             f"SELECT name FROM {t.table} WHERE {t.number} < {n} ORDER BY name"),
        ]
    )  # fmt: skip


def _aggregate(rng: random.Random, t: Theme) -> tuple[str, str]:
    kind, place = rng.choice(t.kinds), rng.choice(t.places)
    return rng.choice(
        [
            (f"How many {t.table}s are there?", f"SELECT count(*) FROM {t.table}"),
            (f"How many {t.table}s have the {t.kind} {kind}?",
             f"SELECT count(*) FROM {t.table} WHERE {t.kind} = '{kind}'"),
            (f"What is the average {t.number} of all {t.table}s?", f"SELECT avg({t.number}) FROM {t.table}"),
            (f"What is the largest {t.amount} of a {t.child} in {place}?",
             f"SELECT max({t.amount}) FROM {t.child} WHERE {t.place} = '{place}'"),
            (f"What is the total {t.amount} of all {t.child}s?", f"SELECT sum({t.amount}) FROM {t.child}"),
        ]
    )  # fmt: skip


def _group(rng: random.Random, t: Theme) -> tuple[str, str]:
    n = rng.randint(1, 2)
    return rng.choice(
        [
            (f"How many {t.table}s are there for each {t.kind}?",
             f"SELECT {t.kind}, count(*) FROM {t.table} GROUP BY {t.kind}"),
            (f"For each {t.place}, what is the total {t.amount} of its {t.child}s?",
             f"SELECT {t.place}, sum({t.amount}) FROM {t.child} GROUP BY {t.place}"),
            (f"Which {t.kind}s have more than {n} {t.table}s?",
             f"SELECT {t.kind} FROM {t.table} GROUP BY {t.kind} HAVING count(*) > {n}"),
            (f"What is the average {t.number} for each {t.kind}?",
             f"SELECT {t.kind}, avg({t.number}) FROM {t.table} GROUP BY {t.kind}"),
        ]
    )  # fmt: skip


def _join(rng: random.Random, t: Theme) -> tuple[str, str]:
    place, kind = rng.choice(t.places), rng.choice(t.kinds)
    joined = f"{t.table} JOIN {t.child} ON {t.child}.{t.table}_id = {t.table}.id"
    return rng.choice(
        [
            (f"What are the names of the {t.table}s with a {t.child} in {place}?",
             f"SELECT DISTINCT {t.table}.name FROM {joined} WHERE {t.child}.{t.place} = '{place}'"),
            (f"List each {t.child}'s {t.amount} with the name of its {t.table}.",
             f"SELECT {t.table}.name, {t.child}.{t.amount} FROM {joined}"),
            (f"What is the total {t.amount} of the {t.child}s of {t.table}s with {t.kind} {kind}?",
             f"SELECT sum({t.child}.{t.amount}) FROM {joined} WHERE {t.table}.{t.kind} = '{kind}'"),
            (f"How many {t.child}s does each {t.table} have? Give the name and the number, leaving out those without.",
             f"SELECT {t.table}.name, count(*) FROM {joined} GROUP BY {t.table}.id"),
        ]
    )  # fmt: skip


def _nested(rng: random.Random, t: Theme) -> tuple[str, str]:
    return rng.choice(
        [
            (f"Which {t.table}s have a {t.number} above the average? Give their names.",
             f"SELECT name FROM {t.table} WHERE {t.number} > (SELECT avg({t.number}) FROM {t.table})"),
            (f"What are the names of the {t.table}s without any {t.child}?",
             f"SELECT name FROM {t.table} WHERE id NOT IN (SELECT {t.table}_id FROM {t.child})"),
            (f"Which {t.table} has the highest {t.number}? Give the name.",
             f"SELECT name FROM {t.table} WHERE {t.number} = (SELECT max({t.number}) FROM {t.table})"),
        ]
    )  # fmt: skip


def _set(rng: random.Random, t: Theme) -> tuple[str, str]:
    one, two = rng.sample(t.places, 2)
    side = f"SELECT {t.table}_id FROM {t.child} WHERE {t.place} = "
    return rng.choice(
        [
            (f"Give the {t.table}_id of those with a {t.child} in {one} but none in {two}.",
             f"{side}'{one}' EXCEPT {side}'{two}'"),
            (f"Give the {t.table}_id of those with a {t.child} in {one} and also one in {two}.",
             f"{side}'{one}' INTERSECT {side}'{two}'"),
            (f"Give the {t.table}_id of those with a {t.child} in {one} or in {two}, each once.",
             f"{side}'{one}' UNION {side}'{two}'"),
        ]
    )  # fmt: skip


LEVELS: dict[str, Draw] = {
    "filter": _filter,
    "aggregate": _aggregate,
    "group": _group,
    "join": _join,
    "nested": _nested,
    "set": _set,
}
"""Levels from easy to hard."""


def known_levels(levels: Sequence[str], known: Collection[str]) -> None:
    """Raises ConfigError or UnknownNameError where `levels` are not one or more of those known."""
    if not levels:
        raise ConfigError(f"levels must be a list of one or more of {', '.join(known)}; got {levels!r}")
    for level in levels:
        if level not in known:
            raise unknown("level", level, known)


class TaskGenerator:
    """Makes task `index` of a split, the same one every time.

    Args:
        seed: another seed, other tasks.
        split: "train" or "test".
        levels: names from `LEVELS`.
        rewards: names from `REWARDS`.
        options: of `make_task`.

    Raises:
        ConfigError, UnknownNameError: impossible options.
    """

    @checked()
    def __init__(
        self,
        *,
        seed: int = 0,
        split: str = "train",
        levels: Sequence[str] = ("filter", "aggregate", "group", "join"),
        rewards: Sequence[str] = DEFAULT_REWARDS,
        **options: Any,
    ) -> None:
        known_levels(levels, LEVELS)
        if split not in THEMES:
            raise ConfigError(f"split must be one of {', '.join(THEMES)}, got {split!r}")
        require_settings(rewards=rewards, **options)
        self.seed, self.split, self.levels, self.rewards = seed, split, list(levels), tuple(rewards)
        self.options = options

    def __call__(self, index: int) -> Task:
        """Task `index`."""
        rng = random.Random(f"sql/{self.seed}/{self.split}/{index}")
        theme, level = rng.choice(THEMES[self.split]), rng.choice(self.levels)
        for _ in range(200):
            setup = theme.setup(rng)
            question, gold = LEVELS[level](rng, theme)
            if _tells(setup, gold, theme):
                return make_task(
                    question=question,
                    gold_sql=gold,
                    setup_sql=setup,
                    rewards=self.rewards,
                    id=f"sql-{self.split}-{self.seed}-{index}",
                    metadata={"source": "generated", "level": level, "database": theme.table},
                    **self.options,
                )
        raise TaskError(f"no {level} question was found for the theme {theme.table!r}")


def _tells(setup: str, gold: str, theme: Theme) -> bool:
    """Whether the gold result tells a right query from a wrong one: not empty, no NULL or 0 alone, no filter in vain."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(setup)
        rows = connection.execute(gold).fetchall()
        if not rows or rows in ([(None,)], [(0,)]):
            return False
        if " WHERE " in gold and gold.startswith("SELECT name FROM"):
            return len(rows) < len(connection.execute(f"SELECT id FROM {theme.table}").fetchall())
        return True
    finally:
        connection.close()
