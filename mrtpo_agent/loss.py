"""The clipped policy gradient, token by token.

    L = - sum_t min(rho_t A_t, clip(rho_t, 1 - low, 1 + high) A_t) / N  +  beta sum_t k3_t / N

with rho_t the ratio of the token's probability to the one it was sampled with, N the batch's tokens (so that every token
counts the same, and micro-batches add up), the clip wider upwards (DAPO's "clip higher"), and k3 = exp(q - p) - (q - p) - 1
Schulman's estimator of KL(policy || reference) from the sampled token's log-probabilities p and q.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossStats:
    """What the loss was made of: sums over tokens, so that parts of a batch add up."""

    loss: Tensor
    clipped: Tensor
    """Tokens whose ratio was clipped."""
    ratio: Tensor
    """Sum of the ratios: their mean stays near 1 while the policy is the one that sampled."""
    approx_kl: Tensor
    """Sum of the k3 estimates of KL(sampling policy || policy): how far this batch's updates have gone."""
    kl: Tensor
    """Sum of the k3 estimates of KL to the reference; 0 without one."""
    tokens: int

    @classmethod
    def zero(cls) -> LossStats:
        """The statistics of no tokens at all."""
        nothing = torch.zeros(())
        return cls(nothing, nothing, nothing, nothing, nothing, 0)

    def __add__(self, other: LossStats) -> LossStats:
        device = other.loss.device
        return LossStats(
            self.loss.to(device) + other.loss,
            self.clipped.to(device) + other.clipped,
            self.ratio.to(device) + other.ratio,
            self.approx_kl.to(device) + other.approx_kl,
            self.kl.to(device) + other.kl,
            self.tokens + other.tokens,
        )

    def to_dict(self) -> dict[str, float]:
        """Numbers for the log: the loss, and means over the tokens it was computed on."""
        n = max(1, self.tokens)
        return {
            "loss": float(self.loss),
            "clip_fraction": float(self.clipped) / n,
            "ratio": float(self.ratio) / n,
            "approx_kl": float(self.approx_kl) / n,
            "kl": float(self.kl) / n,
        }


def policy_loss(
    logprob: Tensor,
    old_logprob: Tensor | None,
    advantage: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    denominator: float,
    ref_logprob: Tensor | None = None,
    kl_weight: float = 0.0,
) -> tuple[Tensor, LossStats]:
    """The loss of some of a batch's tokens.

    Args:
        logprob: (N,) the policy's log-probabilities of the sampled tokens, with gradients.
        old_logprob: (N,) those they were sampled with; None where this is the policy that sampled them, so that every
            ratio is 1 and only its gradient matters.
        advantage: (N,) detached.
        denominator: the whole batch's number of tokens.
        ref_logprob: (N,) the reference's log-probabilities, for the KL penalty.

    Returns:
        The scalar loss, in `logprob`'s dtype, and its statistics, detached and on `logprob`'s device: nothing here waits
        for it.
    """
    advantage = advantage.detach().to(logprob.dtype)
    gap = logprob - (logprob.detach() if old_logprob is None else old_logprob)
    ratio = torch.exp(gap)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    gain = torch.minimum(ratio * advantage, clipped * advantage)
    loss = -gain.sum() / denominator
    kl = logprob.new_zeros(())
    if ref_logprob is not None:
        apart = ref_logprob - logprob
        k3 = (torch.exp(apart) - apart - 1.0).sum()
        kl = k3.detach()
        loss = loss + kl_weight * k3 / denominator
    with torch.no_grad():
        was_clipped = (clipped * advantage < ratio * advantage).sum().to(logprob.dtype)
        # The samples are the sampling policy's, so its k3 has the ratio itself where the reference's has the inverse.
        drift = (ratio - 1.0 - gap).sum()
        stats = LossStats(loss.detach(), was_clipped, ratio.sum(), drift, kl, logprob.numel())
    return loss, stats
