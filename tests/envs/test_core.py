"""The contract: episodes, verdicts, prompts, privileged data, gymnasium."""

import json
import pickle
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from toy import Does, Mentions, make_env, make_task

import mrtpo_envs
from mrtpo_envs import (
    ConfigError,
    EnvError,
    Episode,
    Evidence,
    Message,
    Prompt,
    Segment,
    Span,
    Task,
    TaskError,
    TaskSet,
    TextSpace,
    UnknownNameError,
    Verdict,
    Verification,
    find_answer,
    score,
    score_many,
)
from mrtpo_envs.options import require

SURROGATE = "half \ud83d an emoji"


def test_exports_are_exactly_these():
    assert sorted(mrtpo_envs.__all__) == mrtpo_envs.__all__ or sorted(mrtpo_envs.__all__, key=str.swapcase)
    for name in mrtpo_envs.__all__:
        assert hasattr(mrtpo_envs, name)
    public = {n for n in vars(mrtpo_envs) if not n.startswith("_")}
    modules = {n for n in public if type(getattr(mrtpo_envs, n)).__name__ == "module"}
    assert public - modules - {"register_all"} == set(mrtpo_envs.__all__)


def test_the_environments_import_no_torch_and_no_agent():
    code = "import sys, mrtpo_envs.instructions; print([m for m in sys.modules if m in ('torch', 'mrtpo_agent')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


# verdicts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((float("nan"), "x"), "finite number or None"),
        ((float("inf"), "x"), "finite number or None"),
        ((1.0, "x", ()), "Evidence.ABSENT or Evidence.WHOLE"),
        ((1.0, "x", (Span(3, 3),)), "0 <= start < end"),
        ((1.0, "x", (Span(-1, 2),)), "0 <= start < end"),
    ],
)
def test_impossible_verdicts_are_refused(arguments, message):
    with pytest.raises(EnvError, match=message):
        Verdict(*arguments)


@pytest.mark.parametrize(
    ("verifier", "outcome"),
    [
        (Does(lambda r: 1 / 0), "cannot judge: ZeroDivisionError: division by zero"),
        (Does(lambda r: 1.0), "returned float, expected a Verdict"),
        (Does(lambda r: Verdict(7.0, "")), "outside the stated range"),
        (Does(lambda r: Verdict(1.0, "", (Span(0, 99),))), "past the response's 5 characters"),
        (Does(lambda r: Verdict(float("nan"), "")), "finite number"),
    ],
)
def test_a_verifier_at_fault_cannot_judge_and_costs_no_other_reward(verifier, outcome):
    verification = score(make_task(verifiers=(Mentions(), verifier)), "a sun")
    assert verification["does"].reward is None
    assert outcome in verification["does"].outcome
    assert verification.rewards["mentions"] == 1.0
    assert verification.total == 1.0
    assert verification.passed("does") is None
    assert not verification.all_passed


def test_a_verifier_that_hangs_is_stopped():
    task = make_task(verifiers=(Mentions(), Does(lambda r: time.sleep(60))))
    start = time.monotonic()
    verification = score(task, "sun", time_limit_s=0.2)
    assert time.monotonic() - start < 5
    assert verification.rewards == {"mentions": None, "does": None}
    assert "longer than 0.2 s" in verification["does"].outcome
    assert score(task, "sun", time_limit_s=0.05)["mentions"].reward is None  # the timer is left as it was found


def test_scoring_works_in_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(score(make_task(), "sun").rewards))
    thread.start()
    thread.join()
    assert found == [{"mentions": 1.0, "equals": -1.0}]


def test_score_many_keeps_the_order():
    pairs = [(make_task(i), f"gold-answer-{i % 2}") for i in range(4)]
    assert [v.rewards["equals"] for v in score_many(pairs)] == [2.0, 2.0, -1.0, -1.0]


def test_a_response_that_is_no_string_is_the_callers_fault():
    with pytest.raises(EnvError, match="a response is a string, got NoneType"):
        score(make_task(), None)


def random_verification(rng):
    names = [f"r{i}" for i in range(rng.randint(1, 4))]
    verdicts, specs = {}, {}
    for name in names:
        evidence = rng.choice([Evidence.ABSENT, Evidence.WHOLE, (Span(0, 2), Span(5, 9))])
        reward = rng.choice([None, 0.0, 1.0, rng.random()])
        verdicts[name] = Verdict(reward, rng.choice(["", "é\n", SURROGATE]), evidence, {"n": [1, {"x": None}]})
        specs[name] = mrtpo_envs.RewardSpec(0.0, 1.0, rng.random(), "do it")
    return Verification(verdicts, specs)


