"""BFCL's AST verdict, ours beside the published checker's, on its own questions: agreement, and verdicts a second.

    python benchmarks/bfcl_agreement.py [--every 1] [--out FILE.json]

Every single-turn question of the package bfcl-eval is turned into responses: each gold call with each accepted value, and
mutations of it (names, missing, extra, swapped, retyped and reordered arguments, changed strings, doubled, dropped and
reordered calls, broken syntax, and what is no literal). The checker of bfcl-eval decodes and judges each response, and so
do we; where the two differ, the difference must be of a kind that is listed in `KINDS` with the reason why ours is right,
or the script fails. Rates are medians of interleaved rounds over the same responses, reading included, with nothing
remembered.

bfcl-eval is used as it is installed; modules of it that call models over the network are replaced by empty ones, because its
checker only needs a table of theirs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import gc
import io
import json
import keyword
import random
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from mrtpo_envs import Task
from mrtpo_envs.tool_calls import load_bfcl
from mrtpo_envs.tool_calls.formats import _find

ROUNDS = 5

KINDS = {
    "matching": "calls in parallel can be matched so that all fit; the published loop takes the first that fits",
    "numbers in strings": 'a string that is a number keeps its sign and point: "-1.5" is not "15"',
    "no literal": "arithmetic (which the checker evaluates), a bare name, a call or an odd sign is no value",
    "sign": "+5 is 5; the published decoder reads every sign as a minus",
    "keyword": "a parameter may be called as a word of Python is (`from`); the published decoder reads no such call",
    "java strings": "the quotes of a Java string within an array are no part of its value",
    "positional": "an argument without a name is refused, and not dropped without a word",
    "twice": "a name that is given twice has no one value",
    "form": "the stated form is a list in brackets with nothing round it",
    "attempt": "a call that cannot be read is no abstention",
    "crash": "the published checker raises; ours gives a verdict",
}


def published() -> Callable[[Task, str], bool]:
    """bfcl-eval's own verdict on a response: decoded and checked as its evaluation does."""

    class Model:
        underscore_to_dot = False

    empty: dict[str, dict[str, Any]] = {
        "bfcl_eval.constants.model_config": {"MODEL_CONFIG_MAPPING": {"model": Model}},
        "bfcl_eval.model_handler.parser.java_parser": {"parse_java_function_call": None},
        "bfcl_eval.model_handler.parser.js_parser": {"parse_javascript_function_call": None},
        "tenacity": dict.fromkeys(
            (
                "retry",
                "retry_if_exception_message",
                "retry_if_exception_type",
                "wait_random_exponential",
                "stop_after_attempt",
            )
        ),
    }
    for name, attributes in empty.items():
        with contextlib.suppress(ImportError):
            if name == "tenacity":
                __import__(name)
                continue
        module = types.ModuleType(name)
        vars(module).update(attributes)
        sys.modules[name] = module
    from bfcl_eval.constants.enums import Language, ReturnFormat
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.model_handler.utils import ast_parse

    languages = {"python": Language.PYTHON, "java": Language.JAVA, "javascript": Language.JAVASCRIPT}

    def verdict(task: Task, response: str) -> bool:
        own = task.privileged["bfcl"]
        try:
            made = ast_parse(response, ReturnFormat.PYTHON)
        except Exception:
            made = None
        if "irrelevance" in own["category"]:
            return not made
        if "relevance" in own["category"]:
            return bool(made)
        if made is None:
            return False
        language = languages[task.metadata["language"]]
        return bool(ast_checker(own["functions"], made, own["answers"], language, own["category"], "model")["valid"])

    return verdict


def source(calls: list[tuple[str, dict[str, Any]]]) -> str:
    """The calls in Python's syntax."""
    return "[" + ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls) + "]"


