"""The clipped loss."""

import pytest
import torch
from scipy.stats import entropy

from mrtpo_agent.loss import LossStats, policy_loss

CLIP = {"clip_low": 0.2, "clip_high": 0.28}


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_on_policy_it_is_the_policy_gradient():
    logprob, advantage = tensor(-1.0, -2.0, -0.5), torch.tensor([1.0, -2.0, 0.0]).double()
    loss, stats = policy_loss(logprob, None, advantage, denominator=3, **CLIP)
    loss.backward()
    assert loss.item() == pytest.approx(1 / 3)
    torch.testing.assert_close(logprob.grad, -advantage / 3)
    assert float(stats.clipped) == 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.27, 1, True), (1.3, 1, False), (0.5, 1, True), (0.81, -1, True), (0.79, -1, False), (2.0, -1, True)],
)
def test_the_clip_stops_only_what_goes_too_far_and_reaches_further_up(ratio, advantage, moves):
    logprob = tensor(0.0)
    old = -torch.log(torch.tensor([ratio], dtype=torch.float64))
    loss, stats = policy_loss(logprob, old, torch.tensor([float(advantage)]), denominator=1, **CLIP)
    loss.backward()
    assert bool(logprob.grad != 0) == moves
    assert bool(stats.clipped) == (not moves)


def test_a_policy_that_has_not_moved_has_ratio_1_and_no_drift_and_one_that_has_moved_has_some():
    old = torch.tensor([-1.0, -2.0, -0.5]).double()
    for moved_by, drifted in ((0.0, False), (0.1, True), (-0.1, True)):
        _, stats = policy_loss(old + moved_by, old, torch.ones(3).double(), denominator=3)
        numbers = stats.to_dict()
        assert (numbers["ratio"] - 1) * moved_by >= 0
        assert (numbers["approx_kl"] > 1e-6) == drifted
    _, stats = policy_loss(old, None, torch.ones(3).double(), denominator=3)
    assert stats.to_dict()["ratio"] == 1
    assert stats.to_dict()["approx_kl"] == 0


def test_drift_estimates_the_kl_that_it_is_named_for():
    """On tokens drawn from the sampling policy, exactly in proportion, the mean of the estimates is the divergence."""
    before, now = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.4, 0.4, 0.2]).double()
    drawn = torch.tensor([0] * 5 + [1] * 3 + [2] * 2)
    _, stats = policy_loss(now.log()[drawn], before.log()[drawn], torch.zeros(10), denominator=10)
    assert stats.to_dict()["approx_kl"] == pytest.approx(entropy(before, now))


def test_micro_batches_add_up_to_the_whole():
    values = [torch.randn(10, generator=torch.Generator().manual_seed(i), dtype=torch.float64) for i in range(4)]
    logprob, old, advantage, reference = values
    settings = {"denominator": 10, "kl_weight": 0.1, **CLIP}
    whole, stats = policy_loss(logprob, old, advantage, ref_logprob=reference, **settings)
    parts = [
        policy_loss(logprob[s], old[s], advantage[s], ref_logprob=reference[s], **settings)
        for s in (slice(0, 3), slice(3, 10))
    ]
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole)
    added = LossStats.zero() + parts[0][1] + parts[1][1]
    assert added.to_dict() == pytest.approx(stats.to_dict())


def test_the_penalty_is_a_kl_estimate_that_is_zero_for_equals_and_pulls_back():
    logprob = tensor(-1.0, -3.0)
    loss, stats = policy_loss(
        logprob, None, torch.zeros(2), denominator=2, ref_logprob=logprob.detach(), kl_weight=1.0, **CLIP
    )
    assert loss.item() == 0
    loss, stats = policy_loss(
        logprob, None, torch.zeros(2), denominator=2, ref_logprob=torch.tensor([-2.0, -2.0]), kl_weight=1.0, **CLIP
    )
    loss.backward()
    assert float(stats.kl) > 0
    assert logprob.grad[0] > 0 > logprob.grad[1]  # descent lowers the likelier and raises the rarer


def test_advantages_carry_no_gradient():
    advantage = tensor(1.0)
    loss, _ = policy_loss(tensor(-1.0), None, advantage, denominator=1, **CLIP)
    loss.backward()
    assert advantage.grad is None