def test_a_verification_survives_json_and_pickle_unchanged():
    rng = random.Random(0)
    for _ in range(200):
        verification = random_verification(rng)
        back = Verification.from_dict(json.loads(json.dumps(verification.to_dict())))
        assert back == verification
        assert list(back.verdicts) == list(verification.verdicts)
        assert pickle.loads(pickle.dumps(verification)) == verification


def test_a_verification_cannot_be_changed():
    verification = score(make_task(), "sun")
    with pytest.raises(TypeError):
        verification.verdicts["mentions"] = None
    with pytest.raises(AttributeError):
        verification["mentions"].reward = 0.0


# tasks and prompts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task(Prompt.user("x"), ()), "at least one verifier, got none"),
        (lambda: Task(Prompt.user("x"), (Mentions(), Mentions())), r"\['mentions'\] more than once"),
        (lambda: Task(Prompt.user("x"), ("no",)), "must be Verifier instances, got str"),
        (lambda: Task(Prompt.user("x"), (Mentions(name=""),)), "has no name"),
        (lambda: Task(Prompt.user("x"), (Does(None, reward_range=(1, 1)),)), "low < high"),
        (lambda: Task(Prompt.user(Segment("x", "typo")), (Mentions(),)), "no verifier has that name"),
        (lambda: Prompt((Message("system", (Segment("x"),)),)), "at least one user message"),
        (lambda: Message("human", ()), "role must be one of"),
        (lambda: TaskSet([]), "at least one task"),
        (lambda: TaskSet(make_task, 0), "size of at least 1"),
        (lambda: make_task().verifier("nope"), "has no reward 'nope'"),
        (lambda: make_task().privileged["nope"], "has no privileged 'nope'; it has: answer"),
    ],
)
def test_bad_tasks_are_refused_when_they_are_made(make, message):
    with pytest.raises(TaskError, match=message):
        make()


def test_omission_leaves_out_what_states_a_reward_and_hints_go_after_the_task():
    prompt = Prompt.user("Write.", Segment(" No commas.", "a"), Segment(" Be brief.", "b"), system="You help.")
    plain, without, hinted = prompt.messages(), prompt.messages(omit={"a"}), prompt.messages(hints=["One.", "Two."])
    assert plain[1]["content"] == "Write. No commas. Be brief."
    assert without[1]["content"] == "Write. Be brief."
    assert hinted[1]["content"] == "Write. No commas. Be brief.\n\nOne.\n\nTwo."
    assert plain[0] == without[0] == hinted[0] == {"role": "system", "content": "You help."}
    assert prompt.stated == {"a", "b"}


def test_hints_stay_with_the_task_when_the_chat_goes_on():
    prompt = Prompt.user("Task.").continued("answer", "feedback").continued("again", "more")
    roles = [(m["role"], m["content"]) for m in prompt.messages(hints=["Hint."])]
    assert roles == [
        ("user", "Task.\n\nHint."), ("assistant", "answer"), ("user", "feedback"), ("assistant", "again"), ("user", "more"),
    ]  # fmt: skip


def test_a_task_set_is_a_sequence_that_makes_tasks_when_asked():
    tasks = TaskSet(make_task, 5)
    assert [t.id for t in tasks] == [f"toy-{i}" for i in range(5)]
    assert tasks[-1].id == "toy-4"
    assert [t.id for t in tasks[1:3]] == ["toy-1", "toy-2"]
    with pytest.raises(IndexError):
        tasks[5]


@pytest.mark.parametrize(
    ("response", "text", "given"),
    [
        ("plain", "plain", True),
        ("<think>a</think>\nb", "\nb", True),
        ("  <think>a</think>b</think>c", "b</think>c", True),
        ("<think>never ends", "", False),
        ("b <think>later</think>", "b <think>later</think>", True),
    ],
)
def test_the_answer_is_what_follows_one_leading_block(response, text, given):
    answer = find_answer(response)
    assert (answer.text, answer.given) == (text, given)
    assert response[answer.start :] == text


def test_a_prompt_that_opens_the_block_is_told():
    assert find_answer("a</think>b", prefilled=True).text == "b"
    assert not find_answer("a", prefilled=True).given


# privileged data ----------------------------------------------------------------------------------------------------


def test_gold_data_shows_nowhere():
    env, task = make_env(), make_task(3)
    observation, info = env.reset(options={"task": task})
    _, _, _, _, after = env.step("wrong")
    texts = [observation, repr(info), repr(after), repr(task), repr(env), str(task.privileged), repr(env.render())]
    texts += [json.dumps(after["verification"].to_dict())]
    try:
        raise TaskError(f"about {task}")
    except TaskError as error:
        texts.append(repr(error))
    assert not any("gold-answer" in text for text in texts)
    assert "gold-answer-3" in task.verifier("equals").reference(task)


