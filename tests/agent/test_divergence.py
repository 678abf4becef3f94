"""Per-token numbers from hidden states, tile by tile, against other people's formulas and the plain way."""

import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from mrtpo_agent import divergence
from mrtpo_agent.divergence import replay_divergences, token_entropies, token_logprobs

V, H, N = 53, 7, 31


@pytest.fixture
def states():
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(V, H, generator=generator, dtype=torch.float64)
    one, two = (torch.randn(N, H, generator=generator, dtype=torch.float64) for _ in range(2))
    target = torch.randint(V, (N,), generator=generator)
    return weight, one, two, target


@pytest.fixture(autouse=True, params=[1, 4 * 53 * 8, 1 << 20])
def tile_bytes(request, monkeypatch):
    monkeypatch.setattr(divergence, "CPU_TILE_BYTES", request.param)
    monkeypatch.setattr(divergence, "PROJECTION_TOKENS", {"cpu": 10})


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_divergences_agree_with_scipy(states, temperature):
    weight, one, two, target = states
    [found] = replay_divergences([one], [None], two, target, lambda h: h @ weight.T, temperature=temperature)
    p, q = (torch.softmax(h @ weight.T / temperature, -1).numpy() for h in (one, two))
    for n in range(N):
        assert float(found.jsd[n]) == pytest.approx(jensenshannon(p[n], q[n], base=2), abs=1e-12)
        assert float(found.kl[n]) == pytest.approx(entropy(p[n], q[n]), rel=1e-9)
        assert float(found.log_ratio[n]) == pytest.approx(math.log(p[n][target[n]] / q[n][target[n]]), abs=1e-12)


def test_with_and_without_are_told_apart_and_the_distance_is_symmetric(states):
    weight, one, two, target = states
    with_, without = replay_divergences([one, None], [None, one], two, target, lambda h: h @ weight.T)
    torch.testing.assert_close(with_.jsd, without.jsd)
    torch.testing.assert_close(with_.log_ratio, -without.log_ratio)
    assert not torch.allclose(with_.kl, without.kl)


def test_both_sides_may_differ_from_the_plain_prompt(states):
    weight, one, two, target = states
    plain = torch.zeros_like(one)
    [found] = replay_divergences([one], [two], plain, target, lambda h: h @ weight.T)
    [expected] = replay_divergences([one], [None], two, target, lambda h: h @ weight.T)
    torch.testing.assert_close(found.jsd, expected.jsd)


def test_kl_is_right_where_one_side_all_but_excludes_a_token():
    with_, without = torch.tensor([[0.0, -1.0]]), torch.tensor([[-40.0, 0.0]])
    [found] = replay_divergences([with_], [None], without, torch.tensor([0]), lambda h: h)
    assert float(found.kl) == pytest.approx(entropy([0.731059, 0.268941], [math.exp(-40), 1]), rel=1e-5)


def test_equal_sides_are_exactly_nothing_apart(states):
    weight, one, _, target = states
    [found] = replay_divergences([one.float()], [None], one.float(), target, lambda h: h @ weight.float().T)
    assert (found.jsd == 0).all()
    assert (found.kl == 0).all()
    assert (found.log_ratio == 0).all()


def test_near_equal_sides_keep_their_digits_in_float32():
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(20, 50_000, generator=generator, dtype=torch.float64)
    other = logits + 0.002 * torch.randn(20, 50_000, generator=generator, dtype=torch.float64)
    target = torch.zeros(20, dtype=torch.long)
    [exact] = replay_divergences([other], [None], logits, target, lambda h: h)
    [single] = replay_divergences([other.float()], [None], logits.float(), target, lambda h: h)
    assert exact.jsd.max() < 1e-3
    assert (exact.jsd - single.jsd.double()).abs().max() < 1e-4


def test_opposite_sides_are_one_apart_and_finite():
    sure, other = torch.full((1, 5), -1e4), torch.full((1, 5), -1e4)
    sure[0, 0] = other[0, 1] = 1e4
    [found] = replay_divergences([sure], [None], other, torch.tensor([0]), lambda h: h)
    assert float(found.jsd) == pytest.approx(1)
    assert found.kl.isfinite().all()
    assert found.log_ratio.isfinite().all()


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_logprobs_and_their_gradient_agree_with_the_plain_way(states, temperature):
    weight, hidden, _, target = states
    gradients = []
    for tiled in (True, False):
        leaf = hidden.clone().requires_grad_()
        if tiled:
            logprob = token_logprobs(leaf, target, lambda h: torch.tanh(h @ weight.T) * 5, temperature=temperature)
        else:
            logits = torch.tanh(leaf @ weight.T) * 5 / temperature
            logprob = torch.log_softmax(logits, -1).gather(-1, target[:, None])[:, 0]
        (logprob * torch.arange(N)).sum().backward()
        gradients.append((logprob.detach(), leaf.grad))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    torch.testing.assert_close(gradients[0][1], gradients[1][1])


def test_entropies_agree_with_scipy(states):
    weight, hidden, _, _ = states
    found = token_entropies(hidden, lambda h: h @ weight.T, temperature=1.3)
    expected = [entropy(p) for p in torch.softmax(hidden @ weight.T / 1.3, -1).numpy()]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_no_more_than_one_block_of_positions_is_projected_at_a_time(states):
    weight, one, two, target = states
    seen = []

    def head(hidden):
        seen.append(len(hidden))
        return hidden @ weight.T

    replay_divergences([one, two], [None, None], one, target, head)
    token_logprobs(one.clone().requires_grad_(), target, head)
    token_entropies(one, head)
    assert max(seen) == 10
    assert sum(seen[: len(seen) // 5 * 3]) == 3 * N  # the plain side once, each other side once


def test_no_gradient_flows_from_relevance(states):
    weight, one, two, target = states
    [found] = replay_divergences([one.requires_grad_()], [None], two.requires_grad_(), target, lambda h: h @ weight.T)
    assert not found.jsd.requires_grad
