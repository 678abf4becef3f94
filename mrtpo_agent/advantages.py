"""From rewards to advantages: GRPO and GDPO.

Both compare the G responses of a group with each other. GRPO sums the rewards and normalises the sum; GDPO normalises
each reward on its own, so that one with small differences is heard beside one with large ones, and then brings the
batch's advantages to unit deviation. Both come out as one advantage per reward, whose sum is the response's advantage:
that is what `credit` moves between tokens.

    a[g,k] = (r[g,k] - mean_g r[.,k]) / (std_g r[.,k] + eps)     exactly 0 where the judged rewards are all equal
    GDPO:   A[g,k] = w[k] a[g,k] / (s + eps),                    s = the batch's deviation of sum_k w[k] a[g,k]
    GRPO:   A[g,k] = w[k] (r[g,k] - mean_g r[.,k]) / (S + eps),  S = the group's deviation of the summed rewards

Deviations are the sample's (n - 1), and eps = 1e-4, as in TRL's `normalize_then_sum`, with which GDPO here agrees, NaN
included, but for one thing. There a dead reward is what is left when equal numbers meet their rounded mean, divided by
eps: 1e-8 in float32 becomes 1e-4, and in a batch without any other signal the last division makes that an advantage of
order 1. Here it is exactly 0. (The batch's mean, which TRL subtracts, is 0, because every reward of every group is centred.)
The rewards of a task are its own, so K may differ from group to group.

A reward that could not be judged is NaN here: it takes no part in means and deviations and gets advantage 0. In GRPO's
sum it counts as its group's mean, not as 0 as in trainers that sum what is there: a 0 would punish the response for the
verifier's fault.

    g response of the group, k reward
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 1e-4


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """One group's advantages."""

    per_reward_gk: Tensor
    """(G, K): what each reward contributes, weighted and scaled."""

    @property
    def sample_g(self) -> Tensor:
        """(G,): each response's advantage, the sum over its rewards."""
        return self.per_reward_gk.sum(-1)


def live_rewards(reward_gk: Tensor) -> Tensor:
    """(K,) bool: the rewards that differ within the group. The others are *dead*: nothing can be learnt from them."""
    judged = ~reward_gk.isnan()
    low = reward_gk.masked_fill(~judged, torch.inf).amin(0)
    high = reward_gk.masked_fill(~judged, -torch.inf).amax(0)
    return high > low  # false where nothing, or one response, was judged


def normalize_rewards(reward_gk: Tensor, eps: float = EPS) -> Tensor:
    """Each reward's advantage within its group, before weights: `a[g,k]` above.

    Args:
        reward_gk: (G, K) float32 or float64, NaN where a reward could not be judged.

    Returns:
        (G, K), finite; a NaN's place is exactly 0, and so is the column of a reward that is dead or was judged once.
    """
    centred, deviation = _centred(reward_gk)
    return centred / (deviation + eps)


def gdpo_advantages(rewards: Sequence[Tensor], weights: Sequence[Tensor], eps: float = EPS) -> list[GroupAdvantages]:
    """GDPO's advantages of a batch; DESIGN.md, "The mathematics".

    Args:
        rewards: for each group, (G, K), NaN where a reward could not be judged.
        weights: for each group, (K,).

    Returns:
        For each group its advantages, all 0 where no reward of the batch is live.

    Raises:
        ValueError: `rewards` and `weights` differ in length.
    """
    weighted = [w * normalize_rewards(r, eps) for r, w in zip(rewards, weights, strict=True)]
    # A response that no verifier could judge says nothing about the batch's deviation either.
    heard = [a.sum(-1)[~r.isnan().all(-1)] for a, r in zip(weighted, rewards, strict=True)]
    scale = _deviation(torch.cat(heard)) + eps
    return [GroupAdvantages(a / scale) for a in weighted]


def grpo_advantages(rewards: Sequence[Tensor], weights: Sequence[Tensor], eps: float = EPS) -> list[GroupAdvantages]:
    """GRPO's advantages of each group; arguments as for `gdpo_advantages`."""
    found = []
    for reward_gk, weight_k in zip(rewards, weights, strict=True):
        weighted = weight_k * _centred(reward_gk)[0]
        heard = weighted.sum(-1)[~reward_gk.isnan().all(-1)]
        found.append(GroupAdvantages(weighted / (_deviation(heard) + eps)))
    return found


def _centred(reward_gk: Tensor) -> tuple[Tensor, Tensor]:
    """Rewards less their group's mean (0 for dead rewards and NaN), and each reward's sample deviation."""
    judged = ~reward_gk.isnan()
    n_k = judged.sum(0)
    filled = reward_gk.masked_fill(~judged, 0.0)
    centred = (filled - filled.sum(0) / n_k.clamp(min=1)) * judged
    # Rounding leaves a trace where equal rewards meet their mean; a dead reward is exactly dead.
    centred = centred * live_rewards(reward_gk)
    deviation = (centred.square().sum(0) / (n_k - 1).clamp(min=1)).sqrt()
    return centred, deviation


def _deviation(values: Tensor) -> Tensor:
    return values.std() if values.numel() > 1 else values.new_zeros(())
