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


@pytest.fixture(autouse=True, params=[1, 4 * V * 8, 1 << 20])
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


@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.parametrize("sure", [0.0, 25.0])
@pytest.mark.parametrize("noise", [1e-5, 1e-3, 0.1, 10.0])
def test_float32_keeps_the_digits_of_near_equal_sides(noise, sure, offset):
    """Near-equal and far apart, undecided and all but sure; a constant added to all logits means nothing."""
    generator = torch.Generator().manual_seed(1)
    logits = 3 * torch.randn(10, 5000, generator=generator)
    logits[:, 7] += sure
    other = logits + noise * torch.randn(10, 5000, generator=generator) + offset
    target = torch.randint(5000, (10,), generator=generator)
    [single] = replay_divergences([other], [None], logits, target, lambda h: h)
    [exact] = replay_divergences([other.double()], [None], logits.double(), target, lambda h: h)
    assert (exact.jsd - single.jsd).abs().max() < 1e-6
    assert (exact.kl - single.kl).abs().max() < 1e-6 * max(1, noise)
    assert (exact.log_ratio - single.log_ratio).abs().max() < 1e-5


def test_opposite_sides_are_one_apart_and_finite():
    sure, other = torch.full((1, 5), -1e4), torch.full((1, 5), -1e4)
    sure[0, 0] = other[0, 1] = 1e4
    [found] = replay_divergences([sure], [None], other, torch.tensor([0]), lambda h: h)
    assert float(found.jsd) == pytest.approx(1)
    assert float(found.kl) == pytest.approx(2e4)
    assert float(found.log_ratio) == pytest.approx(2e4)


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


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_a_trainable_head_learns_too(states, temperature):
    """An adapter on the output layer."""
    weight, hidden, _, target = states
    gradients = []
    for tiled in (True, False):
        leaf, head = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        if tiled:
            logprob = token_logprobs(leaf, target, lambda h, w=head: h @ w.T, temperature=temperature)
        else:
            logprob = torch.log_softmax(leaf @ head.T / temperature, -1).gather(-1, target[:, None])[:, 0]
        (logprob * torch.arange(N)).sum().backward()
        gradients.append((logprob.detach(), leaf.grad, head.grad))
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain)


def test_bfloat16_states_get_gradients_as_good_as_the_plain_way(states):
    weight, hidden, _, target = (x.bfloat16() if x.is_floating_point() else x for x in states)
    tiled, plain = (hidden.clone().requires_grad_() for _ in range(2))
    ours = token_logprobs(tiled, target, lambda h: h @ weight.T)
    theirs = torch.log_softmax((plain @ weight.T).float(), -1).gather(-1, target[:, None])[:, 0]
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(tiled.grad, plain.grad)


def test_no_tokens_at_all(states):
    weight, hidden, _, target = states
    for requires_grad in (False, True):
        head = weight.clone().requires_grad_(requires_grad)
        assert token_logprobs(hidden[:0], target[:0], lambda h, w=head: h @ w.T).shape == (0,)
    assert token_entropies(hidden[:0], lambda h: h @ weight.T).shape == (0,)
    [found] = replay_divergences([hidden[:0]], [None], hidden[:0], target[:0], lambda h: h @ weight.T)
    assert found.jsd.shape == (0,)


def test_entropies_agree_with_scipy(states):
    weight, hidden, _, _ = states
    found = token_entropies(hidden, lambda h: h @ weight.T, temperature=1.3)
    expected = [entropy(p) for p in torch.softmax(hidden @ weight.T / 1.3, -1).numpy()]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize(
    ("passes", "run"),
    [
        (3, lambda one, two, target, head: replay_divergences([one, two], [None, None], one, target, head)),
        (1, lambda one, two, target, head: token_entropies(one, head)),
        (1, lambda one, two, target, head: token_logprobs(one.requires_grad_(), target, head).sum().backward()),
    ],
)
def test_each_side_is_projected_once_and_no_more_than_a_block_at_a_time(states, passes, run):
    """Three of the replays' sides: the plain one, which both rewards share, and each reward's own."""
    weight, one, two, target = states
    seen = []

    def head(hidden):
        seen.append(len(hidden))
        return hidden @ weight.T

    run(one, two, target, head)
    assert max(seen) == 10
    assert passes * N <= sum(seen) <= passes * N + 1  # one position may tell whether the head is trained


def test_a_trainable_head_also_sees_no_more_than_a_block_at_a_time(states):
    weight, one, _, target = states
    trained, seen = weight.clone().requires_grad_(), []

    def head(hidden):
        seen.append(len(hidden))
        return hidden @ trained.T

    token_logprobs(one.requires_grad_(), target, head).sum().backward()
    assert max(seen) == 10


def test_a_tile_grows_with_the_threads_and_holds_one_position_at_least(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(divergence, "CPU_TILE_BYTES", 1 << 19)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    alone = divergence.tile_tokens(8192, torch.float32, cpu)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert divergence.tile_tokens(8192, torch.float32, cpu) == 4 * alone
    assert divergence.tile_tokens(1 << 30, torch.float64, cpu) == 1
    assert divergence.tile_tokens(49152, torch.float32, torch.device("cuda")) > 1000


def test_no_gradient_flows_from_relevance(states):
    weight, one, two, target = states
    [found] = replay_divergences([one.requires_grad_()], [None], two.requires_grad_(), target, lambda h: h @ weight.T)
    assert not found.jsd.requires_grad