def responses(task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Responses to a task, each with the name of what was done to it."""
    due = task.privileged["expected"]
    if not due:
        yield from abstentions(task)
        return
    gold = [(e.name, {k: v[0] for k, v in e.accepted.items() if v}) for e in due]
    yield "gold", source(gold)
    least = [(n, {k: v for k, v in a.items() if k not in e.optional}) for (n, a), e in zip(gold, due, strict=True)]
    yield "optional left out", source(least)
    for i, e in enumerate(due):
        for k, values in e.accepted.items():
            for value in values[1:4]:
                yield "another accepted value", source(with_(gold, i, k, value))
    for i, (name, arguments) in enumerate(gold[:3]):
        yield "wrong name", source([*gold[:i], (name + "_2", arguments), *gold[i + 1 :]])
        yield "extra argument", source(with_(gold, i, "one_more", 1))
        yield "reordered arguments", source([*gold[:i], (name, dict(reversed(arguments.items()))), *gold[i + 1 :]])
        for k, value in arguments.items():
            yield (
                "missing argument",
                source([*gold[:i], (name, {j: v for j, v in arguments.items() if j != k}), *gold[i + 1 :]]),
            )
            for what, other in mutated(value, rng):
                yield what, source(with_(gold, i, k, other))
        if len(arguments) > 1:
            one, two = rng.sample(sorted(arguments), 2)
            swapped = {**arguments, one: arguments[two], two: arguments[one]}
            yield "swapped values", source([*gold[:i], (name, swapped), *gold[i + 1 :]])
            yield "twice", source(gold).replace(f"{one}=", f"{one}=0, {one}=", 1)
        if arguments:
            key, value = next(iter(arguments.items()))
            text = source(gold)
            yield "positional", text.replace(f"{key}={value!r}", f"7, {key}={value!r}", 1)
            yield "no literal", text.replace(f"{key}={value!r}", f"{key}={rng.choice(NO_LITERALS)}", 1)
            if isinstance(value, str) and value.isidentifier():
                yield "no literal", text.replace(f"{key}={value!r}", f"{key}={value}", 1)
            if type(value) is int and value >= 0:
                yield "sign", text.replace(f"{key}={value!r}", f"{key}=+{value}", 1)
            if type(value) is int:
                yield "no literal", text.replace(f"{key}={value!r}", f"{key}={value - 1} + 1", 1)
                yield "no literal", text.replace(f"{key}={value!r}", f"{key}=~{-value}", 1)
    yield "doubled call", source([*gold, gold[0]])
    yield "dropped call", source(gold[:-1])
    if len(gold) > 1:
        yield "reordered calls", source(gold[::-1])
        yield "matching", source([*gold[1:], gold[0]])
    text = source(gold)
    yield "form", text[1:-1]
    yield "form", f"'{text}'"
    yield "broken", text[:-1]
    yield "broken", text[:-2] + "]"
    yield "broken", text.replace("=", ":", 1)
    yield "broken", text.replace("'", "", 1)
    yield "broken", f"Here you are: {text}"
    yield "broken", f"{text} Done."
    yield "broken", ""
    yield "broken", "None of these can do that."


NO_LITERALS = (
    "x",
    "x.y",
    "f()",
    "f(1)",
    "not True",
    "3 * 4",
    "a[0]",
    "...",
    "{1, 2}",
    "1 if True else 2",
    "b'x'",
    "f'{x}'",
)


def abstentions(task: Task) -> Iterator[tuple[str, str]]:
    """Responses where no call is due, or any."""
    name = task.privileged["bfcl"]["functions"][0]["name"] if task.privileged["bfcl"]["functions"] else "f"
    yield "words", "None of these can do that."
    yield "call", f"[{name}(x=1)]"
    yield "call", f"[{name}()]"
    yield "broken", f"[{name}(x="
    yield "broken", f"[{name}(1 2)]"
    yield "no literal", f"[{name}(x=yes)]"
    yield "form", f"{name}(x=1)"
    yield "empty", "[]"
    yield "empty", ""


def with_(calls: list[tuple[str, dict[str, Any]]], i: int, key: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """The calls with one argument set."""
    return [(n, {**a, key: value}) if j == i else (n, a) for j, (n, a) in enumerate(calls)]


def mutated(value: Any, rng: random.Random) -> Iterator[tuple[str, Any]]:
    """Other values in the place of one."""
    if isinstance(value, bool):
        yield "retyped", int(value)
        yield "retyped", str(value)
        yield "other value", not value
    elif isinstance(value, (int, float)):
        yield "retyped", str(value)
        yield "retyped", float(value) if isinstance(value, int) else int(value)
        yield "other value", value + 1
        yield "other value", -value
    elif isinstance(value, str):
        yield "other case", value.swapcase()
        yield "other marks", value.replace(" ", rng.choice(("-", "_", "", "/", ", ")))
        yield "other marks", rng.choice(("-", ".", "*")) + value
        yield "other value", value + "x"
        yield "other value", value[:-1]
        yield "retyped", [value]
        yield "retyped", 5
        digits = [i for i, c in enumerate(value) if c.isdigit()]
        if len(digits) > 1:
            yield "numbers in strings", value[: digits[0] + 1] + "." + value[digits[0] + 1 :]
    elif isinstance(value, list):
        yield "reordered list", value[::-1]
        yield "dropped item", value[:-1]
        yield "doubled item", [*value, *value[-1:]]
        yield "retyped", tuple(value)
        yield "retyped", [str(v) for v in value]
        yield "retyped", {"items": value}
    elif isinstance(value, dict):
        for key in list(value)[:3]:
            yield "dropped key", {k: v for k, v in value.items() if k != key}
            for what, other in mutated(value[key], rng):
                yield what, {**value, key: other}
        yield "extra key", {**value, "one_more": 1}
        yield "retyped", list(value.items())


def kind_of(what: str, task: Task, response: str, ours: bool, theirs: bool | None) -> str | None:
    """Which listed kind of difference this is, or None."""
    if theirs is None:
        return "crash"
    irrelevance = "relevance" in task.privileged["bfcl"]["category"]
    if irrelevance and what in ("broken", "empty", "no literal", "form"):
        return "form" if what == "form" else "attempt"
    if what in ("no literal", "positional", "twice", "form") and not ours:
        return what
    if what in ("matching", "reordered calls", "gold") and ours and len(task.privileged["expected"] or ()) > 1:
        return "matching"
    if what == "sign" and ours:
        return what
    if ours and any(keyword.iskeyword(k) for e in task.privileged["expected"] or () for k in e.accepted):
        return "keyword"
    if ours and task.metadata["language"] == "java" and '[]{"' in response:
        return "java strings"
    if what in ("other marks", "numbers in strings", "other value") and not ours:
        return "numbers in strings"
    return None


Pair = tuple[Task, str, str]
"""A task, what was done to its gold calls, and the response."""


def pairs_of(tasks: list[Task]) -> list[Pair]:
    """Every response to every task, each once."""
    rng = random.Random(0)
    return [(t, what, r) for t in tasks for what, r in {r: (w, r) for w, r in responses(t, rng)}.values()]


@dataclasses.dataclass
class Agreement:
    """How often the two verdicts agree."""

    table: dict[str, collections.Counter[str]]
    differing: collections.Counter[str]
    unlisted: list[tuple[str, str, bool, bool | None, str]]


def compare(pairs: list[Pair], theirs: Callable[[Task, str], bool]) -> Agreement:
    """Both verdicts on each response."""
    found = Agreement(collections.defaultdict(collections.Counter), collections.Counter(), [])
    for task, what, response in pairs:
        reward = task.verifiers[0].check(task, response).reward
        if reward is None:
            raise SystemExit(f"no verdict on {response!r} to {task.id}")
        ours = reward == 1.0
        other: bool | None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                other = theirs(task, response)
        except Exception:
            other = None
        row = found.table[task.privileged["bfcl"]["category"]]
        row["responses"] += 1
        row["right by ours"] += ours
        if ours == other:
            row["agree"] += 1
        elif (kind := kind_of(what, task, response, ours, other)) is None:
            found.unlisted.append((task.id, what, ours, other, response))
        else:
            found.differing[kind] += 1
    return found


def rates_of(pairs: list[Pair], theirs: Callable[[Task, str], bool]) -> dict[str, list[float]]:
    """Verdicts a second, ours and theirs, in interleaved rounds."""
    rates: dict[str, list[float]] = {"ours": [], "bfcl-eval": []}
    for _ in range(ROUNDS):
        for name in rates:
            _find.cache_clear()
            gc.collect()
            start = time.perf_counter()
            if name == "ours":
                for task, _, response in pairs:
                    task.verifiers[0].check(task, response)
            else:
                for task, _, response in pairs:
                    with contextlib.suppress(Exception):
                        theirs(task, response)
            rates[name].append(len(pairs) / (time.perf_counter() - start))
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description="BFCL's AST verdict: agreement with bfcl-eval, and rates")
    parser.add_argument("--every", type=int, default=1, help="take one in this many questions")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of Python's parser on what the checker makes it parse
    theirs = published()
    pairs = pairs_of(load_bfcl(format="bfcl_python", rewards=["bfcl"])[:: arguments.every])
    found = compare(pairs, theirs)
    for category, row in found.table.items():
        print(f"{category:24} {row['responses']:6} responses, {row['right by ours']:6} right, {row['agree']:6} agree")
    agree = sum(row["agree"] for row in found.table.values())
    print(f"{'all':24} {len(pairs):6} responses, {agree} agree, {len(found.unlisted)} differ in no listed way; listed:")
    for kind, count in found.differing.most_common():
        print(f"  {count:6} {kind}: {KINDS[kind]}")
    for task_id, what, ours, other, response in found.unlisted[:20]:
        print("NOT LISTED", task_id, what, "ours", ours, "theirs", other, response[:300])
    rates = rates_of([p for p in pairs if p[1] not in ("no literal", "empty")], theirs)
    ours_rate, their_rate = (statistics.median(r) for r in rates.values())
    print(f"{ours_rate:.0f} verdicts a second, bfcl-eval {their_rate:.0f}: ratio {ours_rate / their_rate:.2f}")
    if arguments.out:
        written = dataclasses.asdict(found) | {"unlisted": len(found.unlisted), "rates": rates}
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(written, file, indent=1)
    sys.exit(bool(found.unlisted))


if __name__ == "__main__":
    main()