# environment --------------------------------------------------------------------------------------------------------


def test_gymnasiums_own_checker_finds_nothing():
    gymnasium_check(make_env(render_mode="ansi"), skip_render_check=True)


def test_step_gives_the_weighted_sum_and_every_reward():
    env = make_env()
    env.reset(options={"task": 2})
    _, total, terminated, truncated, info = env.step("the sun")
    assert (total, terminated, truncated) == (1.0 - 0.5, True, False)
    assert info["rewards"] == {"mentions": 1.0, "equals": -1.0}
    assert info["verification"]["mentions"].spans == (Span(4, 7),)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda env: env.step("x"), EnvError, "before reset"),
        (lambda env: (env.reset(), env.step("x"), env.step("x")), EnvError, "episode is over"),
        (lambda env: (env.reset(), env.step(3)), EnvError, "response's text .str., got int"),
        (lambda env: env.reset(options={"task": 99}), EnvError, "index from 0 to 9, got 99"),
        (lambda env: make_env(split="dev"), ConfigError, "train, test, got 'dev'"),
        (lambda env: make_env(max_turns=0), ConfigError, "at least 1"),
        (lambda env: make_env(render_mode="human"), ConfigError, "None or 'ansi'"),
        (lambda env: make_env(split=3), ConfigError, "split must be text, got 3"),
        (lambda env: make_env(size=10**20), ConfigError, "the size of train must be at most"),
        (lambda env: mrtpo_envs.MultiRewardEnv(3), ConfigError, "train must be a TaskSet or a list of tasks, got 3"),
        (lambda env: mrtpo_envs.MultiRewardEnv(["x"]), ConfigError, "train must be a TaskSet or a list of tasks"),
        (lambda env: env.tasks("dev"), ConfigError, "split must be one of"),
        (lambda env: env.tasks([]), ConfigError, "split must be one of"),
        (lambda env: Episode(make_task(), max_turns=0), ConfigError, "at least 1"),
    ],
)
def test_wrong_use_is_told(use, error, message):
    with pytest.raises(error, match=message):
        use(make_env())


def test_several_turns_last_until_there_is_no_feedback():
    class Patient(mrtpo_envs.MultiRewardEnv):
        def feedback(self, task, response, verification):
            return None if verification.passed("mentions") else "Mention the sun!"

    env = Patient([make_task()], max_turns=3)
    env.reset()
    observation, _, terminated, _, _ = env.step("no")
    assert (observation, terminated) == ("Mention the sun!", False)
    observation, total, terminated, _, _ = env.step("sun")
    assert (observation, terminated) == ("", True)
    assert total == 0.5
    env.reset()
    assert [env.step("no")[2] for _ in range(3)] == [False, False, True]


def asynchronous(makers):
    return gymnasium.vector.AsyncVectorEnv(makers, shared_memory=False)  # a text has no fixed size to share


@pytest.mark.parametrize("vector", [gymnasium.vector.SyncVectorEnv, asynchronous])
def test_vector_environments_run_it(vector):
    envs = vector([make_env, make_env, make_env])
    try:
        observations, _ = envs.reset(seed=1)
        assert len(observations) == 3
        _, totals, terminated, _, info = envs.step(("sun", "", SURROGATE))
        assert list(totals) == [0.5, -0.5, -0.5]
        assert all(terminated)
        assert [v.rewards["mentions"] for v in info["verification"]] == [1.0, 0.0, 0.0]
        envs.step(("a", "b", "c"))  # the next step starts new episodes
    finally:
        envs.close()


def test_a_reward_that_cannot_be_judged_goes_through_a_vector_environment():
    envs = gymnasium.vector.SyncVectorEnv([lambda: make_env((Mentions(), Does(lambda r: 1 / 0)))] * 2)
    envs.reset(seed=0)
    _, totals, _, _, info = envs.step(("sun", "rain"))
    assert list(totals) == [1.0, 0.0]
    assert [v["does"].reward for v in info["verification"]] == [None, None]


