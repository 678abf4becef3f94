"""GRPO and GDPO: laws, and agreement with TRL's own code."""

import ast
import inspect
import math
import textwrap
from types import SimpleNamespace

import pytest
import torch
from trl import GRPOTrainer
from trl.trainer import grpo_trainer

from mrtpo_agent.advantages import gdpo_advantages, grpo_advantages, live_rewards, normalize_rewards

NAN = math.nan


@pytest.fixture(scope="module")
def trl_normalize_then_sum():
    """TRL's own statements, found in its trainer's source and run on rewards (B, G, K)."""
    source = textwrap.dedent(inspect.getsource(GRPOTrainer._generate_and_score_completions))
    branches = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If)
        and ast.unparse(node.test).endswith("multi_objective_aggregation == 'normalize_then_sum'")
    ]
    assert len(branches) == 1, "TRL has changed: look at what normalize_then_sum is now"
    before, after = (
        "unscorable_mask = torch.isnan(rewards_per_func).all(dim=1)",
        "advantages = torch.nan_to_num(advantages, nan=0.0)",
    )
    assert before in source, "TRL has changed how it finds what nobody could judge"
    assert after in source, "TRL has changed what it does with it"
    program = compile("\n".join([before, *map(ast.unparse, branches[0].body), after]), "trl", "exec")

    def run(rewards, weights):
        trainer = SimpleNamespace(reward_funcs=range(rewards.shape[-1]), reward_weights=weights)
        scope = {"self": trainer, "num_generations": rewards.shape[1], "device": rewards.device}
        scope["rewards_per_func"] = rewards.reshape(-1, rewards.shape[-1])
        exec(program, vars(grpo_trainer) | scope, result := {})
        return result["advantages"].reshape(rewards.shape[:2])

    return run


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_gdpo_agrees_with_trl(seed, missing, trl_normalize_then_sum):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand(4, 8, 3, generator=generator, dtype=torch.float64)
    rewards[..., 0] = rewards[..., 0].round()
    rewards[torch.rand(rewards.shape, generator=generator) < missing] = NAN
    if missing:
        rewards[0, :, 1] = NAN  # a reward that nobody could judge in this group
        rewards[1, 1:, 1] = NAN  # one that was judged once
        rewards[2, 0] = NAN  # a response that no verifier could judge
    weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    ours = torch.stack([a.sample_g for a in gdpo_advantages(list(rewards), [weights] * 4)])
    # TRL divides two integer counts, which gives float32, within its deviation
    torch.testing.assert_close(ours, trl_normalize_then_sum(rewards, weights), rtol=0, atol=1e-6)


def test_unlike_trl_a_batch_of_dead_rewards_moves_nothing(trl_normalize_then_sum):
    """Seven times 0.1 has, in float32, a mean that is not 0.1."""
    rewards = torch.tensor([0.1, 0.7, 0.3]).expand(2, 7, 3).clone()
    rewards[1] = 1.0
    weights = torch.ones(3)
    assert trl_normalize_then_sum(rewards, weights).abs().max() > 0.1
    assert all((group.per_reward_gk == 0).all() for group in gdpo_advantages(list(rewards), [weights] * 2))


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
    for advantages in (gdpo_advantages, grpo_advantages):
        [group] = advantages([torch.full((4, 2), NAN)], [torch.ones(2)])
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


def test_grpo_takes_a_missing_reward_for_its_groups_mean_and_not_for_0():
    """Three good responses, one of which its second verifier failed to judge, and a bad one."""
    rewards = torch.tensor([[1.0, 9.0], [1.0, NAN], [1.0, 9.0], [0.0, 9.0]], dtype=torch.float64)
    [group] = grpo_advantages([rewards], [torch.ones(2).double()])
    assert group.sample_g[1] == group.sample_g[0] > 0 > group.sample_g[3]


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
