"""Credit is moved and never made."""

import pytest
import torch

from mrtpo_agent.advantages import gdpo_advantages
from mrtpo_agent.config import ROUTES, CreditConfig
from mrtpo_agent.credit import assign_credit, weights
from mrtpo_envs.errors import ConfigError, UnknownNameError

LENGTHS = [5, 1, 9, 3]
NAMES = ["a", "b", "c"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def relevance(seed=0):
    d = torch.rand(sum(LENGTHS), generator=generator(seed), dtype=torch.float64) ** 3
    d[:5] = 0  # a response that says nothing
    return d


def advantages():
    rewards = torch.rand(4, 3, generator=generator(9), dtype=torch.float64)
    return gdpo_advantages([rewards], [torch.tensor([1.0, 2.0, 0.5]).double()])[0]


def means(values):
    return torch.stack([part.mean() for part in values.split(LENGTHS)])


CONFIGS = [
    {},
    {"power": 2.0},
    {"power": 0.5, "floor": 0.3},
    {"cap": 1.5},
    {"floor": 0.5, "cap": 2.0, "power": 3.0},
    {"floor": 1.0},
]


@pytest.mark.parametrize("settings", CONFIGS)
@pytest.mark.parametrize("route", ROUTES)
def test_weights_are_not_negative_and_average_one(route, settings):
    config = CreditConfig(route=route, **settings)
    u = weights(config, relevance(), LENGTHS, generator())
    assert (u >= 0).all()
    torch.testing.assert_close(means(u), torch.ones(4).double(), rtol=0, atol=1e-12)
    assert (u[:6] == 1).all()  # a silent response, and one of a single token
    if config.cap:
        assert u.max() <= config.cap + 1e-9


@pytest.mark.parametrize("route", ROUTES)
def test_a_responses_mean_advantage_is_gdpos(route):
    found = assign_credit(
        CreditConfig(route=route), advantages(), NAMES, {"a": relevance(1), "c": relevance(2)}, LENGTHS, generator()
    )
    torch.testing.assert_close(means(found.advantage_n), advantages().sample_g, rtol=0, atol=1e-12)


def test_the_uniform_route_is_gdpo_to_the_last_bit():
    found = assign_credit(CreditConfig(route="uniform"), advantages(), NAMES, {}, LENGTHS, generator())
    assert torch.equal(found.advantage_n, advantages().sample_g.repeat_interleave(torch.tensor(LENGTHS)))


def test_relevance_that_says_nothing_leaves_gdpo_to_the_last_bit():
    """Some rewards are dead and not replayed, others are replayed in vain: a sum's last bit depends on their order."""
    silent = dict.fromkeys("ac", torch.zeros(sum(LENGTHS)))
    for seed in range(20):
        reward = torch.rand(4, 5, generator=generator(seed), dtype=torch.float64)
        [plain] = gdpo_advantages([reward], [torch.rand(5, generator=generator(seed), dtype=torch.float64)])
        found = assign_credit(CreditConfig(), plain, "abcde", silent, LENGTHS, generator())
        assert torch.equal(found.advantage_n, plain.sample_g.repeat_interleave(torch.tensor(LENGTHS)))


@pytest.mark.parametrize("route", ROUTES)
def test_a_response_without_tokens_gets_none(route):
    """A run's last turn may be the environment's alone."""
    u = weights(CreditConfig(route=route), relevance(), [5, 0, 13], generator())
    assert u.shape == (18,)
    assert u.isfinite().all()


def test_only_a_sign_of_the_reward_decides_whether_a_token_is_reinforced():
    """However relevance falls, no token of a response that did well on its one reward is pushed down, or the reverse."""
    [alone] = gdpo_advantages([torch.tensor([[0.0], [1.0], [1.0], [0.0]]).double()], [torch.ones(1).double()])
    for route in ROUTES:
        d = relevance(3) - 0.2  # a placebo may have outdone the hint
        found = assign_credit(CreditConfig(route=route), alone, ["a"], {"a": d}, LENGTHS, generator())
        sign = alone.sample_g.sign().repeat_interleave(torch.tensor(LENGTHS))
        assert (found.advantage_n * sign >= 0).all()


def test_renaming_and_reordering_rewards_changes_nothing():
    plain = advantages()
    turned = type(plain)(plain.per_reward_gk[:, [2, 0, 1]])
    d = {name: relevance(i) for i, name in enumerate(NAMES)}
    one = assign_credit(CreditConfig(), plain, NAMES, d, LENGTHS, generator())
    renamed = {"z": d["c"], "x": d["a"], "y": d["b"]}
    other = assign_credit(CreditConfig(), turned, ["z", "x", "y"], renamed, LENGTHS, generator())
    torch.testing.assert_close(one.advantage_n, other.advantage_n, rtol=0, atol=1e-12)


def test_credit_goes_where_relevance_is():
    d = torch.tensor([0.0, 0.0, 0.9, 0.0], dtype=torch.float64)
    assert weights(CreditConfig(), d, [4], generator()).tolist() == [0, 0, 4, 0]
    inverted = weights(CreditConfig(route="inverted"), d, [4], generator())
    assert inverted.argmin() == 2
    assert weights(CreditConfig(floor=0.5), d, [4], generator()).tolist() == [0.5, 0.5, 2.5, 0.5]
    capped = weights(CreditConfig(cap=2.0), d, [4], generator())
    torch.testing.assert_close(capped, torch.tensor([2 / 3, 2 / 3, 2.0, 2 / 3], dtype=torch.float64))


def test_a_power_keeps_the_order_and_a_cap_keeps_what_is_under_it_in_proportion():
    d = torch.tensor([0.1, 0.2, 0.3, 0.9], dtype=torch.float64)
    u = weights(CreditConfig(power=2.0, cap=1.8), d, [4], generator())
    assert u.tolist() == sorted(u.tolist())
    assert float(u[1] / u[0]) == pytest.approx(4)


def test_a_high_power_of_small_relevance_goes_to_the_largest_and_not_to_nothing():
    d = torch.tensor([1e-5, 2e-5, 3e-5], dtype=torch.float64)
    assert weights(CreditConfig(power=80.0), d, [3], generator()).tolist() == pytest.approx([0, 0, 3])


def test_shuffled_has_the_same_weights_in_other_places_decided_by_the_generator():
    d = torch.rand(40, generator=generator(4), dtype=torch.float64)
    plain, shuffled = (weights(CreditConfig(route=r), d, [40], generator(1)) for r in ("jsd", "shuffled"))
    torch.testing.assert_close(plain.sort().values, shuffled.sort().values)
    assert not torch.equal(plain, shuffled)
    assert torch.equal(shuffled, weights(CreditConfig(route="shuffled"), d, [40], generator(1)))
    assert not torch.equal(shuffled, weights(CreditConfig(route="shuffled"), d, [40], generator(2)))


def test_inverted_turns_the_order_round():
    d = torch.rand(40, generator=generator(4), dtype=torch.float64)
    assert torch.equal(
        weights(CreditConfig(route="inverted"), d, [40], generator()).argsort(),
        weights(CreditConfig(), d, [40], generator()).argsort(descending=True),
    )


def test_relevance_is_detached():
    d = torch.rand(4, dtype=torch.float64, requires_grad=True)
    assert not weights(CreditConfig(), d, [4], generator()).requires_grad


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"route": "jsdd"}, UnknownNameError, "Did you mean 'jsd'"),
        ({"power": 0}, ConfigError, "power must be above 0"),
        ({"floor": 1.5}, ConfigError, "from 0 to 1"),
        ({"cap": 1.0}, ConfigError, "above 1"),
    ],
)
def test_impossible_knobs_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        CreditConfig(**settings)