def test_the_seed_decides_the_task():
    env = make_env(size=1000)
    drawn = [env.reset(seed=s)[1]["task_id"] for s in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_text_space_holds_any_text():
    space = TextSpace(max_length=50, seed=0)
    assert all(text in space for text in ("", "punctuation?!{}", "中文 😀", SURROGATE, "\x00"))
    assert "x" * 51 not in space
    assert 3 not in space
    samples = [space.sample() for _ in range(20)]
    assert all(s in space for s in samples)
    space.seed(0)
    assert [space.sample() for _ in range(20)] == samples
    with pytest.raises(ConfigError):
        TextSpace(0)


# registry -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["mrtpo/Instructions-v0", "mrtpo/Instructions", "Instructions", "mrtpo_envs:mrtpo/Instructions-v0"]
)
def test_names_that_mean_the_instructions(name):
    assert type(mrtpo_envs.make(name, test_size=3)).__name__ == "InstructionsEnv"


def test_a_function_or_class_of_anybodys_module_makes_an_environment():
    assert isinstance(mrtpo_envs.make("toy:needs_no_argument"), mrtpo_envs.MultiRewardEnv)


def test_a_module_that_registers_with_gymnasium_is_a_plug_in():
    gymnasium.register(id="toys/Toy-v3", entry_point="toy:make_env")
    try:
        assert isinstance(mrtpo_envs.make("toy:toys/Toy-v3", size=4), mrtpo_envs.MultiRewardEnv)
        assert isinstance(gymnasium.make("toy:toys/Toy-v3").unwrapped, mrtpo_envs.MultiRewardEnv)
    finally:
        del gymnasium.registry["toys/Toy-v3"]


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("Instructionz", {}, UnknownNameError, "Did you mean 'mrtpo/Instructions-v0'"),
        ("no_such_module:Env", {}, EnvError, "cannot be imported"),
        ("toy:make_envv", {}, EnvError, "Did you mean toy:make_env"),
        ("toy:make_task", {}, EnvError, "makes a Task, expected a mrtpo_envs.MultiRewardEnv"),
        ("Instructions", {"splitt": "test"}, ConfigError, "Did you mean 'split'"),
        ("toy:make_env", {"colour": 1}, ConfigError, "has no option 'colour'"),
        ("toy:make_env", {"max_turns": "x"}, ConfigError, "max_turns must be a whole number, got 'x'"),
        ("CartPole-v1", {}, EnvError, "makes a CartPoleEnv"),
    ],
)
def test_names_that_mean_nothing(name, options, error, message):
    with pytest.raises(error, match=message):
        mrtpo_envs.make(name, **options)


def test_what_a_function_hands_on_in_vain_is_told():
    gymnasium.register(id="toys/Handing-v0", entry_point=lambda **options: (lambda: None)(**options))
    try:
        with pytest.raises(ConfigError, match="does not take these options"):
            mrtpo_envs.make("toys/Handing-v0", colour=1)
    finally:
        del gymnasium.registry["toys/Handing-v0"]


# options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("TextToSQL", {"levels": 3}, "levels must be a list of texts, got 3"),
        ("TextToSQL", {"levels": "filter"}, r"for that one alone give \['filter'\]"),
        ("TextToSQL", {"rewards": "execution"}, r"for that one alone give \['execution'\]"),
        ("TextToSQL", {"rewards": [1]}, r"rewards must be a list of texts, got \[1\]"),
        ("TextToSQL", {"train_size": "abc"}, "train_size must be a whole number, got 'abc'"),
        ("TextToSQL", {"train_size": 1.5}, "train_size must be a whole number, got 1.5"),
        ("TextToSQL", {"sample_values": 1.5}, "sample_values must be a whole number"),
        ("TextToSQL", {"sample_values": -1}, "sample_values must be at least 0"),
        ("TextToSQL", {"schema_tokens": "x"}, "schema_tokens must be a whole number"),
        ("TextToSQL", {"max_turns": True}, "max_turns must be a whole number, got True"),
        ("TextToSQL", {"source": ["a"]}, "source must be text"),
        ("TextToSQL", {"seed": "foo"}, "seed must be a whole number, got 'foo'"),
        ("TextToSQL", {"rewards": ["valid", "valid"]}, "each reward once"),
        ("Instructions", {"kinds": 3}, "kinds must be text or a list of texts"),
        ("Instructions", {"n_constraints": "2"}, "n_constraints must be a whole number or a list of whole numbers"),
        ("Instructions", {"rule": "mine"}, "rule must be 'worded' or 'published', got 'mine'"),
        ("Instructions", {"path": 3}, "path must be text or a path or None, got 3"),
        ("Instructions", {"skip_bad": "yes"}, "skip_bad must be true or false, got 'yes'"),
        ("ToolCalls", {"n_tools": [1.5, 2]}, "n_tools must be a whole number or a list of whole numbers"),
        ("ToolCalls", {"categories": 3}, "categories must be text or a list of texts or None"),
        ("ToolCalls", {"lenient": 1}, "lenient must be true or false"),
    ],
)
def test_options_of_the_wrong_type_are_told_whoever_makes_the_environment(name, options, message):
    made = type(mrtpo_envs.make(name, test_size=1))
    for maker in (
        lambda: mrtpo_envs.make(name, **options),
        lambda: gymnasium.make(f"mrtpo_envs:mrtpo/{name}-v0", **options),
        lambda: made(**options),
    ):
        with pytest.raises(ConfigError, match=message):
            maker()


