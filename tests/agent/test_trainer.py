"""The trainer's laws, on a tiny random model in float64."""

import json
import os
import signal

import pytest
import torch
from agent_models import make_policy
from training import LOW, Dead, Has, Short, make_env, make_task, settings

from mrtpo_agent.checkpoint import RunFolder
from mrtpo_agent.config import ROUTES, CreditConfig, EvalConfig, OptimConfig, ReplayConfig, RolloutConfig, load
from mrtpo_agent.evaluation import Evaluation, evaluate, normal, wilson
from mrtpo_agent.interrupt import defer_interrupt
from mrtpo_agent.policy import Policy
from mrtpo_agent.progress import Progress
from mrtpo_agent.replay import replay, replay_pair
from mrtpo_agent.rollout import collect
from mrtpo_agent.tokens import overlaps, token_spans
from mrtpo_agent.trainer import Trainer
from mrtpo_envs import ConfigError, EnvError, MultiRewardEnv, RunError, Span, TaskError, UnknownNameError


def weights_of(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters])


def trained(policy=None, env=None, steps=2, **changes):
    policy = policy or make_policy()
    trainer = Trainer(env or make_env(), policy, settings(**changes))
    records = [trainer.step(i)[1] for i in range(steps)]
    return weights_of(policy), records


# rollouts and tokens ------------------------------------------------------------------------------------------------


def collected(policy, env, group_size=4, n=2, **options):
    tasks = [make_task(i) for i in range(n)] if "tasks" not in options else options["tasks"]
    return collect(
        policy, env, tasks, group_size=group_size, max_new_tokens=10, temperature=1.0, seeds=list(range(len(tasks)))
    )


def test_rollouts_hold_what_was_sampled_and_its_verdicts(policy):
    groups = collected(policy, make_env())
    for group in groups:
        assert group.rewards.shape == (4, 4)
        for rollout in group.rollouts:
            assert policy.decode(rollout.ids) == rollout.text
            assert all(rollout.is_policy)
            assert rollout.truncated == (rollout.ids[-1] not in policy.eos_ids)


class Patient(MultiRewardEnv):
    def feedback(self, task, response, verification):
        return "Again."


def test_feedback_between_turns_is_in_the_rollout_but_not_the_policys(policy):
    env = Patient([make_task(0)], max_turns=3)
    [group] = collected(policy, env, tasks=[make_task(0)])
    for rollout in group.rollouts:
        assert rollout.turns == 3
        own = [i for i, mine in zip(rollout.ids, rollout.is_policy, strict=True) if mine]
        written = [i for i, mine in zip(rollout.ids, rollout.is_policy, strict=True) if not mine]
        assert policy.decode(written).count("Again.") == 2
        assert policy.decode(rollout.ids[rollout.last_turn :]) == rollout.text
        assert len(own) == sum(rollout.is_policy) <= 30
    assert group.lengths == [sum(r.is_policy) for r in group.rollouts]
    assert len(group.trained) == sum(group.lengths)


def test_several_turns_train_without_touching_what_the_environment_wrote():
    env = Patient([make_task(i) for i in range(4)], max_turns=2)
    after, records = trained(env=env)
    assert not torch.equal(after, weights_of(make_policy()))
    assert all(r["skipped"] == 0 for r in records)


@pytest.mark.parametrize("text", ["plain", "naïve 中文 😀 x", "\u0301a"])
def test_tokens_know_the_characters_they_stand_for(policy, text):
    ids = [*policy.tokenizer(text)["input_ids"], policy.eos_ids[0]]
    spans = token_spans(policy, ids)
    assert spans[-1] == Span(len(text), len(text))
    for i, span in enumerate(spans[:-1]):
        assert span.end == span.start + 1
        assert i >= span.start
    assert {text[s.start] for s in spans[:-1]} == set(text)
    assert overlaps(spans, [Span(0, 1)])[0]
    assert not any(overlaps(spans, [Span(0, 1)])[len(text[0].encode()) :])


# replay -------------------------------------------------------------------------------------------------------------


def replayed(policy, group, names, config=None, **options):
    with torch.no_grad():
        plain = policy.hidden(group.prompt, group.responses)[group.trained]
    return replay(policy, group, names, config or ReplayConfig(), plain, **options)


