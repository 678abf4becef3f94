"""Environments with several verifiable rewards, and what each verifier checked.

import mrtpo_envs

env = mrtpo_envs.make("mrtpo/Instructions-v0")
prompt, info = env.reset(seed=0)
_, total, _, _, info = env.step("Some response.")
info["rewards"], info["verification"]
"""

from mrtpo_envs.answer import find_answer
from mrtpo_envs.check import CheckReport, check_env
from mrtpo_envs.env import Episode, MultiRewardEnv
from mrtpo_envs.errors import (
    ConfigError,
    DataError,
    EnvError,
    MrtpoError,
    PolicyError,
    RunError,
    TaskError,
    UnknownNameError,
)
from mrtpo_envs.registry import make, register_all, registered
from mrtpo_envs.render import render_verification
from mrtpo_envs.scoring import score, score_many
from mrtpo_envs.task import Message, Privileged, Prompt, Segment, Task, TaskSet
from mrtpo_envs.text_space import TextSpace
from mrtpo_envs.verifier import Evidence, RewardSpec, Span, Verdict, Verification, Verifier

register_all()

__all__ = [
    "CheckReport",
    "ConfigError",
    "DataError",
    "EnvError",
    "Episode",
    "Evidence",
    "Message",
    "MrtpoError",
    "MultiRewardEnv",
    "PolicyError",
    "Privileged",
    "Prompt",
    "RewardSpec",
    "RunError",
    "Segment",
    "Span",
    "Task",
    "TaskError",
    "TaskSet",
    "TextSpace",
    "UnknownNameError",
    "Verdict",
    "Verification",
    "Verifier",
    "check_env",
    "find_answer",
    "make",
    "registered",
    "render_verification",
    "score",
    "score_many",
]
