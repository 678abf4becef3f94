"""Settings: YAML in, YAML out, and what is wrong is named."""

import pytest

from mrtpo_agent.config import TrainConfig, dump, from_dict, load, parse_options, to_dict
from mrtpo_envs import ConfigError, UnknownNameError


def test_yaml_out_and_in_again_is_the_same(tmp_path):
    config = from_dict(
        {
            "method": "gdpo",
            "env": {"name": "x:y", "options": {"kinds": ["a"], "n": 3}},
            "policy": {"lora_targets": ["q_proj"], "adapter": "folder"},
            "optim": {"lr": "2e-4", "betas": [0.9, 0.95]},  # YAML 1.1 reads 2e-4 as text
            "credit": {"cap": 3},
        }
    )
    assert config.optim.lr == 2e-4
    assert config.optim.betas == (0.9, 0.95)
    assert config.credit.cap == 3.0
    path = tmp_path / "config.yaml"
    path.write_text(dump(config))
    assert load(path) == config
    assert from_dict(to_dict(TrainConfig())) == TrainConfig()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"metod": "gdpo"}, UnknownNameError, "Did you mean 'method'"),
        ({"optim": {"learning_rate": 1}}, UnknownNameError, "unknown setting 'optim.learning_rate'"),
        ({"rollout": {"group_sze": 4}}, UnknownNameError, "Did you mean 'rollout.group_size'"),
        ({"method": "ppo"}, ConfigError, "method must be one of mrtpo, gdpo, grpo, got 'ppo'"),
        ({"rollout": {"group_size": 1}}, ConfigError, "group_size must be at least 2, got 1: an advantage compares"),
        ({"rollout": {"group_size": "many"}}, ConfigError, "rollout.group_size must be of type int, got str"),
        ({"rollout": {"group_size": True}}, ConfigError, "type int, got bool"),
        ({"rollout": [1]}, ConfigError, "rollout must be a mapping, got list"),
        ({"rollout": {"temperature": 0}}, ConfigError, "temperature must be above 0"),
        ({"rollout": {"prompts_per_step": 0}}, ConfigError, "at least 1"),
        ({"rollout": {"max_new_tokens": 0}}, ConfigError, "at least 1"),
        ({"optim": {"lr": "fast"}}, ConfigError, "optim.lr must be of type float"),
        ({"optim": {"lr": 0}}, ConfigError, "lr must be above 0"),
        ({"optim": {"clip_low": 2}}, ConfigError, "clip_low"),
        ({"optim": {"betas": [0.9]}}, ConfigError, "optim.betas"),
        ({"optim": {"updates_per_batch": 0}}, ConfigError, "at least 1"),
        ({"credit": {"route": "jds"}}, UnknownNameError, "Did you mean 'jsd'"),
        ({"replay": {"omission": False, "reference": False}}, ConfigError, "at least one of omission, reference"),
        ({"policy": {"dtype": "int8"}}, ConfigError, "policy.dtype must be one of"),
        ({"policy": {"lora_rank": 0}}, ConfigError, "lora_rank"),
        ({"policy": {"lora_dropout": 1}}, ConfigError, "lora_dropout"),
        ({"steps": 0}, ConfigError, "steps must be at least 1"),
        ({"steps": 2.5}, ConfigError, "steps must be of type int, got float"),
        ({"evaluation": {"samples": 0}}, ConfigError, "samples"),
        ({"trackers": [1]}, ConfigError, r"trackers\[0\] must be of type str"),
        ([], ConfigError, "the configuration must be a mapping"),
    ],
)
def test_what_is_wrong_is_named(data, error, message):
    with pytest.raises(error, match=message):
        from_dict(data)


@pytest.mark.parametrize(("text", "message"), [("a: [", "is not YAML"), ("metod: x", "metod"), ("- 1", "mapping")])
def test_a_bad_file_is_named(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        load(path)
    assert "bad.yaml" in str(raised.value)


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"cannot read the configuration 'nowhere\.yaml': No such file"):
        load("nowhere.yaml")


def test_an_empty_file_is_the_defaults(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    assert load(tmp_path / "empty.yaml") == TrainConfig()


def test_options_are_read_as_yaml():
    assert parse_options(["a=1", "b=[x, 2]", "c=test", "d="]) == {"a": 1, "b": ["x", 2], "c": "test", "d": None}
    with pytest.raises(ConfigError, match="KEY=VALUE, got 'a'"):
        parse_options(["a"])
