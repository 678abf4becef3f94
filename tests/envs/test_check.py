"""`check_env` says in words what is wrong; rendering marks evidence where it is."""

import random

import pytest
from toy import Does, Equals, Mentions, make_env, make_task

from mrtpo_envs import (
    Evidence,
    MultiRewardEnv,
    Prompt,
    Segment,
    Span,
    Task,
    TaskSet,
    Verdict,
    Verifier,
    check_env,
    render_verification,
    score,
)


class Bare(Verifier):
    name = "bare"

    def check(self, task, response):
        return Verdict(0.0, "nothing")


class Stated(Mentions):
    name = "stated"

    def statement(self, task):
        return ""


def of(*verifiers, segments=("Say something.",), privileged=None):
    task = Task(Prompt.user(*segments), verifiers, id="t", privileged=privileged or {})
    other = Task(Prompt.user("Say something else.", *segments[1:]), verifiers, id="u", privileged=privileged or {})
    return MultiRewardEnv([task], [other])


def test_a_sound_environment_has_no_findings():
    report = check_env(make_env())
    assert report.ok
    assert report.findings == []
    assert "nothing wrong found" in str(report)


@pytest.mark.parametrize(
    ("env", "severity", "words"),
    [
        (of(Bare()), "error", "nothing to replay with"),
        (of(Mentions()), "error", "no prompt segment states 'mentions'"),
        (of(Stated(name="stated"), segments=("Say", Segment(" sun", "stated"))), "warning", "`statement` is empty"),
        (of(Does(lambda r: r.encode())), "error", "no verdict on"),
        (of(Does(lambda r: Verdict(9.0, ""))), "error", "outside the stated range"),
        (of(Does(lambda r: Verdict(random.random(), ""))), "error", "draw at random"),
        (of(Does(lambda r: Verdict(1.0, "", details={"x": {1, 2}}))), "error", "does not survive JSON"),
        (of(Does(lambda r: Verdict(1.0, "", details={"x": (1, 2)}))), "error", "lists, not tuples"),
        (of(Does(lambda r: Verdict(1.0, ""))), "warning", "every probe got 1.0"),
        (
            of(Does(lambda r: Verdict(1.0, "gold is secret-7")), privileged={"g": ["secret-7"]}),
            "error",
            "outcome quotes",
        ),
        (
            of(Equals(), segments=("The answer is secret-7.",), privileged={"answer": "secret-7"}),
            "error",
            "in the prompt",
        ),
        (MultiRewardEnv([make_task()]), "warning", "same tasks"),
        (MultiRewardEnv([make_task()], [make_task()]), "warning", "both train and test"),
        (MultiRewardEnv(TaskSet(lambda i: make_task(random.getrandbits(60)), 3)), "error", "index alone"),
        (MultiRewardEnv(TaskSet(lambda i: [][i], 3)), "error", "raised IndexError"),
    ],
)
def test_what_is_wrong_is_said(env, severity, words):
    report = check_env(env)
    found = [f for f in report.findings if words in f.message]
    assert found, str(report)
    assert found[0].severity == severity
    assert report.ok == (not any(f.severity == "error" for f in report.findings))


def test_evidence_is_marked_under_the_characters():
    task = make_task(verifiers=(Mentions(), Equals()))
    text = render_verification("say\ta wide \u4e2d and\nthe sun", score(task, "say\ta wide \u4e2d and\nthe sun"))
    lines = text.split("\n")
    assert lines[1] == "the sun"
    assert lines[2] == "    ^^^  mentions"
    assert "equals    -1.00 of -1..2  " in text


def test_marks_follow_wide_and_hidden_characters():
    does = Does(lambda r: Verdict(1.0, "here", tuple(Span(i, i + 1) for i, c in enumerate(r) if c == "x")))
    response = "\u4e2dx \x07x\ud83dx"
    lines = render_verification(response, score(make_task(verifiers=(does,)), response)).split("\n")
    assert lines[0] == "\u4e2dx \\u0007x\\ud83dx"
    assert [i for i, c in enumerate(lines[1].removesuffix("  does")) if c == "^"] == [2, 10, 17]
    lines[0].encode("utf-8")


def test_states_without_spans_are_told_apart():
    whole, absent = Does(lambda r: Verdict(1.0, "w")), Does(lambda r: Verdict(0.0, "a", Evidence.ABSENT), name="gone")
    text = render_verification("r", score(make_task(verifiers=(whole, absent)), "r"))
    assert "a (nothing to point at)" in text
    assert "w (nothing" not in text
