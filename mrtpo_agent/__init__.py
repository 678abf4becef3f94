"""LoRA training of language models against several verifiable rewards: GRPO, GDPO and MRTPO.

    from mrtpo_agent import PolicyConfig, TrainConfig, Trainer, load_policy

    Trainer(env, load_policy(PolicyConfig()), TrainConfig(), out="runs/mine").train()

Names are imported when they are first used: torch and transformers take seconds, and not every command needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrtpo_agent.config import (
        CreditConfig,
        EnvConfig,
        EvalConfig,
        OptimConfig,
        PolicyConfig,
        ReplayConfig,
        RolloutConfig,
        TrainConfig,
        WarmupConfig,
    )
    from mrtpo_agent.evaluation import Evaluation, evaluate
    from mrtpo_agent.loading import load_policy
    from mrtpo_agent.policy import Policy
    from mrtpo_agent.progress import ConsoleProgress, Progress
    from mrtpo_agent.trainer import Trainer, TrainResult
    from mrtpo_agent.warmup import warm_up

_HOME = {
    "ConsoleProgress": "progress",
    "CreditConfig": "config",
    "EnvConfig": "config",
    "EvalConfig": "config",
    "Evaluation": "evaluation",
    "OptimConfig": "config",
    "Policy": "policy",
    "PolicyConfig": "config",
    "Progress": "progress",
    "ReplayConfig": "config",
    "RolloutConfig": "config",
    "TrainConfig": "config",
    "TrainResult": "trainer",
    "Trainer": "trainer",
    "WarmupConfig": "config",
    "evaluate": "evaluation",
    "load_policy": "loading",
    "warm_up": "warmup",
}

__all__ = [
    "ConsoleProgress",
    "CreditConfig",
    "EnvConfig",
    "EvalConfig",
    "Evaluation",
    "OptimConfig",
    "Policy",
    "PolicyConfig",
    "Progress",
    "ReplayConfig",
    "RolloutConfig",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "WarmupConfig",
    "evaluate",
    "load_policy",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
