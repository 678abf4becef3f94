"""From hidden states to per-token numbers, tile by tile.

The output layer of a small model is a large part of it: 50 to 150 thousand words a position. Two full
[tokens, vocabulary] float32 tensors never exist at once. Positions are projected `projection_tokens` at a time, in the
model's dtype; the element-wise work on a projection is done in float32 (float64 for a float64 model) on tiles of
`tile_tokens` positions, small enough to stay in a processor's cache. What is computed is in DESIGN.md, "The mathematics".

Jensen-Shannon divergence of p and q, m = (p + q) / 2, in the form that keeps its digits where p and q nearly agree:

    JSD = 1/2 sum_v [ p log(p/m) + q log(q/m) ],    p/m = 2p/(p+q),  q/m = 2 - p/m

The difference of entropies H(m) - (H(p) + H(q))/2 is the same number with an error of 1e-6 in float32, which the root
makes 1e-3. Logits are taken relative to their largest one everywhere: a constant added to all of them, which means
nothing, would otherwise come back as rounding. `jsd` is the distance sqrt(JSD / ln 2), in [0, 1].

    n token, h hidden size, v vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]
"""Logits (n, V) of hidden states (n, H)."""

CPU_TILE_BYTES = 1 << 19
"""A float32 or float64 tile for each thread of a CPU. About five are in use at a time, and a core's second-level cache
has 2 MB. Measured at 49152 words: tiles of 1 to 10 positions a thread take two thirds of the time of whole blocks."""
GPU_TILE_BYTES = 1 << 28
"""On a GPU launches cost more than memory traffic: a quarter of a GiB a tile."""
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
    """Log-probabilities of `target_n`, differentiable in the hidden states and in the head's parameters.

    With a frozen head, as in most LoRA training, the forward pass keeps the gradient of each token's log-probability in
    its own hidden state, (N, H), and forgets the logits: nothing of vocabulary size is stored, and the backward pass
    projects nothing again. With a trainable head (an adapter on it, say) each block is projected again when it is
    differentiated.

    Args:
        hidden_nh: (N, H), the head's dtype.
        target_n: (N,) int64.

    Returns:
        (N,), float32, or float64 for float64 states.
    """
    if torch.is_grad_enabled() and head(hidden_nh[:1].detach()).requires_grad:
        blocks = _blocks(len(hidden_nh), _projection_tokens(hidden_nh.device))
        parts = [
            checkpoint(_chosen, hidden_nh[rows], target_n[rows], head, temperature, use_reentrant=False)
            for rows in blocks
        ]
        return torch.cat(parts) if parts else hidden_nh.new_zeros(0, dtype=_precise(hidden_nh.dtype))
    logprob_n: Tensor = _TokenLogprobs.apply(hidden_nh, target_n, head, temperature)
    return logprob_n


@torch.no_grad()
def token_entropies(hidden_nh: Tensor, head: Head, *, temperature: float = 1.0) -> Tensor:
    """Entropy of each position's distribution in nats, (N,), from states (N, H). No gradient."""
    dtype, device = _precise(hidden_nh.dtype), hidden_nh.device
    out = torch.empty(len(hidden_nh), dtype=dtype, device=device)
    for rows in _blocks(len(hidden_nh), _projection_tokens(device)):
        logits = head(hidden_nh[rows])
        for tile in _blocks(len(logits), tile_tokens(logits.shape[-1], dtype, device)):
            side = _distribution(logits[tile], temperature, dtype)
            # No relative logit is above 0, so this adds terms of one sign only.
            out[_within(rows, tile)] = side.total - torch.linalg.vecdot(side.probability, side.logits)
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
        One `Divergence` a reward, in float32 (float64 for float64 states), without gradients.

    Raises:
        ValueError: `with_nh` and `without_nh` differ in length.
    """
    dtype, device = _precise(plain_nh.dtype), plain_nh.device
    sides = list(zip(with_nh, without_nh, strict=True))
    out = torch.zeros(len(sides), 3, len(plain_nh), dtype=dtype, device=device)
    for rows in _blocks(len(plain_nh), _projection_tokens(device)):
        plain = head(plain_nh[rows])
        others = [tuple(None if side is None else head(side[rows]) for side in pair) for pair in sides]
        for tile in _blocks(len(plain), tile_tokens(plain.shape[-1], dtype, device)):
            at = _within(rows, tile)
            p_plain = _distribution(plain[tile], temperature, dtype)
            for k, pair in enumerate(others):
                with_, without = (
                    p_plain if side is None else _distribution(side[tile], temperature, dtype) for side in pair
                )
                out[k, :, at] = _compare(with_, without, target_n[at])
    return [Divergence(*numbers) for numbers in out]


def tile_tokens(vocabulary: int, dtype: torch.dtype, device: torch.device) -> int:
    """Positions in a tile of element-wise work: what fits `CPU_TILE_BYTES` a thread or `GPU_TILE_BYTES`, at least one."""
    # torch splits an operation evenly between its threads, so that each keeps to its share of the tile.
    budget = CPU_TILE_BYTES * torch.get_num_threads() if device.type == "cpu" else GPU_TILE_BYTES
    return max(1, budget // (vocabulary * dtype.itemsize))


# inside -------------------------------------------------------------------------------------------------------------


class _Distribution(NamedTuple):
    """One side at some positions."""

    logits: Tensor
    """(n, V), scaled by the temperature, less the position's largest."""
    total: Tensor
    """(n,) log of the sum of the logits' exponentials."""
    probability: Tensor
    """(n, V), never quite 0, so that no quotient is 0/0."""

    def logprob(self, target: Tensor) -> Tensor:
        return self.logits.gather(-1, target[:, None])[:, 0] - self.total


