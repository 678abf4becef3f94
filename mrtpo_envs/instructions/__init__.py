"""Instruction constraints: IFEval's 25 kinds and some of IFBench's, each a verifier and a reward of its own.

`make_task` makes a task from a prompt and published ids, `load_jsonl` reads a file of them, `TaskGenerator` draws tasks,
`witness` writes a response that meets a generated task's constraints, and `KINDS` is every kind by its id.
"""

from mrtpo_envs.instructions import formats, keywords, lengths, positions  # noqa: F401  (they register their kinds)
from mrtpo_envs.instructions.constraint import KINDS, Constraint, make_constraint
from mrtpo_envs.instructions.env import InstructionsEnv
from mrtpo_envs.instructions.generator import TaskGenerator, witness
from mrtpo_envs.instructions.tasks import load_jsonl, make_task

__all__ = [
    "KINDS",
    "Constraint",
    "InstructionsEnv",
    "TaskGenerator",
    "load_jsonl",
    "make_constraint",
    "make_task",
    "witness",
]
