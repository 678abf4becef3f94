"""The command line, as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from agent_models import make_model

from mrtpo_agent.cli import COMMANDS, main


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    tiny, tokenizer = make_model(max_position_embeddings=4096)
    tiny.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture
def config(model, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        f"policy: {{model: '{model}', dtype: float32, lora_rank: 4, device: cpu}}\n"
        "env: {options: {n_constraints: 2, kinds: ['punctuation:no_comma', 'keywords:letter_frequency']}}\n"
        "rollout: {prompts_per_step: 2, group_size: 3, max_new_tokens: 8}\n"
        "evaluation: {tasks: 4}\nsteps: 2\n"
    )
    return path


def test_envs_lists_the_environments(capsys):
    assert main(["envs"]) == 0
    assert "mrtpo/Instructions-v0" in capsys.readouterr().out


def test_try_shows_task_verdicts_and_evidence(capsys):
    arguments = [
        "try",
        "Instructions",
        "--options",
        "kinds=[punctuation:no_comma]",
        "n_constraints=1",
        "--response",
        "a, b",
    ]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Do not use any commas." in out
    assert "a, b\n ^  no_comma\n" in out
    assert "found 1 comma" in out


def test_try_reads_a_response_from_a_pipe_and_writes_json():
    command = [sys.executable, "-m", "mrtpo_agent.cli", "try", "Instructions", "--json"]
    done = subprocess.run(command, input="x\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    verdicts = json.loads(done.stdout)
    assert all({"reward", "outcome", "evidence", "range", "weight", "statement"} <= v.keys() for v in verdicts.values())


def test_train_eval_and_resume(config, tmp_path, capsys):
    out = tmp_path / "run"
    assert (
        main(["train", "--config", str(config), "--out", str(out), "--method", "gdpo", "--env.options", "seed=3"]) == 0
    )
    printed = capsys.readouterr().out
    assert "gdpo on mrtpo/Instructions-v0: 2 steps of 2 prompts x 3 responses" in printed
    assert "step 2/2" in printed
    assert "held-out pass rates" in printed
    saved = (out / "config.yaml").read_text()
    assert "seed: 3" in saved
    assert "n_constraints: 2" in saved

    assert main(["eval", "--run", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mean_passed"]["n"] == 4
    last = json.loads((out / "evals.jsonl").read_text().splitlines()[-1])
    assert found == last["evaluation"]
    assert main(["eval", "--run", str(out), "--base"]) == 0
    assert "mean over tasks" in capsys.readouterr().out

    assert main(["train", "--resume", str(out), "--steps", "3"]) == 0
    assert "going on after step 2" in " ".join(capsys.readouterr().out.split())
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3


def test_warmup_gives_an_adapter_that_training_goes_on_from(config, tmp_path, capsys):
    out = tmp_path / "warm"
    assert (
        main(["warmup", "--config", str(config), "--out", str(out), "--warmup.steps", "12", "--warmup.lr", "1e-2"]) == 0
    )
    losses = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 12
    assert losses[-1] < 0.8 * losses[0]
    assert "--policy.adapter" in capsys.readouterr().out
    assert main(["warmup", "--resume", str(out), "--warmup.steps", "13"]) == 0
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 13
    arguments = [
        "train",
        "--config",
        str(config),
        "--policy.adapter",
        str(out / "adapter"),
        "--out",
        str(tmp_path / "on"),
    ]
    assert main(arguments) == 0


@pytest.mark.parametrize("example", ["instructions.yaml", "text_to_sql.yaml"])
def test_every_example_configuration_trains(example, model, tmp_path, capsys):
    config = Path(__file__).parents[2] / "examples" / example
    small = ["--policy.model", str(model), "--policy.dtype", "float32", "--policy.device", "cpu", "--steps", "1"]
    small += ["--rollout.prompts-per-step", "2", "--rollout.max-new-tokens", "8", "--evaluation.tasks", "4"]
    assert main(["train", "--config", str(config), "--out", str(tmp_path / "run"), *small]) == 0
    assert "step 1/1" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.png").stat().st_size > 10_000


def test_warmup_without_solutions_is_told(model, capsys, tmp_path):
    policy = ["--policy.model", str(model), "--policy.dtype", "float32", "--policy.device", "cpu"]
    assert main(["warmup", "--env.name", "training:make_env", "--out", str(tmp_path / "w"), *policy]) == 1
    assert "knows no solution" in " ".join(capsys.readouterr().err.split())


def test_check_says_what_is_wrong_and_exits_with_1(capsys, monkeypatch, tmp_path):
    assert main(["check", "Instructions", "--tasks", "2"]) == 0
    assert "nothing wrong found" in capsys.readouterr().out
    (tmp_path / "broken_plugin.py").write_text(
        "from mrtpo_envs import *\n"
        "class Bare(Verifier):\n    name = 'bare'\n    def check(self, task, response): return Verdict(0.0, 'x')\n"
        "def env(): return MultiRewardEnv([Task(Prompt.user('a'), (Bare(),))], [Task(Prompt.user('b'), (Bare(),))])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["check", "broken_plugin:env"]) == 1
    assert "nothing to replay with" in capsys.readouterr().out


def test_a_module_in_the_folder_where_one_stands_is_found():
    examples = Path(__file__).parents[2] / "examples"
    command = [str(Path(sys.executable).with_name("mrtpo")), "check", "my_task:make_env"]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "nothing wrong found" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["try", "Instructionz"], "Did you mean 'mrtpo/Instructions-v0'"),
        (["try", "Instructions", "--task", "-3", "--response", "x"], "must be from 0 to"),
        (["try", "Instructions", "--options", "splitt=x"], "Did you mean 'split'"),
        (["try", "Instructions", "--options", "seed=foo"], "seed must be a whole number, got 'foo'"),
        (["try", "TextToSQL", "--options", "rewards=execution"], "for that one alone give ['execution']"),
        (["try", "TextToSQL", "--options", "levels=["], "a value of KEY=VALUE is read as YAML"),
        (["check", "ToolCalls", "--options", "n_tools=x"], "n_tools must be a whole number or a list of whole numbers"),
        (["train", "--env.name", "TextToSQL", "--env.options", "max_turns=x"], "max_turns must be a whole number"),
        (["train", "--config", "nowhere.yaml"], "No such file"),
        (["train", "--resume", "nowhere"], "nowhere holds no run"),
        (["train", "--rollout.group-size", "1"], "group_size must be at least 2, got 1"),
        (["train", "--credit.route", "jds"], "Did you mean 'jsd'"),
        (["train", "--policy.model", "/no/folder"], "there is no model folder"),
        (["eval", "--run", "nowhere"], "nowhere holds no run"),
        (["check", "no_such_module:Env"], "cannot be imported"),
    ],
)
def test_what_is_wrong_is_said_in_words_and_exits_with_1(arguments, message):
    # a process of its own: the whole way to the terminal, and no traceback
    done = subprocess.run([sys.executable, "-m", "mrtpo_agent.cli", *arguments], capture_output=True, text=True)
    said = " ".join(done.stderr.replace("\u2502", " ").split())  # tyro draws boxes
    assert done.returncode in (1, 2), said
    assert message in said
    assert "Traceback" not in said


def test_options_of_a_file_that_have_no_name_are_told(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("env: {options: {1: 2}}")
    assert main(["train", "--config", str(tmp_path / "run.yaml")]) == 1
    assert "an option's name must be text, got 1" in capsys.readouterr().err


def test_help_of_every_command_is_there():
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "mrtpo_agent.cli", command, "--help"], capture_output=True, text=True
        )
        assert done.returncode == 0
        assert f"mrtpo {command}" in done.stdout
