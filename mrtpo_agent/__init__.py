"""LoRA training of language models against several verifiable rewards: GRPO, GDPO and MRTPO.

from mrtpo_agent import PolicyConfig, TrainConfig, Trainer, load_policy

Trainer(env, load_policy(PolicyConfig()), TrainConfig(), out="runs/mine").train()
"""

from mrtpo_agent.config import (
    EnvConfig,
    EvalConfig,
    OptimConfig,
    PolicyConfig,
    ReplayConfig,
    RolloutConfig,
    TrainConfig,
)
from mrtpo_agent.credit import CreditConfig
from mrtpo_agent.evaluate import Evaluation, evaluate
from mrtpo_agent.loading import load_policy
from mrtpo_agent.policy import Policy
from mrtpo_agent.progress import ConsoleProgress
from mrtpo_agent.trainer import Trainer, TrainResult

__all__ = [
    "ConsoleProgress",
    "CreditConfig",
    "EnvConfig",
    "EvalConfig",
    "Evaluation",
    "OptimConfig",
    "Policy",
    "PolicyConfig",
    "ReplayConfig",
    "RolloutConfig",
    "TrainConfig",
    "TrainResult",
    "Trainer",
    "evaluate",
    "load_policy",
]