class Plugged(mrtpo_envs.MultiRewardEnv):
    def __init__(self, words: "list[str]", *, rate: float = 0.5, other: TextSpace | None = None, free=None):
        super().__init__([make_task()])


def test_a_class_that_is_pickled_by_value_still_has_its_options_looked_at():
    class Local(mrtpo_envs.MultiRewardEnv):  # as one of a notebook's is, for a vector environment
        def __init__(self, size: int = 1):
            super().__init__([make_task()] * size)

    again = cloudpickle.loads(cloudpickle.dumps(Local))
    assert len(again(2).tasks()) == 2
    with pytest.raises(ConfigError, match="size must be a whole number"):
        again("x")


class Unresolved(mrtpo_envs.MultiRewardEnv):
    def __init__(self, words: "OnlyForTypeCheckers" = 3):  # noqa: F821
        super().__init__([make_task()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plugged("sun"), r"words must be a list of texts, got 'sun'; for that one alone give \['sun'\]"),
        (lambda: Plugged(["sun"], rate="fast"), "rate must be a number, got 'fast'"),
        (lambda: Plugged(["sun"], rat=1.0), "Did you mean 'rate'"),
        (lambda: Plugged(["sun"], rate=1, other="anything", free=object()), None),
        (lambda: Plugged(("sun",), rate=1), None),
        (lambda: Unresolved("anything"), None),
    ],
)
def test_plug_ins_have_their_annotated_options_looked_at(make, message):
    if message is None:
        assert len(make().tasks()) == 1
    else:
        with pytest.raises(ConfigError, match=message):
            make()


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        (int, [3, np.int64(3), 10**30], [True, 1.0, "3", None], "a whole number"),
        (float, [3, 0.5, np.float32(1)], [False, "0.5"], "a number"),
        (bool, [True], [1, "true"], "true or false"),
        (str, ["", "é"], [b"x", SURROGATE, 3], "text"),
        (Path, ["x", Path("x")], [3], "a path"),
        (str | None, [None, "x"], [0], "text or None"),
        (Literal["a", 1], ["a", 1], ["b", True], "'a' or 1"),
        (Sequence[str], [["x"], ("x",), []], ["x", {"x"}, {"x": 1}, [["x"]], None], "a list of texts"),
        (int | Sequence[int], [1, [1, 2]], ["1", [1, "2"]], "a whole number or a list of whole numbers"),
        (tuple[int, str], [(1, "x"), [1, "x"]], [(1,), ("x", 1)], "a list of 2 values"),
        (tuple[int, ...], [(), (1, 2)], [("x",)], "a list of whole numbers"),
        (dict[str, int], [{}, {"x": "unread"}], [[], "x"], "a mapping"),
        (TaskSet | Sequence[Task], [3, "anything"], [], ""),
        (Iterable[int], [iter([1])], [3, ["x"]], "a list of whole numbers"),
    ],
)
def test_values_that_an_annotation_takes(kind, right, wrong, words):
    def taker(x):
        pass

    taker.__annotations__ = {"x": kind}
    for value in right:
        require("it", taker, {"x": value}, ConfigError)
    for value in wrong:
        with pytest.raises(ConfigError, match=f"it: x must be {re.escape(words)}, got "):
            require("it", taker, {"x": value}, ConfigError)


@pytest.mark.parametrize("name", [name for name, _ in mrtpo_envs.registered()])
def test_every_registered_environment_passes_both_checkers(name):
    gymnasium_check(gymnasium.make(f"mrtpo_envs:{name}").unwrapped)
    report = mrtpo_envs.check_env(name, tasks=10)
    assert report.ok, str(report)


@pytest.mark.parametrize("name", [name for name, _ in mrtpo_envs.registered()])
def test_tasks_are_the_same_in_another_process(name):
    code = (
        f"import mrtpo_envs; e = mrtpo_envs.make({name!r});"
        "print([t.prompt.text for s in ('train', 'test') for t in e.tasks(s)[:20]])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) > 100