def test_what_is_stated_is_left_out_and_what_is_not_is_hinted(policy):
    [group] = collected(policy, make_env(), n=1)
    stated = replay_pair(policy, group, group.task.verifier("low"), ReplayConfig())
    hinted = replay_pair(policy, group, group.task.verifier("short"), ReplayConfig())
    assert stated.with_ is None
    assert "Use abc." not in policy.decode(stated.without[0])
    assert "Use 012." in policy.decode(stated.without[0])
    assert hinted.without is None
    assert "at most 9 characters" in policy.decode(hinted.with_[0])
    assert hinted.hint_tokens == len(hinted.with_[0]) - len(group.prompt)
    assert "at most" not in policy.decode(group.prompt)  # what the policy answered never held a reference


def test_a_replay_compares_the_two_prompts_on_the_same_response(policy):
    [group] = collected(policy, make_env(), n=1)
    found = replayed(policy, group, ["low", "short"])
    for name, (with_omit, without_omit, with_hints) in {
        "low": ((), {"low"}, ()),
        "short": ((), (), ("For your information, about what is checked: at most 9 characters",)),
    }.items():
        sides = []
        for omit, hints in ((with_omit, with_hints), (without_omit, ())):
            prompt = policy.encode(group.task.prompt, omit, hints)
            rows = []
            for response in group.responses:  # each alone, through the whole model
                ids = torch.tensor([[*prompt, *response]])
                logits = policy.causal_lm(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
                rows.append(torch.softmax(logits, -1).detach())
            sides.append(torch.cat(rows))
        p, q = sides
        m = (p + q) / 2
        jsd = ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)) / 2 / torch.log(torch.tensor(2.0))
        torch.testing.assert_close(found[name].jsd, jsd.clamp(min=0).sqrt(), rtol=0, atol=1e-5)


def test_the_outcome_can_be_shown_and_differs_by_response(policy):
    [group] = collected(policy, make_env(), n=1)
    pair = replay_pair(policy, group, group.task.verifier("low"), ReplayConfig(outcome=True))
    for prompt, rollout in zip(pair.with_, group.rollouts, strict=True):
        assert rollout.verification["low"].outcome in policy.decode(prompt)
    found = replayed(policy, group, ["low"], ReplayConfig(outcome=True))["low"]
    assert len(found.jsd) == sum(group.lengths)


def test_a_placebo_is_as_long_as_the_hint_and_serves_hinted_rewards_only(policy):
    [group] = collected(policy, make_env(), n=1)
    asked = []
    hidden = policy.hidden
    policy.hidden = lambda prompt, responses: asked.append(policy.decode(prompt)) or hidden(prompt, responses)
    found = replayed(policy, group, ["low", "short"], placebo=True)
    assert found["low"].placebo is None
    assert found["short"].placebo.shape == found["short"].jsd.shape
    [nothing] = [prompt for prompt in asked if "library" in prompt]
    [hint] = [prompt for prompt in asked if "at most 9" in prompt]
    assert abs(len(nothing) - len(hint)) <= 12  # whole words of a text with one token a character


def test_nothing_to_replay_with_is_an_error_that_says_what_to_do(policy):
    [group] = collected(policy, make_env(), n=1)
    with pytest.raises(TaskError, match=r"nothing to replay with: give its verifier a `statement`"):
        replay_pair(policy, group, group.task.verifier("short"), ReplayConfig(reference=False))


# laws of a step -----------------------------------------------------------------------------------------------------


def test_mrtpo_with_the_uniform_route_is_gdpo_to_the_last_bit():
    uniform, _ = trained(method="mrtpo", credit=CreditConfig(route="uniform"))
    gdpo, _ = trained(method="gdpo")
    assert torch.equal(uniform, gdpo)
    jsd, _ = trained(method="mrtpo")
    assert not torch.equal(jsd, gdpo)


def test_packing_changes_no_step_beyond_rounding():
    start = weights_of(make_policy())
    packed, _ = trained(make_policy(packing="on"), steps=1)
    plain, _ = trained(make_policy(packing="off"), steps=1)
    # one Adam step has the size of the learning rate whatever the gradient's: compare where it is not tiny
    apart = (packed - plain).abs()
    assert (apart < 1e-5).float().mean() > 0.99
    assert (packed - start).abs().max() > 5e-4


