"""GRPO and GDPO: laws, and agreement with TRL's own code."""

import math

import pytest
import torch
from trl.trainer.utils import nanstd

from mrtpo_agent.advantages import gdpo_advantages, grpo_advantages, live_rewards, normalize_rewards

NAN = math.nan


def trl_normalize_then_sum(rewards, weights):
    """What TRL's GRPOTrainer does under `normalize_then_sum`, on rewards (B, G, K); its deviation is its own function."""
    grouped = rewards
    mean = torch.nanmean(grouped, dim=1, keepdim=True)
    normal = (grouped - mean) / (nanstd(grouped, dim=1, keepdim=True) + 1e-4)
    summed = (normal.reshape(-1, rewards.shape[-1]) * weights).nansum(dim=1)
    summed[rewards.isnan().all(-1).reshape(-1)] = torch.nan
    advantages = (summed - torch.nanmean(summed)) / (nanstd(summed) + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0).reshape(rewards.shape[:2])


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_gdpo_agrees_with_trl(seed, missing):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(4, 8, 3, generator=generator, dtype=torch.float64)
    rewards[..., 0] = rewards[..., 0].round()
    rewards[torch.rand(rewards.shape, generator=generator) < missing] = NAN
    weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    ours = torch.stack([a.sample_g for a in gdpo_advantages(list(rewards), [weights] * 4)])
    # TRL divides two integer counts, which gives float32, within its deviation
    torch.testing.assert_close(ours, trl_normalize_then_sum(rewards, weights), rtol=0, atol=1e-6)


def test_trls_code_path_is_still_the_one_compared_with():
    import inspect

    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer)
    assert "rewards = (reward_k * self.reward_weights.to(device).unsqueeze(0)).nansum(dim=1)" in source
    assert "advantages = (rewards - torch.nanmean(rewards)) / (std_rewards + 1e-4)" in source


def test_a_dead_reward_is_exactly_zero_even_where_the_mean_rounds():
    rewards = torch.full((7, 2), 0.1, dtype=torch.float32)
    rewards[0, 1] = 0.7
    assert live_rewards(rewards).tolist() == [False, True]
    normal = normalize_rewards(rewards)
    assert (normal[:, 0] == 0).all()
    assert (normal[:, 1] != 0).all()


def test_a_batch_without_any_spread_gives_zeros():
    [group] = gdpo_advantages([torch.ones(4, 2)], [torch.ones(2)])
    assert (group.per_reward_gk == 0).all()
    [group] = grpo_advantages([torch.ones(4, 2)], [torch.ones(2)])
    assert (group.per_reward_gk == 0).all()


def test_one_reward_alone_makes_gdpo_grpo_up_to_one_scale_for_the_batch():
    rewards = [torch.tensor([[0.0], [1.0], [1.0], [0.0]]).double(), torch.tensor([[0.0], [3.0], [1.0], [0.5]]).double()]
    weights = [torch.ones(1).double()] * 2
    ratio = torch.cat([a.sample_g for a in gdpo_advantages(rewards, weights)]) / torch.cat(
        [a.sample_g for a in grpo_advantages(rewards, weights)]
    )
    torch.testing.assert_close(ratio, ratio[0].expand(8), rtol=1e-3, atol=0)


def test_gdpo_hears_a_reward_of_small_differences_and_grpo_does_not():
    rewards = torch.tensor([[0.0, 0.01], [10.0, 0.0], [0.0, 0.0], [10.0, 0.01]], dtype=torch.float64)
    for advantages, heard in ((gdpo_advantages, True), (grpo_advantages, False)):
        [group] = advantages([rewards], [torch.ones(2).double()])
        better, worse = group.sample_g[3], group.sample_g[1]  # they differ in the small reward alone
        assert bool(better - worse > 0.5) == heard


def test_what_could_not_be_judged_takes_no_part():
    rewards = torch.tensor([[0.0, 1.0], [1.0, NAN], [1.0, 0.0], [0.0, NAN]], dtype=torch.float64)
    judged = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    normal = normalize_rewards(rewards)
    assert normal[1, 1] == normal[3, 1] == 0
    torch.testing.assert_close(normal[[0, 2], 1:], normalize_rewards(judged))
    for advantages in (gdpo_advantages, grpo_advantages):
        [group] = advantages([rewards], [torch.ones(2).double()])
        assert group.per_reward_gk.isfinite().all()
        assert group.sample_g[1] == -group.sample_g[3]  # alike but for the reward that was judged


def test_a_reward_judged_once_teaches_nothing():
    assert not live_rewards(torch.tensor([[NAN], [3.0], [NAN]])).any()
    assert (normalize_rewards(torch.tensor([[NAN], [3.0], [NAN]])) == 0).all()


@pytest.mark.parametrize("advantages", [gdpo_advantages, grpo_advantages])
def test_order_of_rewards_does_not_matter(advantages):
    rewards = [torch.rand(6, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64) for _ in range(3)]
    weights = torch.tensor([1.0, 2.0, 0.5]).double()
    order = [2, 0, 1]
    plain = advantages(rewards, [weights] * 3)
    turned = advantages([r[:, order] for r in rewards], [weights[order]] * 3)
    for one, other in zip(plain, turned, strict=True):
        torch.testing.assert_close(one.per_reward_gk[:, order], other.per_reward_gk)


def test_groups_may_have_different_rewards():
    rewards = [torch.rand(4, 1).double(), torch.rand(4, 3).double()]
    groups = gdpo_advantages(rewards, [torch.ones(1).double(), torch.ones(3).double()])
    assert [g.per_reward_gk.shape for g in groups] == [(4, 1), (4, 3)]
    together = torch.cat([g.sample_g for g in groups])
    assert together.std() == pytest.approx(1, abs=1e-3)
