"""What is written down of a step and of a rollout, as plain dictionaries for JSON lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mrtpo_agent.clock import Clock
from mrtpo_agent.credit import Credit
from mrtpo_agent.loss import LossStats
from mrtpo_agent.policy import Policy
from mrtpo_agent.rollout import Group
from mrtpo_agent.tokens import token_spans


def step_record(
    step: int, groups: Sequence[Group], stats: LossStats, clock: Clock, lr: float, grad_norm: float, skipped: int
) -> dict[str, Any]:
    """One line of `metrics.jsonl`.

    `rewards` holds each reward's mean over the rollouts that have it; `dead` the share of (group, reward) pairs without
    spread; `seconds` the time by phase; `tokens_per_s` the sampled tokens over all of it.
    """
    rollouts = [r for g in groups for r in g.rollouts]
    rewards: dict[str, list[float]] = {}
    unjudged = 0
    for rollout in rollouts:
        for name, reward in rollout.verification.rewards.items():
            if reward is None:
                unjudged += 1
            else:
                rewards.setdefault(name, []).append(reward)
    spread = [
        bool(judged) and max(judged) > min(judged)
        for g in groups
        for column in g.rewards.T.tolist()
        for judged in [[x for x in column if not math.isnan(x)]]
    ]
    tokens = sum(sum(g.lengths) for g in groups)
    total = sum(clock.seconds.values())
    everything = [x for values in rewards.values() for x in values]
    return {
        "step": step,
        "reward": _mean(everything),
        "rewards": {name: _mean(values) for name, values in sorted(rewards.items())},
        "all_passed": _mean([float(r.verification.all_passed) for r in rollouts]),
        "dead": 1.0 - _mean([float(x) for x in spread]),
        "unjudged": unjudged,
        "length": tokens / max(1, len(rollouts)),
        "truncated": _mean([float(r.truncated) for r in rollouts]),
        "tokens": tokens,
        "tokens_per_s": tokens / total if total else 0.0,
        "seconds": {phase: round(s, 4) for phase, s in clock.seconds.items()},
        "lr": lr,
        "grad_norm": grad_norm if math.isfinite(grad_norm) else None,
        **stats.to_dict(),
        "skipped": skipped,
    }


def rollout_records(
    policy: Policy, step: int, groups: Sequence[Group], credits: Sequence[Credit | None]
) -> list[dict[str, Any]]:
    """Lines of `rollouts.jsonl`: the best and the worst rollout of each group, each token with its credit."""
    records = []
    for group, credit in zip(groups, credits, strict=True):
        totals = [r.verification.total for r in group.rollouts]
        chosen = sorted({totals.index(max(totals)), totals.index(min(totals))})
        for g in chosen:
            rollout = group.rollouts[g]
            record: dict[str, Any] = {
                "step": step,
                "task": group.task.id,
                "prompt": group.task.prompt.messages(),
                "response": rollout.text,
                "truncated": rollout.truncated,
                "turns": rollout.turns,
                "verification": rollout.verification.to_dict(),
                "tokens": [policy.tokenizer.decode([i]) for i in rollout.ids],
                "is_policy": list(rollout.is_policy),
            }
            if rollout.turns == 1:
                record["spans"] = [list(span) for span in token_spans(policy, rollout.ids)]
            if credit is not None:
                at = slice(sum(group.lengths[:g]), sum(group.lengths[: g + 1]))
                record["advantage"] = _rounded(credit.advantage_n[at].tolist())
                record["relevance"] = {n: _rounded(d[at].tolist()) for n, d in credit.relevance.items()}
                record["weight"] = {n: _rounded(u[at].tolist()) for n, u in credit.weight.items()}
            records.append(record)
    return records


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(v, 5) for v in values]