def test_a_dead_reward_costs_no_pass_and_a_dead_group_none_at_all(monkeypatch):
    calls = []
    hidden = Policy.hidden
    monkeypatch.setattr(Policy, "hidden", lambda self, p, r: calls.append(1) or hidden(self, p, r))
    trained(make_policy(packing="on"), make_env((Dead(),)), steps=1)
    assert calls == []
    trained(make_policy(packing="on"), make_env((Has(LOW, "low"), Dead())), steps=1)
    assert len(calls) == 4  # for each of two groups, the update's pass and one replay


def test_a_reward_less_judged_or_dead_changes_nothing_for_the_others():
    alone, _ = trained(env=make_env((Has(LOW, "low"),)), method="gdpo", steps=1)
    beside, _ = trained(env=make_env((Has(LOW, "low"), Dead())), method="gdpo", steps=1)
    assert torch.equal(alone, beside)


def test_dropout_blurs_the_update_and_not_the_relevance():
    kept = []
    for dropout in (0.0, 0.5):
        policy = make_policy(dropout=dropout)
        trainer = Trainer(make_env(), policy, settings())
        credit = trainer._credit
        trainer._credit = lambda *a, c=credit: kept.append(c(*a)) or kept[-1]
        trainer.step(0)
    for one, other in zip(kept[: len(kept) // 2], kept[len(kept) // 2 :], strict=True):
        for name, d in one.relevance.items():
            torch.testing.assert_close(d, other.relevance[name], rtol=0, atol=1e-6)


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_trains(route):
    after, records = trained(credit=CreditConfig(route=route), steps=1)
    assert after.isfinite().all()
    assert records[0]["grad_norm"] > 0


@pytest.mark.parametrize("method", ["mrtpo", "gdpo", "grpo"])
def test_training_raises_the_rewards(method):
    policy = make_policy(adapter_scale=0.0, rank=8)
    env = make_env((Has(LOW, "low"), Has("abcdefghij", "early")))
    rollout = RolloutConfig(prompts_per_step=2, group_size=8, max_new_tokens=10)
    trainer = Trainer(env, policy, settings(method=method, optim=OptimConfig(lr=2e-2), rollout=rollout, steps=25))
    records = [trainer.step(i)[1] for i in range(25)]
    early, late = (sum(r["reward"] for r in part) / 5 for part in (records[:5], records[-5:]))
    assert late > early + 0.25


def test_an_old_policys_ratio_is_clipped_on_further_updates_of_a_batch():
    _, [record] = trained(optim=OptimConfig(lr=0.3, updates_per_batch=4, warmup_steps=0), steps=1)
    assert record["clip_fraction"] > 0
    _, [record] = trained(optim=OptimConfig(lr=0.3, updates_per_batch=1, warmup_steps=0), steps=1)
    assert record["clip_fraction"] == 0


def test_the_penalty_is_measured_against_the_base_model():
    _, [record] = trained(make_policy(adapter_scale=0.0), optim=OptimConfig(kl_weight=0.1), steps=1)
    assert record["kl"] == pytest.approx(0, abs=1e-9)
    _, [record] = trained(make_policy(adapter_scale=0.3), optim=OptimConfig(kl_weight=0.1), steps=1)
    assert record["kl"] > 0


def test_a_loss_that_is_not_finite_is_skipped_and_counted(monkeypatch):
    policy = make_policy()
    start = weights_of(policy)
    head = policy.lm_head.weight
    with torch.no_grad():
        head[5] = float("nan")
    policy.sample = lambda prompts, **k: (
        [[type("R", (), {"ids": (30 + g, 9), "truncated": True}) for g in range(4)]] * 2
    )
    trainer = Trainer(make_env((Has(LOW + "!", "low"), Short())), policy, settings(method="gdpo"))
    policy.decode = lambda ids: "abc" if ids[0] % 2 else "?"
    trainer.step(0)
    assert trainer.skipped == 2
    assert torch.equal(weights_of(policy), start)


# runs ---------------------------------------------------------------------------------------------------------------


class StopAfter(Progress):
    """Presses Ctrl-C while step `n` + 1 is on its way."""

    def __init__(self, n, phase="update"):
        self.n, self.at, self.told = n, phase, None

    def step(self, record):
        self.n -= 1

    def phase(self, name):
        if self.n == 0 and name == self.at:
            self.n = -1
            os.kill(os.getpid(), signal.SIGINT)

    def interrupted(self, step, folder):
        self.told = step


@pytest.fixture
def ctrl_c_works():
    """As in a terminal: a job that was started in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_is_held_back_and_then_raised(ctrl_c_works):
    reached = []

    def interrupted():
        with defer_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert reached


@pytest.mark.parametrize("phase", ["sample", "replay", "update"])
def test_a_run_stopped_by_ctrl_c_and_resumed_is_the_run_that_was_not_stopped(tmp_path, phase, ctrl_c_works):
    whole = make_policy()
    Trainer(make_env(), whole, settings(), out=tmp_path / "whole").train()

    policy, progress = make_policy(), StopAfter(1, phase)
    with pytest.raises(KeyboardInterrupt):
        Trainer(make_env(), policy, settings(), out=tmp_path / "cut", progress=progress).train()
    assert progress.told == 1
    again = make_policy(seed=5)  # other adapter weights: they must come from the checkpoint
    again.model.base_model.load_state_dict(
        {k: v for k, v in policy.model.base_model.state_dict().items() if "lora" not in k}, strict=False
    )
    result = Trainer(make_env(), again, settings(), out=tmp_path / "cut").train(resume=True)
    torch.testing.assert_close(weights_of(again), weights_of(whole), rtol=0, atol=1e-12)
    assert result.steps == 3
    assert result.before is not None

    def log(name):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [{k: v for k, v in json.loads(x).items() if k not in ("seconds", "tokens_per_s")} for x in lines]

    assert log("cut") == log("whole")


def test_the_run_folder_holds_everything(tmp_path):
    policy = make_policy()
    result = Trainer(make_env(), policy, settings(), out=tmp_path / "run").train()
    folder = tmp_path / "run"
    assert load(folder / "config.yaml") == settings()
    assert json.loads((folder / "versions.json").read_text())["torch"] == torch.__version__
    assert [r["step"] for r in RunFolder(folder).read("evals.jsonl")] == [0, 3]
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"step-000002", "step-000003"}
    assert (folder / "adapter" / "adapter_model.safetensors").exists()
    assert (folder / "adapter" / "tokenizer.json").exists()
    assert result.after == Evaluation.from_dict(RunFolder(folder).read("evals.jsonl")[-1]["evaluation"])
    rollouts = RunFolder(folder).read("rollouts.jsonl")
    assert rollouts
    for rollout in rollouts:
        assert len(rollout["tokens"]) == len(rollout["is_policy"]) == len(rollout["spans"])
        for weight in rollout["weight"].values():
            assert sum(weight) / len(weight) == pytest.approx(1, abs=1e-3)


def test_a_folder_that_holds_a_run_is_not_written_over(tmp_path):
    Trainer(make_env(), make_policy(), settings(steps=1), out=tmp_path).train()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(RunError, match="holds a run already: go on with it"):
        Trainer(make_env(), make_policy(), settings(steps=1), out=tmp_path).train()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_full_disk_loses_no_earlier_checkpoint(tmp_path, monkeypatch):
    policy = make_policy()
    trainer = Trainer(make_env(), policy, settings(save_every=1, steps=2), out=tmp_path)
    save = Policy.save

    def full(self, folder):
        save(self, folder)
        if "000002" in str(folder):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Policy, "save", full)
    with pytest.raises(RunError, match=r"No space left on device.*step-000001 is whole.*--resume"):
        trainer.train()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]
    monkeypatch.setattr(Policy, "save", save)
    again = Trainer(make_env(), policy, settings(save_every=1, steps=2), out=tmp_path).train(resume=True)
    assert again.steps == 2


def test_a_last_line_cut_short_is_dropped_on_resume(tmp_path):
    Trainer(make_env(), make_policy(), settings(steps=1), out=tmp_path).train()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')
    Trainer(make_env(), make_policy(), settings(steps=2), out=tmp_path).train(resume=True)
    assert [r["step"] for r in RunFolder(tmp_path).read("metrics.jsonl")] == [1, 2]
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_settings_that_a_resumed_run_changes_are_written_down(tmp_path):
    Trainer(make_env(), make_policy(), settings(steps=1), out=tmp_path).train()
    Trainer(make_env(), make_policy(), settings(steps=2), out=tmp_path).train(resume=True)
    assert load(tmp_path / "config.yaml").steps == 2
    assert load(tmp_path / "config.until-step-000001.yaml").steps == 1


def test_a_finished_run_that_is_resumed_shows_what_it_came_to(tmp_path):
    first = Trainer(make_env(), make_policy(), settings(), out=tmp_path).train()
    again = Trainer(make_env(), make_policy(), settings(), out=tmp_path).train(resume=True)
    assert (again.before, again.after) == (first.before, first.after)
    assert again.before != again.after


def test_one_task_and_rewards_that_cannot_be_judged_do_not_stop_a_run(tmp_path):
    class Broken(Dead):
        def check(self, task, response):
            raise OSError("the service is away")

    env = make_env((Broken(),))
    result = Trainer(env, make_policy(), settings(steps=1, evaluation=EvalConfig(tasks=1)), out=tmp_path).train()
    assert result.after.mean_passed.n == 0
    [record] = RunFolder(tmp_path).read("metrics.jsonl")
    assert record["unjudged"] == 8


def test_an_adapter_of_other_settings_is_told_on_resume(tmp_path):
    Trainer(make_env(), make_policy(rank=4), settings(steps=1), out=tmp_path).train()
    with pytest.raises(RunError, match="cannot resume"):
        Trainer(make_env(), make_policy(rank=8), settings(steps=2), out=tmp_path).train(resume=True)


def test_resuming_needs_a_folder_and_a_trainer_an_environment():
    with pytest.raises(RunError, match="given no run folder"):
        Trainer(make_env(), make_policy(), settings()).train(resume=True)
    with pytest.raises(EnvError, match="needs a MultiRewardEnv, got str"):
        Trainer("Instructions", make_policy(), settings())


def test_metrics_reach_accelerates_trackers(tmp_path, monkeypatch):
    from accelerate import tracking

    logged = []

    class Recorder(tracking.GeneralTracker):
        name, requires_logging_directory, tracker = "recorder", False, None

        def __init__(self, run_name):
            super().__init__()
            logged.append(run_name)

        def store_init_configuration(self, values):
            logged.append(values["optim/lr"])

        def log(self, values, step):
            logged.append((step, sorted(values)))

    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "recorder", Recorder)
    monkeypatch.setattr(tracking, "get_available_trackers", lambda: ["recorder"])
    Trainer(make_env(), make_policy(), settings(steps=1, trackers=["recorder"]), out=tmp_path / "run").train()
    assert logged[:2] == ["run", "0.001"]
    steps = [record for record in logged[2:] if "rewards/low" in record[1]]
    assert [step for step, _ in steps] == [1]
    assert {"loss", "seconds/sample", "reward", "tokens_per_s"} <= set(steps[0][1])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [("tensorbord", UnknownNameError, "Did you mean 'tensorboard'"), ("comet_ml", ConfigError, "is not installed")],
)
def test_trackers_that_are_not_there_are_told(tmp_path, name, error, message):
    with pytest.raises(error, match=message):
        Trainer(make_env(), make_policy(), settings(trackers=[name]), out=tmp_path / "run").train()


# evaluation ---------------------------------------------------------------------------------------------------------


def test_an_evaluation_is_the_same_for_the_same_seed_and_judges_held_out_tasks(policy):
    runs = [
        evaluate(policy, make_env(), tasks=5, max_new_tokens=8, seed=s, batch_size=b)
        for s, b in ((1, 2), (1, 5), (2, 5))
    ]
    assert runs[0][0] == runs[1][0]
    assert runs[0][0] != runs[2][0]
    assert [g.task.id for g in runs[0][1]] == [f"t{100 + i}" for i in range(5)]
    assert runs[0][0].passed["dead"].mean == 1
    assert runs[0][0].all_passed.mean <= min(rate.mean for rate in runs[0][0].passed.values())


def test_several_samples_a_task(policy):
    found, groups = evaluate(policy, make_env(), tasks=3, samples=4, max_new_tokens=8)
    assert found.passed["dead"].n == 12
    assert found.mean_passed.n == 3
    assert len({r.ids for r in groups[0].rollouts}) > 1


def test_intervals_agree_with_published_values():
    rate = wilson(81, 263)  # Newcombe 1998, table I
    assert (round(rate.low, 4), round(rate.high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 20).low == 0
    assert round(wilson(0, 20).high, 4) == 0.1611
    mean = normal([1.0, 2.0, 3.0, 4.0])
    assert (round(mean.low, 3), round(mean.high, 3)) == (1.235, 3.765)
