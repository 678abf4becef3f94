"""How much each sampled token matters to each reward, by the route that the configuration names."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mrtpo_agent.config import REPLAYED, TrainConfig
from mrtpo_agent.divergence import Divergence, token_entropies
from mrtpo_agent.policy import Policy
from mrtpo_agent.replay import replay
from mrtpo_agent.rollout import Group
from mrtpo_agent.tokens import overlaps, token_spans


def relevance_of(
    policy: Policy, group: Group, rewards: Sequence[str], plain_nh: Tensor, config: TrainConfig
) -> dict[str, Tensor]:
    """Relevance d (N,), not negative, of the group's sampled tokens to each of `rewards`.

    Args:
        plain_nh: (N, H) hidden states of the sampled tokens under the plain prompt, detached.
    """
    credit, temperature = config.credit, config.rollout.temperature
    if credit.route in REPLAYED:
        found = replay(policy, group, rewards, config.replay, plain_nh, temperature=temperature, placebo=credit.placebo)
        return {name: _signal(divergence, credit.route) for name, divergence in found.items()}
    if credit.route == "entropy":
        entropy_n = token_entropies(plain_nh, policy.head, temperature=temperature)
        return dict.fromkeys(rewards, entropy_n)
    if credit.route == "evidence":
        return {name: evidence_of(policy, group, name) for name in rewards}
    return {}


def evidence_of(policy: Policy, group: Group, reward: str) -> Tensor:
    """(N,) float64: 1 on the tokens that the verifier points at, 0 elsewhere; all 0 where it points at nothing.

    Where a task took several turns, the evidence is in the last turn's response.
    """
    parts = []
    for rollout in group.rollouts:
        start = rollout.last_turn
        earlier = sum(rollout.is_policy[:start])
        inside = overlaps(token_spans(policy, rollout.ids[start:]), rollout.verification[reward].spans)
        parts.append(torch.tensor([0.0] * earlier + [float(x) for x in inside], dtype=torch.float64))
    return torch.cat(parts)


def _signal(divergence: Divergence, route: str) -> Tensor:
    if route == "kl":
        return divergence.kl
    if route == "logratio":
        return divergence.log_ratio.abs()
    if divergence.placebo is None:
        return divergence.jsd
    return (divergence.jsd - divergence.placebo).clamp(min=0)
