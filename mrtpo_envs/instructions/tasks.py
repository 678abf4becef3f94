"""Tasks from instruction ids and arguments, given in code or in IFEval's JSON lines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError, MrtpoError, TaskError
from mrtpo_envs.instructions.constraint import Constraint, Rule, Strictness, make_constraint
from mrtpo_envs.instructions.text import sentences
from mrtpo_envs.options import checked
from mrtpo_envs.task import Message, Prompt, Segment, Task, TaskSet


@checked(TaskError)
def make_task(
    *,
    prompt: str,
    instruction_id_list: Sequence[str],
    kwargs: Sequence[Mapping[str, Any] | None] | None = None,
    add_statements: bool = False,
    rule: Rule = "worded",
    strictness: Strictness = "strict",
    id: str = "",
) -> Task:
    """A task in IFEval's terms: a prompt, and the constraints that an answer must meet, each a reward of its own.

    Args:
        prompt: the user's words. Where they state a constraint in a sentence of its own, that sentence becomes the
            constraint's statement; a constraint that is not found so is replayed with its wording as a hint.
        instruction_id_list: published ids, such as "punctuation:no_comma". The same id twice makes two rewards.
        kwargs: arguments of each, None values dropped as data sets pad with them.
        add_statements: the prompt states nothing yet: append each constraint's wording to it.
        rule: "worded", or "published" for figures that compare with published ones.
        strictness: "strict" or "loose".

    Raises:
        UnknownNameError: an id that is not known, with the nearest ones.
        TaskError: a value of the wrong type, a blank prompt, no constraint at all, or arguments that do not fit.
    """
    if not prompt.strip():
        raise TaskError(f"prompt must not be blank, got {prompt!r}")
    if not instruction_id_list:
        raise TaskError(f"instruction_id_list must be a list of one or more ids, got {instruction_id_list!r}")
    arguments = [{}] * len(instruction_id_list) if kwargs is None else [dict(k or {}) for k in kwargs]
    if len(arguments) != len(instruction_id_list):
        raise TaskError(f"{len(instruction_id_list)} instruction ids, but {len(arguments)} sets of arguments")
    constraints = []
    for name, given in zip(instruction_id_list, arguments, strict=True):
        try:
            constraints.append(make_constraint(name, given, rule=rule, strictness=strictness))
        except (TypeError, OverflowError) as error:  # an argument named "rule", an infinite number
            raise TaskError(f"{name}: these arguments do not fit: {given!r:.200}: {error}") from error
    name_apart(constraints)
    if add_statements:
        parts = [Segment(prompt)] + [Segment(f"\n- {c.describe()}", c.name) for c in constraints]
    else:
        parts = _with_statements(prompt, constraints)
    return Task(Prompt((Message("user", tuple(parts)),)), tuple(constraints), id=id, metadata={"source": "ifeval"})


def name_apart(constraints: Sequence[Constraint]) -> None:
    """Gives the second constraint of a kind the name `kind_2`, and so on."""
    seen: dict[str, int] = {}
    for constraint in constraints:
        short = constraint.short_name()
        seen[short] = seen.get(short, 0) + 1
        constraint.name = short if seen[short] == 1 else f"{short}_{seen[short]}"


@checked()
def load_jsonl(
    path: str | Path, *, rule: Rule = "worded", strictness: Strictness = "strict", skip_bad: bool = False
) -> InstructionFile:
    """Tasks of a file in IFEval's format: JSON lines with `key`, `prompt`, `instruction_id_list` and `kwargs`.

    Args:
        skip_bad: leave lines out that are no good task, and say which in `skipped`, instead of raising.

    Raises:
        DataError: the file cannot be read or holds no task, or (without `skip_bad`) a line is bad; names file, line, cause.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:  # no home, no UTF-8, a NUL in the path
        raise DataError(f"cannot read {str(path)!r}: {error}") from error
    tasks, skipped = [], []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise TaskError(f"a line is an object with fields, got {type(row).__name__}")
            missing = [k for k in ("prompt", "instruction_id_list", "kwargs") if k not in row]
            if missing:
                raise TaskError(f"missing {', '.join(missing)}; a line has key, prompt, instruction_id_list and kwargs")
            task = make_task(
                prompt=row["prompt"],
                instruction_id_list=row["instruction_id_list"],
                kwargs=row["kwargs"],
                rule=rule,
                strictness=strictness,
                id=str(number if row.get("key") is None else row["key"]),
            )
            if (other := seen.setdefault(task.id, number)) != number:
                raise TaskError(f"its key {task.id!r} is that of line {other} too")
        except (MrtpoError, ValueError, RecursionError) as error:
            if not skip_bad:
                raise DataError(f"{path}, line {number}: {error}") from error
            skipped.append((number, str(error)))
            continue
        tasks.append(task)
    if not tasks:
        raise DataError(f"{path} holds no task" + (f"; {len(skipped)} bad lines" if skipped else ""))
    return InstructionFile(tasks, skipped)


class InstructionFile(TaskSet):
    """The tasks of a file, and the lines that were left out."""

    def __init__(self, tasks: Sequence[Task], skipped: Sequence[tuple[int, str]]) -> None:
        super().__init__(tasks)
        self.skipped = list(skipped)
        """Line number and reason of each line that was left out."""


def _with_statements(prompt: str, constraints: Sequence[Constraint]) -> list[Segment]:
    """The prompt cut so that a sentence that states one constraint, and surely that one, is its segment."""
    spans = sentences(prompt)
    matched = {
        c.name: [
            i for i, (a, b) in enumerate(spans) if c.cue and re.search(c.cue, prompt[a:b], re.IGNORECASE | re.DOTALL)
        ]
        for c in constraints
    }
    owner: dict[int, str] = {}
    for constraint in constraints:
        found = matched[constraint.name]
        alone = len(found) == 1 and sum(found[0] in other for other in matched.values()) == 1
        constraint.stated = alone and len(spans) > 1
        if constraint.stated:
            owner[found[0]] = constraint.name
    parts, at = [], 0
    for i, (start, end) in enumerate(spans):
        if i in owner:
            begin = start - (len(prompt[at:start]) - len(prompt[at:start].rstrip()))  # its white space goes with it
            parts += [Segment(prompt[at:begin]), Segment(prompt[begin:end], owner[i])]
            at = end
    parts.append(Segment(prompt[at:]))
    return [part for part in parts if part.text]
