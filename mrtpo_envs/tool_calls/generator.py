"""Generated tool-call tasks: requests in words for tools of a catalogue, with the calls that are due.

`catalogue.json` has 72 tools in twelve domains. For each it says how values are drawn, how they are spoken, and how a user
asks. A task offers the tools that are due among others, by preference of the same domain, so that the right one has to be
read and not guessed. Tools of the held-out split are in no training task. The same seed, split and index give the same task
in every process.

Kinds of task:

    simple     one call with the required arguments, all of them strings or numbers
    options    one call with optional arguments, or with lists, dates, booleans or nested objects
    parallel   two or three calls in any order, of one tool or of several
    sequence   two or three calls of different tools, in the order that the user says
    none       no tool that is offered can do it
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from mrtpo_envs.errors import ConfigError, unknown
from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.expected import Expected
from mrtpo_envs.tool_calls.tasks import make_task

KINDS = ("simple", "options", "parallel", "sequence", "none")
HELD_OUT = 3
"""One in this many tools of each domain is held out for the test split."""


@dataclass(frozen=True, eq=False)
class ToolKind:
    """A tool of the catalogue, and how it is asked for."""

    name: str
    domain: str
    description: str
    parameters: Mapping[str, Any]
    values: Mapping[str, Any]
    requests: tuple[str, ...]
    options: Mapping[str, str]

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as a task offers it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}

    @property
    def plain(self) -> bool:
        """Whether its required arguments are strings and numbers without more ado."""
        return all(_PLAIN & self.values[name].keys() for name in self.required)

    @property
    def required(self) -> list[str]:
        """Names of the parameters that every call has."""
        return list(self.parameters["required"])


OVERLAPS = (
    {"set_medication_reminder", "set_reminder"},
    {"set_medication_reminder", "calendar.add_event"},
    {"schedule_message", "set_reminder"},
    {"book_appointment", "calendar.add_event"},
    {"book_table", "calendar.add_event"},
    {"files.share", "send_email"},
    {"files.share", "send_text"},
    {"search_trains", "get_directions"},
    {"search_trains", "plan_route"},
    {"find_restaurants", "find_nearby"},
    {"book_hotel", "find_nearby"},
    {"compare_prices", "convert_currency"},
    {"order_food", "add_to_cart"},
    {"split_bill", "transfer_money"},
)
"""Tools of different domains of which one might do what the other is asked for."""
_PLAIN = {"pool", "integer", "number", "say"}


@functools.cache
def catalogue() -> tuple[ToolKind, ...]:
    """All tools, in order."""
    text = resources.files("mrtpo_envs.tool_calls").joinpath("catalogue.json").read_text(encoding="utf-8")
    return tuple(ToolKind(**{**entry, "requests": tuple(entry["requests"])}) for entry in json.loads(text))


@functools.cache
def tools_of(split: str) -> tuple[ToolKind, ...]:
    """The tools of a split; no tool is in both."""
    seen: dict[str, int] = {}
    found = []
    for tool in catalogue():
        place = seen[tool.domain] = seen.get(tool.domain, -1) + 1
        if (place % HELD_OUT == HELD_OUT - 1) == (split == "test"):
            found.append(tool)
    return tuple(found)


class TaskGenerator:
    """Makes the task of an index.

    Args:
        seed: decides which tasks there are.
        split: "train" or "test"; the two share no tool.
        kinds: names from `KINDS`; a kind that stands twice comes twice as often.
        n_tools: how many tools a task offers, or the smallest and the largest number.
        options: options of `make_task`: format, rewards, prefilled, lenient.

    Raises:
        UnknownNameError: no such kind. ConfigError: no kind, or a number of tools out of range.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        split: str = "train",
        kinds: str | Sequence[str] = KINDS,
        n_tools: int | Sequence[int] = (2, 4),
        **options: Any,
    ) -> None:
        self.kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        if not self.kinds:
            raise ConfigError(f"kinds must be one or more of {', '.join(KINDS)}, got none")
        for kind in self.kinds:
            if kind not in KINDS:
                raise unknown("kind", str(kind), KINDS)
        bounds = (n_tools, n_tools) if isinstance(n_tools, int) else tuple(n_tools)
        most = len(tools_of("test"))
        if len(bounds) != 2 or not all(type(n) is int for n in bounds) or not 1 <= bounds[0] <= bounds[1] <= most:
            raise ConfigError(
                f"n_tools must be a number from 1 to {most}, or the smallest and the largest, got {n_tools!r}"
            )
        self.bounds = bounds
        self.seed, self.split, self.options = seed, split, options

    def __call__(self, index: int) -> Task:
        """The task of `index`."""
        rng = random.Random(f"{self.seed}/{self.split}/{index}")
        kind = rng.choice(self.kinds)
        tools = tools_of(self.split)
        asked, words, calls = _DRAWS[kind](rng, tools)
        offered = _offered(rng, tools, asked, rng.randint(*self.bounds), due=kind != "none")
        return make_task(
            question=_framed(rng, words),
            tools=[tool.definition for tool in offered],
            expected=calls,
            ordered=kind == "sequence",
            id=f"tool_calls/{self.split}/{index}",
            metadata={"source": "generated", "kind": kind, "domain": asked[0].domain},
            **self.options,
        )