def _distribution(logits: Tensor, temperature: float, dtype: torch.dtype) -> _Distribution:
    relative = _relative(logits, temperature, dtype)
    probability = relative.exp()
    mass = probability.sum(-1, keepdim=True)
    probability.mul_(mass.reciprocal()).clamp_(min=torch.finfo(dtype).tiny)
    return _Distribution(relative, mass.log().squeeze(-1), probability)


def _relative(logits: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """Logits in `dtype`, scaled by the temperature, less each position's largest; a tensor of their own."""
    # Subtracting in the wider dtype is exact enough for any logits, and makes the copy that is needed anyway.
    relative = logits.to(dtype) - logits.amax(-1, keepdim=True).to(dtype)
    return relative if temperature == 1.0 else relative.div_(temperature)


def _compare(with_: _Distribution, without: _Distribution, target: Tensor) -> Tensor:
    """(3, n): Jensen-Shannon distance, KL(with || without), log-ratio of the sampled token."""
    p, q = with_.probability, without.probability
    eps = torch.finfo(p.dtype).eps
    share = torch.lerp(p, q, 0.5)
    share = torch.div(p, share, out=share)
    # Where p and q nearly agree, an error of p/m does no harm as long as the two add up to exactly 2: it then meets p - q
    # in the sum. So p/m is taken back from the rounded q/m. Neither may round to 0, where one is nothing beside the other.
    rest = torch.rsub(share, 2).clamp_(min=eps, max=2 - eps)  # q / m
    share = torch.sub(2, rest, out=share)  # p / m
    jsd = torch.linalg.vecdot(p, share.log_()) + torch.linalg.vecdot(q, rest.log_())
    # Rounding takes equal distributions a hair below 0.
    distance = (jsd.clamp_(min=0) / (2 * math.log(2))).sqrt_().clamp_(max=1)
    mean_gap = torch.linalg.vecdot(p, torch.sub(with_.logits, without.logits, out=share))
    kl = mean_gap - (with_.total - without.total)
    return torch.stack([distance, kl.clamp_(min=0), with_.logprob(target) - without.logprob(target)])


def _chosen(hidden_nh: Tensor, target_n: Tensor, head: Head, temperature: float) -> Tensor:
    """(n,) log-probabilities the plain way, for autograd."""
    scaled = head(hidden_nh).to(_precise(hidden_nh.dtype)) / temperature
    return scaled.gather(-1, target_n[:, None])[:, 0] - torch.logsumexp(scaled, -1)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_nh: Tensor, target_n: Tensor, head: Head, temperature: float) -> Tensor:
        dtype, device = _precise(hidden_nh.dtype), hidden_nh.device
        out = torch.empty(len(hidden_nh), dtype=dtype, device=device)
        slope_nh = torch.empty_like(hidden_nh) if ctx.needs_input_grad[0] else None
        for rows in _blocks(len(hidden_nh), _projection_tokens(device)):
            part = hidden_nh[rows].detach().requires_grad_(slope_nh is not None)
            with torch.set_grad_enabled(slope_nh is not None):
                logits = head(part)
            slope_nv = None if slope_nh is None else torch.empty_like(logits)
            for tile in _blocks(len(part), tile_tokens(logits.shape[-1], dtype, device)):
                at, target = _within(rows, tile), target_n[rows][tile]
                relative = _relative(logits.detach()[tile], temperature, dtype)
                chosen = relative.gather(-1, target[:, None])[:, 0]
                mass = relative.exp_().sum(-1, keepdim=True)
                out[at] = chosen - mass.log().squeeze(-1)
                if slope_nv is not None:  # d log p(target) / d logit[v] = ([v is the target] - p(v)) / temperature
                    slope = relative.mul_(-mass.reciprocal())
                    slope.scatter_add_(-1, target[:, None], torch.ones_like(mass))
                    slope_nv[tile] = slope if temperature == 1.0 else slope.div_(temperature)
            if slope_nh is not None:
                (slope_nh[rows],) = torch.autograd.grad(logits, part, slope_nv)
        if slope_nh is not None:
            ctx.save_for_backward(slope_nh)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        (slope_nh,) = ctx.saved_tensors
        return slope_nh * gradients[0][:, None].to(slope_nh.dtype), None, None, None


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _projection_tokens(device: torch.device) -> int:
    return PROJECTION_TOKENS.get(device.type, 256)


def _blocks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(n, start + size))


def _within(rows: slice, tile: slice) -> slice:
    """The place, in all rows, of a tile of some of them."""
    return slice(rows.start + tile.start, rows.start + tile.stop)
