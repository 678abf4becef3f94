"""Evaluation on held-out tasks: how often each reward passes, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from mrtpo_agent.clock import Clock
from mrtpo_agent.config import TrainConfig
from mrtpo_agent.policy import Policy
from mrtpo_agent.rollout import Group, collect
from mrtpo_envs.env import MultiRewardEnv

Z95 = 1.959963984540054
"""The normal distribution's 97.5 % point."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int
    """Responses (for a reward's rate) or tasks (for the mean over rewards) behind it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What `evaluate` found."""

    passed: dict[str, Rate]
    """Share of responses at the reward's highest value, by reward; Wilson's interval. Responses that could not be
    judged are left out."""
    reward: dict[str, float]
    """Mean reward by name, on the reward's own scale."""
    mean_passed: Rate
    """Mean over tasks of the share of their rewards that pass; normal interval over tasks."""
    all_passed: Rate
    """Share of responses whose every reward passes; Wilson's interval."""
    truncated: float
    """Share of responses that met the token limit."""
    tokens: float
    """Mean response length, in tokens."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Evaluation:
        """Reads what `to_dict` wrote."""
        return cls(
            {name: Rate(**rate) for name, rate in data["passed"].items()},
            dict(data["reward"]),
            Rate(**data["mean_passed"]),
            Rate(**data["all_passed"]),
            data["truncated"],
            data["tokens"],
        )


def evaluate(
    policy: Policy,
    env: MultiRewardEnv,
    *,
    tasks: int,
    samples: int = 1,
    batch_size: int = 64,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Evaluation, list[Group]]:
    """Samples answers to the first `tasks` tasks of the environment's test split and judges them.

    The same seed gives the same tasks and the same random numbers, so that two policies are compared in pairs.

    Args:
        progress: called with responses done and responses in all.

    Returns:
        The evaluation, and the rollouts behind it.
    """
    held_out = env.tasks("test")
    chosen = [held_out[i] for i in range(min(tasks, len(held_out)))]
    per_batch = max(1, batch_size // samples)
    groups: list[Group] = []
    for start in range(0, len(chosen), per_batch):
        part = chosen[start : start + per_batch]
        groups += collect(
            policy,
            env,
            part,
            group_size=samples,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seeds=[seed * 1_000_003 + start + i for i in range(len(part))],
            clock=Clock(),
        )
        if progress is not None:
            progress(len(groups) * samples, len(chosen) * samples)
    return summarise(groups), groups


def evaluate_as_configured(
    policy: Policy, env: MultiRewardEnv, config: TrainConfig, progress: Callable[[int, int], None] | None = None
) -> Evaluation:
    """`evaluate` with a run's settings."""
    settings = config.evaluation
    found, _ = evaluate(
        policy,
        env,
        tasks=settings.tasks,
        samples=settings.samples,
        batch_size=settings.batch_size,
        max_new_tokens=config.rollout.max_new_tokens,
        temperature=settings.temperature or config.rollout.temperature,
        seed=config.seed,
        progress=progress,
    )
    return found


def summarise(groups: list[Group]) -> Evaluation:
    """The evaluation of rollouts that are there already."""
    passed: dict[str, list[bool]] = {}
    reward: dict[str, list[float]] = {}
    by_task, everything = [], []
    rollouts = [r for group in groups for r in group.rollouts]
    for group in groups:
        shares = []
        for rollout in group.rollouts:
            verification = rollout.verification
            judged = {n: p for n in verification.verdicts if (p := verification.passed(n)) is not None}
            for name, ok in judged.items():
                passed.setdefault(name, []).append(ok)
                reward.setdefault(name, []).append(float(verification[name].reward or 0.0))
            everything.append(verification.all_passed)
            if judged:
                shares.append(sum(judged.values()) / len(judged))
        if shares:
            by_task.append(sum(shares) / len(shares))
    n = max(1, len(rollouts))
    return Evaluation(
        {name: wilson(sum(oks), len(oks)) for name, oks in sorted(passed.items())},
        {name: sum(values) / len(values) for name, values in sorted(reward.items())},
        _within(normal(by_task), 0.0, 1.0),
        wilson(sum(everything), len(everything)),
        sum(r.truncated for r in rollouts) / n,
        sum(sum(r.is_policy) for r in rollouts) / n,
    )


def _within(rate: Rate, low: float, high: float) -> Rate:
    """The interval cut to where the mean can be."""
    return Rate(rate.mean, max(low, rate.low), min(high, rate.high), rate.n)


def wilson(successes: int, n: int) -> Rate:
    """A share with Wilson's 95 % score interval, which holds near 0 and 1 and for few responses."""
    if n == 0:
        return Rate(0.0, 0.0, 1.0, 0)
    p = successes / n
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n * n)) / (1 + Z95**2 / n)
    return Rate(p, max(0.0, centre - half), min(1.0, centre + half), n)


def normal(values: list[float]) -> Rate:
    """A mean with its normal 95 % interval."""
    n = len(values)
    mean = sum(values) / max(1, n)
    if n < 2:  # one value says nothing of its spread
        return Rate(mean, -math.inf, math.inf, n)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    half = Z95 * deviation / math.sqrt(n)
    return Rate(mean, mean - half, mean + half, n)