def _offered(
    rng: random.Random, tools: Sequence[ToolKind], asked: Sequence[ToolKind], size: int, *, due: bool
) -> list[ToolKind]:
    """The tools that are due, if any, and others: half of them neighbours, as long as there are some."""
    found = list(dict.fromkeys(asked)) if due else []
    near = [t for t in tools if t not in asked and t.domain in {a.domain for a in asked}]
    # Where nothing is due, a neighbour might do in part what is asked: only tools of other domains are offered, and none
    # that could stand in all the same.
    stand_ins = {name for pair in OVERLAPS for name in pair if any(a.name in pair for a in asked)}
    far = [t for t in tools if t.domain not in {a.domain for a in asked} and t.name not in stand_ins]
    rng.shuffle(near)
    rng.shuffle(far)
    while len(found) < size:
        take = near if due and near and (rng.random() < 0.5 or not far) else far
        found.append(take.pop())
    rng.shuffle(found)
    return found


Drawn = tuple[list[ToolKind], str, list[Expected]]


def _one(rng: random.Random, tool: ToolKind, optional: Sequence[str]) -> tuple[str, Expected]:
    """A request for one call, and the call."""
    drawn = {name: draw(rng, tool.values[name]) for name in [*tool.required, *optional]}
    spoken = {name: said for name, (_, said) in drawn.items()}
    words = rng.choice(tool.requests).format(**spoken)
    words += "".join(tool.options[name].format(**{name: spoken[name]}) for name in optional)
    accepted = {name: (value,) for name, (value, _) in drawn.items()}
    properties = tool.parameters["properties"]
    # A default may be said or left out, whether or not the user speaks of it.
    silent = {n: (p["default"],) for n, p in properties.items() if n not in accepted and "default" in p}
    as_default = {n for n in optional if "default" in properties[n] and drawn[n][0] == properties[n]["default"]}
    return words, Expected(tool.name, {**accepted, **silent}, frozenset(silent) | frozenset(as_default))


def _simple(rng: random.Random, tools: Sequence[ToolKind]) -> Drawn:
    tool = rng.choice([t for t in tools if t.plain])
    words, call = _one(rng, tool, ())
    return [tool], words, [call]


def _options(rng: random.Random, tools: Sequence[ToolKind]) -> Drawn:
    tool = rng.choice([t for t in tools if t.options or not t.plain])
    names = list(tool.options)
    optional = rng.sample(names, rng.randint(0 if not tool.plain else 1, len(names))) if names else []
    words, call = _one(rng, tool, [n for n in names if n in optional])
    return [tool], words, [call]


