"""Models, tokenizers and adapters: what loads, and what is said of what does not."""

import json

import pytest
import torch
from agent_models import make_model, make_policy

from mrtpo_agent.config import PolicyConfig
from mrtpo_agent.loading import load_policy, pick_device, pick_dtype
from mrtpo_envs import PolicyError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    model, tokenizer = make_model()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def config(folder, **changes):
    return PolicyConfig(**({"model": str(folder), "dtype": "float64", "lora_rank": 4, "device": "cpu"} | changes))


def parameters(policy):
    return torch.cat([p.detach().flatten().double() for p in policy.parameters])


def test_a_folder_loads_and_its_fresh_adapter_changes_nothing_and_follows_the_seed(folder):
    global_state = torch.random.get_rng_state()
    policies = [load_policy(config(folder), seed=s) for s in (1, 1, 2)]
    assert torch.equal(torch.random.get_rng_state(), global_state)
    assert torch.equal(parameters(policies[0]), parameters(policies[1]))
    assert not torch.equal(parameters(policies[0]), parameters(policies[2]))
    with torch.no_grad():
        hidden = policies[0].hidden([1, 2, 3], [[4, 5]])
        with policies[0].adapter_off():
            torch.testing.assert_close(hidden, policies[0].hidden([1, 2, 3], [[4, 5]]))
    assert {p.dtype for p in policies[0].parameters} <= {torch.float32, torch.float64}


def test_training_goes_on_from_an_adapter(folder, tmp_path):
    policy = load_policy(config(folder), seed=1)
    with torch.no_grad():
        for p in policy.parameters:
            p.add_(0.01)
    policy.save(tmp_path / "adapter")
    again = load_policy(config(folder, adapter=str(tmp_path / "adapter")), seed=9)
    torch.testing.assert_close(parameters(again), parameters(policy))
    assert all(p.requires_grad for p in again.parameters)


def test_gradient_checkpointing_changes_no_gradient(folder):
    gradients = []
    for on in (False, True):
        policy = load_policy(config(folder, gradient_checkpointing=on), seed=1)
        policy.model.train()
        policy.hidden([1, 2, 3], [[4, 5, 6], [7]]).square().sum().backward()
        gradients.append([p.grad for p in policy.parameters])
    assert any(g.abs().max() > 0 for g in gradients[0])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "/no/such/folder"}, "there is no model folder"),
        ({"model": "./nothing"}, "there is no model folder"),
        ({"lora_targets": ["no_such_module"]}, "cannot put a LoRA adapter on this model"),
        ({"adapter": "/no/such/adapter"}, "cannot use the adapter"),
        ({"device": "quantum"}, "policy.device 'quantum' cannot be used"),
    ],
)
def test_what_cannot_be_loaded_is_told(folder, changes, message):
    with pytest.raises(PolicyError, match=message):
        load_policy(config(folder, **changes))


def test_a_folder_that_is_no_model_is_told(tmp_path):
    with pytest.raises(PolicyError, match=r"is no model folder: it has no config.json"):
        load_policy(config(tmp_path))
    make_policy().save(tmp_path)
    with pytest.raises(PolicyError, match=r"this one holds an adapter: name it in policy.adapter"):
        load_policy(config(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PolicyError, match="cannot load the model"):
        load_policy(config(tmp_path))


def test_a_model_without_a_chat_template_is_told(folder, tmp_path):
    model, tokenizer = make_model()
    tokenizer.chat_template = None
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(PolicyError, match="no chat template"):
        load_policy(config(tmp_path))


def test_an_adapter_for_another_model_is_told(folder, tmp_path):
    other = make_policy(hidden_size=48, num_attention_heads=6)
    other.save(tmp_path)
    with pytest.raises(PolicyError, match="cannot use the adapter"):
        load_policy(config(folder, adapter=str(tmp_path)))
    deeper = make_policy(num_hidden_layers=3)
    deeper.save(tmp_path / "deeper")
    settings = json.loads((tmp_path / "deeper" / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "somebody/else"
    (tmp_path / "deeper" / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(PolicyError, match="somebody/else"):
        load_policy(config(folder, adapter=str(tmp_path / "deeper")))


def test_types_and_devices_are_chosen_sensibly():
    cpu = torch.device("cpu")
    assert pick_dtype("auto", cpu) in (torch.bfloat16, torch.float32)
    assert pick_dtype("float16", cpu) == torch.float16
    assert pick_device("cpu") == cpu
    assert pick_device("auto").type in ("cuda", "mps", "cpu")
