"""From hidden states to per-token numbers, tile by tile.

The output layer of a small model is a large part of it: 50 to 150 thousand words a position. Two full
[tokens, vocabulary] float32 tensors never exist at once. Positions are projected `projection_tokens` at a time, in the
model's dtype; the element-wise work on a projection is done in float32 (float64 for a float64 model) on tiles small
enough to stay in a processor's cache.

Jensen-Shannon divergence of p and q, m = (p + q) / 2, in the form that keeps its digits where p and q nearly agree:

    JSD = 1/2 sum_v [ p log(p/m) + q log(q/m) ],    p/m = 2p/(p+q),  q/m = 2 - p/m

The difference of entropies H(m) - (H(p) + H(q))/2 is the same number with an error of 1e-6 in float32, which the root
makes 1e-3. `jsd` is the distance sqrt(JSD / ln 2), in [0, 1].

    n token, h hidden size, v vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

Head = Callable[[Tensor], Tensor]
"""Logits (n, V) of hidden states (n, H)."""

CPU_TILE_BYTES = 1 << 20
"""Element-wise work on a CPU: half of a 2 MB second-level cache, so that three buffers mostly stay in it."""
GPU_TILE_BYTES = 1 << 28
"""On a GPU launches cost more than memory traffic: a quarter of a GiB a buffer."""
PROJECTION_TOKENS = {"cpu": 128, "cuda": 1024}
"""Positions projected at a time: enough to read the output layer's weights rarely."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far apart a token's distributions with and without a verifier's information are; each field is (N,)."""

    jsd: Tensor
    """Jensen-Shannon distance, base 2, in [0, 1]."""
    kl: Tensor
    """KL(with || without) in nats."""
    log_ratio: Tensor
    """log with(token) - log without(token) of the token that was sampled, in nats."""
    placebo: Tensor | None = None
    """`jsd` for a hint about nothing, where that was asked for and the reward has a hint."""


def token_logprobs(hidden_nh: Tensor, target_n: Tensor, head: Head, *, temperature: float = 1.0) -> Tensor:
    """Log-probabilities of `target_n`, differentiable in the hidden states.

    A token's log-probability depends on its own hidden state alone, so the forward pass keeps that gradient, (N, H), and
    forgets the logits: nothing of vocabulary size is stored, and the backward pass projects nothing again. The head's own
    parameters get no gradient; in LoRA training they are frozen.

    Returns:
        (N,), float32 or float64.
    """
    return _TokenLogprobs.apply(hidden_nh, target_n, head, temperature)


def token_entropies(hidden_nh: Tensor, head: Head, *, temperature: float = 1.0) -> Tensor:
    """Entropy of each position's distribution in nats, (N,). No gradient."""
    out = torch.empty(len(hidden_nh), dtype=_precise(hidden_nh.dtype), device=hidden_nh.device)
    with torch.no_grad():
        for rows, logits in _projected(hidden_nh, head):
            logits = logits.to(out.dtype) / temperature
            logprob = torch.log_softmax(logits, -1)
            out[rows] = -(logprob.exp() * logprob).sum(-1)
    return out


@torch.no_grad()
def replay_divergences(
    with_nh: Sequence[Tensor | None],
    without_nh: Sequence[Tensor | None],
    plain_nh: Tensor,
    target_n: Tensor,
    head: Head,
    *,
    temperature: float = 1.0,
) -> list[Divergence]:
    """Compares the two sides of several rewards' replays.

    Args:
        with_nh: for each reward, the hidden states (N, H) with its verifier information; None for the plain prompt's.
        without_nh: likewise without it.
        plain_nh: the plain prompt's hidden states, projected and normalised once for all rewards.
        target_n: (N,) the sampled tokens.

    Returns:
        One `Divergence` a reward, in float32 (float64 for float64 states).
    """
    dtype, device = _precise(plain_nh.dtype), plain_nh.device
    sides = list(zip(with_nh, without_nh, strict=True))
    out = torch.zeros(len(sides), 3, len(plain_nh), dtype=dtype, device=device)
    for rows in _blocks(len(plain_nh), PROJECTION_TOKENS.get(device.type, 256)):
        plain = head(plain_nh[rows])
        others = [tuple(None if side is None else head(side[rows]) for side in pair) for pair in sides]
        for tile in _blocks(len(plain), _tile_tokens(plain.shape[-1], dtype, device)):
            target = target_n[rows][tile]
            p_plain = _distribution(plain[tile], target, temperature, dtype)
            at = slice(rows.start + tile.start, rows.start + tile.stop)
            for k, pair in enumerate(others):
                with_, without = (
                    p_plain if side is None else _distribution(side[tile], target, temperature, dtype) for side in pair
                )
                out[k, :, at] = _compare(with_, without)
    return [Divergence(*numbers) for numbers in out]