def _parallel(rng: random.Random, tools: Sequence[ToolKind]) -> Drawn:
    size = rng.choice((2, 2, 2, 3))
    simple = [t for t in tools if t.plain and len(t.required) <= 3]
    asked = [rng.choice(simple)] * size if rng.random() < 0.5 else rng.sample(simple, size)
    made = _several(rng, asked)
    joint = rng.choice(("; and ", ". Also, ", "; besides, "))
    return asked, joint.join(_within(words) if i else words for i, (words, _) in enumerate(made)), [c for _, c in made]


def _sequence(rng: random.Random, tools: Sequence[ToolKind]) -> Drawn:
    size = rng.choice((2, 2, 3))
    asked = rng.sample([t for t in tools if t.plain and len(t.required) <= 3], size)
    made = _several(rng, asked)
    words = ["First: " + made[0][0], *(f"{rng.choice(('after that', 'then', 'next'))}: {w}" for w, _ in made[1:])]
    return asked, "; ".join(words), [call for _, call in made]


def _several(rng: random.Random, asked: Sequence[ToolKind]) -> list[tuple[str, Expected]]:
    """A request for each tool, no two of them for the same call."""
    while True:
        made = [_one(rng, tool, ()) for tool in asked]
        if len({json.dumps([c.name, c.call["arguments"]], sort_keys=True) for _, c in made}) == len(asked):
            return made


def _within(words: str) -> str:
    """A request as it goes on within a sentence."""
    return words if words.startswith("I ") or words[1:2].isupper() else words[0].lower() + words[1:]


def _none(rng: random.Random, tools: Sequence[ToolKind]) -> Drawn:
    tool = rng.choice(tools)
    return [tool], _one(rng, tool, ())[0], []


_DRAWS = {"simple": _simple, "options": _options, "parallel": _parallel, "sequence": _sequence, "none": _none}

_BEFORE = ("", "", "", "", "Please help: ", "Hi. ", "One more thing. ", "Quick request: ")
_AFTER = ("", "", "", " Thanks.", " I am in a hurry.")


def _framed(rng: random.Random, words: str) -> str:
    after = rng.choice(_AFTER)
    ended = words[-1] in ".?!" or (words[-1] == '"' and not after)
    return rng.choice(_BEFORE) + words + ("" if ended else ".") + after


_MONTHS = "January February March April May June July August September October November December".split()


def draw(rng: random.Random, rule: Mapping[str, Any]) -> tuple[Any, str]:
    """A value by a rule of the catalogue, and how it is spoken."""
    if "pool" in rule:
        value = rng.choice(rule["pool"])
        return value, value
    if "integer" in rule:
        value = rng.randint(*rule["integer"])
        return value, str(value)
    if "number" in rule:
        low, high, decimals = rule["number"]
        value = round(rng.uniform(low, high), decimals)
        value = int(value) if value == int(value) else value
        return value, str(value)
    if "date" in rule:
        year, month, day = rng.randint(*rule["date"]), rng.randint(1, 12), rng.randint(1, 28)
        name = _MONTHS[month - 1]
        iso = f"{year}-{month:02}-{day:02}"
        return iso, rng.choice((iso, f"{day} {name} {year}", f"{name} {day} {year}", f"{name[:3]} {day} {year}"))
    if "say" in rule:
        value = rng.choice(list(rule["say"]))
        return value, rule["say"][value]
    if "flag" in rule:
        value = rng.random() < 0.5
        return value, rule["flag"]["true" if value else "false"]
    if "list" in rule:
        wanted = rng.randint(*rule["size"])
        found: list[tuple[Any, str]] = []
        while len(found) < wanted:
            item = draw(rng, rule["list"])
            if item[0] not in [value for value, _ in found]:
                found.append(item)
        said = [spoken for _, spoken in found]
        return [value for value, _ in found], " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
    if "object" in rule:
        parts = {key: draw(rng, part) for key, part in rule["object"].items()}
        spoken = rule["spoken"].format(**{key: said for key, (_, said) in parts.items()})
        return {key: value for key, (value, _) in parts.items()}, spoken
    raise ConfigError(f"the catalogue has a rule for values that is not known: {rule!r}")
