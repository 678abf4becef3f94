"""Credit: which tokens of a response each reward's advantage goes to.

    u[g,k,n]  weight of token n for reward k, mean 1 over the response       from relevance d[g,k,n] >= 0
    A[g,n] =  sum_k A[g,k] u[g,k,n]  =  sum_k A[g,k]  +  sum_k A[g,k] (u[g,k,n] - 1)

The second form is the one computed: GDPO's advantage, and what is moved. Where all weights are 1 nothing is added, and the
result is GDPO to the last bit.

Credit is moved, never made: whatever the route and its knobs, a response's token advantages have the mean that GDPO gives
every token. Relevance is detached and never negative, so verifier information sets the size of a token's update and never
its direction: a reference answer cannot be distilled into the policy.

*Routes* say where relevance comes from:

    uniform   every token alike: GDPO itself
    jsd       Jensen-Shannon distance between the replays: MRTPO
    kl        KL(with || without) between the replays (SC-GRPO's signal)
    logratio  |log-ratio| of the sampled token between the replays (RLSD's and CoRT's signal)
    entropy   the policy's own uncertainty, whatever the reward
    evidence  1 on the tokens that the verifier points at: the oracle that the others are measured against
    shuffled  jsd's weights in random places: a control
    inverted  jsd's weights upside down: a control

    g response of the group, k reward, n sampled token (flat over the group's responses)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mrtpo_agent.advantages import GroupAdvantages
from mrtpo_agent.config import CreditConfig

NEGLIGIBLE = 1e-6
"""Mean relevance of a response under which it says nothing, and the weights are uniform."""


@dataclass(frozen=True, slots=True)
class Credit:
    """One group's token advantages, and how they came about."""

    advantage_n: Tensor
    """(N,) float64."""
    relevance: Mapping[str, Tensor] = field(default_factory=dict)
    """For each reward that was looked into, d (N,)."""
    weight: Mapping[str, Tensor] = field(default_factory=dict)
    """For each of those, u (N,), mean 1 over each response."""


def assign_credit(
    config: CreditConfig,
    advantages: GroupAdvantages,
    names: Sequence[str],
    relevance: Mapping[str, Tensor],
    lengths: Sequence[int],
    generator: torch.Generator,
) -> Credit:
    """Moves each reward's advantage to the tokens that matter to it.

    DESIGN.md, "The mathematics".

    Args:
        advantages: (G, K) float64 on the CPU, columns in the order of `names`.
        relevance: d (N,) of some rewards, any dtype and device; those that are not in it keep uniform weight.
        lengths: sampled tokens of each response; their sum is N.
        generator: for the route "shuffled".

    Raises:
        RuntimeError: a relevance's length is not the sum of `lengths`.
    """
    length_g = torch.tensor(lengths)
    advantage_n = advantages.sample_g.repeat_interleave(length_g)
    used, weight = {}, {}
    for name, advantage_g in zip(names, advantages.per_reward_gk.unbind(-1), strict=True):
        if name in relevance:
            used[name] = relevance[name].detach().cpu().double()
            weight[name] = weights(config, used[name], lengths, generator)
            advantage_n = advantage_n + advantage_g.repeat_interleave(length_g) * (weight[name] - 1)
    return Credit(advantage_n, used, weight)


def weights(config: CreditConfig, relevance_n: Tensor, lengths: Sequence[int], generator: torch.Generator) -> Tensor:
    """u (N,) from d (N,): not negative, mean 1 over each response, shaped by the knobs in their order of listing.

    The route decides what `relevance_n` is; here it only matters for the controls "shuffled" and "inverted".
    """
    return torch.cat([_weights(config, d, generator) for d in torch.split(relevance_n.detach(), list(lengths))])


def _weights(config: CreditConfig, d: Tensor, generator: torch.Generator) -> Tensor:
    """One response's weights."""
    even = torch.ones_like(d)
    if config.route == "uniform":
        return even
    d = d.clamp(min=0)
    if len(d) == 0 or d.mean() < NEGLIGIBLE:
        return even
    u = (d / d.max()) ** config.power  # relative to the largest, so that no power takes all of them to 0
    u = u / u.mean()
    if config.route == "inverted":  # the mean weight and the range stay; the order turns round
        u = u.max() + u.min() - u
        u = u / u.mean()
    u = config.floor + (1 - config.floor) * u
    if config.cap is not None:
        u = _capped(u, config.cap)
    if config.route == "shuffled":
        u = u[torch.randperm(len(u), generator=generator)]
    return u / u.mean()


def _capped(u: Tensor, cap: float) -> Tensor:
    """Weights at most `cap` with mean 1: what is cut off is spread over the others in proportion to their weight."""
    capped = torch.full_like(u, cap)
    for _ in range(len(u)):
        if not bool((u > cap * (1 + 1e-12)).any()):
            break
        held = u >= cap
        left = len(u) - cap * int(held.sum())  # weight for those that are not held
        rest = u[~held].sum()
        # Where all others weigh nothing they share what is left.
        others = u / rest * left if bool(rest > 0) else torch.full_like(u, left / max(1, int((~held).sum())))
        u = torch.where(held, capped, others)
    return u