# inside -------------------------------------------------------------------------------------------------------------


class _Distribution(NamedTuple):
    """One side at some positions."""

    logits: Tensor
    """(n, V), scaled by the temperature."""
    total: Tensor
    """(n,) log of the sum of the logits' exponentials."""
    probability: Tensor
    """(n, V)."""
    chosen: Tensor
    """(n,) log-probability of the sampled token."""


def _distribution(logits: Tensor, target: Tensor, temperature: float, dtype: torch.dtype) -> _Distribution:
    scaled = logits.to(dtype)
    if temperature != 1.0:
        scaled = scaled / temperature
    total = torch.logsumexp(scaled, -1)
    chosen = scaled.gather(-1, target[:, None])[:, 0] - total
    return _Distribution(scaled, total, torch.exp(scaled - total[:, None]), chosen)


def _compare(with_: _Distribution, without: _Distribution) -> Tensor:
    """(3, n): Jensen-Shannon distance, KL(with || without), log-ratio of the sampled token."""
    p, q = with_.probability, without.probability
    tiny = torch.finfo(p.dtype).tiny
    share = p + q
    share = torch.div(p, share.clamp_(min=tiny), out=share).mul_(2)  # p / m
    rest = 2 - share  # q / m
    # Where one of the two rounds to 0 its probability is as small, and so is what the other factor makes of it.
    jsd = torch.linalg.vecdot(p, share.clamp_(min=tiny).log_()) + torch.linalg.vecdot(q, rest.clamp_(min=tiny).log_())
    # Rounding takes equal distributions a hair below 0.
    distance = (jsd.clamp_(min=0) / (2 * math.log(2))).sqrt_().clamp_(max=1)
    mean_gap = torch.linalg.vecdot(p, with_.logits - without.logits)
    kl = mean_gap - (with_.total - without.total)
    return torch.stack([distance, kl.clamp_(min=0), with_.chosen - without.chosen])


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_nh: Tensor, target_n: Tensor, head: Head, temperature: float) -> Tensor:
        dtype = _precise(hidden_nh.dtype)
        out = torch.empty(len(hidden_nh), dtype=dtype, device=hidden_nh.device)
        slope_nh = torch.empty_like(hidden_nh) if ctx.needs_input_grad[0] else None
        for rows in _blocks(len(hidden_nh), PROJECTION_TOKENS.get(hidden_nh.device.type, 256)):
            part = hidden_nh[rows].detach().requires_grad_(slope_nh is not None)
            with torch.set_grad_enabled(slope_nh is not None):
                scaled = head(part).to(dtype) / temperature
                chosen = scaled.gather(-1, target_n[rows][:, None])[:, 0]
                logprob = chosen - torch.logsumexp(scaled, -1)
            out[rows] = logprob.detach()
            if slope_nh is not None:
                (slope_nh[rows],) = torch.autograd.grad(logprob, part, torch.ones_like(logprob))
        if slope_nh is not None:
            ctx.save_for_backward(slope_nh)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (slope_nh,) = ctx.saved_tensors
        return slope_nh * gradients[0][:, None].to(slope_nh.dtype), None, None, None


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _blocks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def _projected(hidden_nh: Tensor, head: Head) -> Iterator[tuple[slice, Tensor]]:
    for rows in _blocks(len(hidden_nh), PROJECTION_TOKENS.get(hidden_nh.device.type, 256)):
        yield rows, head(hidden_nh[rows])


def _tile_tokens(vocabulary: int, dtype: torch.dtype, device: torch.device) -> int:
    budget = CPU_TILE_BYTES if device.type == "cpu" else GPU_TILE_BYTES
    return max(1, budget // (vocabulary * dtype.itemsize))
