"""Tells the author of an environment what is wrong with it, in words.

`check_env` looks at some tasks of each split, judges probe responses with every verifier, and drives the environment
through gymnasium's own checker. Each finding says what was expected, what came, and what to do.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.errors import EnvError
from mrtpo_envs.scoring import score
from mrtpo_envs.task import Task
from mrtpo_envs.verifier import Verification

PROBES = (
    "",
    "   \n",
    "A plain answer of one sentence.",
    "First line.\nSecond line, with a comma.\n\n* a bullet\n* another",
    '```sql\nSELECT 1\n```\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
    "<think>reasoning that never ends",
    "half an emoji \ud83d, a nul \x00, cafe\u0301, \u4e2d\u6587",
    "[" * 3000,
    "word " * 4000,
)
"""Responses that every verifier must be able to judge. What a model writes may be anything at all."""
SHOWN_FINDINGS = 20
"""Findings that a report prints; `findings` has all of them."""
SLOW_S = 1.0
"""A verdict that takes longer than this holds training up."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or may be."""

    severity: Literal["error", "warning"]
    where: str
    message: str


@dataclass(slots=True)
class CheckReport:
    """What `check_env` found."""

    environment: str
    tasks: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is an error."""
        return not any(f.severity == "error" for f in self.findings)

    def raise_if_failed(self) -> None:
        """Raises EnvError with the whole report where something is an error."""
        if not self.ok:
            raise EnvError(str(self))

    def __str__(self) -> str:
        head = f"{self.environment}: {self.tasks} tasks looked at, "
        errors = sum(f.severity == "error" for f in self.findings)
        head += f"{errors} errors, {len(self.findings) - errors} warnings" if self.findings else "nothing wrong found"
        lines = [f"  {f.severity:7}  {f.where}: {f.message}" for f in self.findings[:SHOWN_FINDINGS]]
        if len(self.findings) > SHOWN_FINDINGS:
            lines.append(f"  ... and {len(self.findings) - SHOWN_FINDINGS} more")
        return "\n".join([head, *lines])

    def _add(self, severity: Literal["error", "warning"], where: str, message: str) -> None:
        if not any(f.message == message and f.where.split("/")[-1] == where.split("/")[-1] for f in self.findings):
            self.findings.append(Finding(severity, where, message))


def check_env(env: Any, *, tasks: int = 20) -> CheckReport:
    """Looks an environment over.

    Args:
        env: a `MultiRewardEnv`, gymnasium's wrapping of one, or a name that `make` takes.
        tasks: how many tasks of each split to look at.

    Returns:
        A report; `report.ok`, `str(report)`, `report.raise_if_failed()`.

    Raises:
        EnvError: `env` is no `MultiRewardEnv`.
    """
    if isinstance(env, str):
        from mrtpo_envs.registry import make

        env = make(env)
    env = getattr(env, "unwrapped", env)
    if not isinstance(env, MultiRewardEnv):
        raise EnvError(f"expected a MultiRewardEnv, got {type(env).__name__}")
    report = CheckReport(type(env).__name__)
    seen: dict[str, set[str]] = {}
    for split in ("train", "test"):
        task_set = env.tasks(split)
        n = min(tasks, len(task_set))
        step = max(1, len(task_set) // n)
        for index in range(0, n * step, step):
            where = f"{split}[{index}]"
            try:
                task, again = task_set[index], task_set[index]
            except Exception as error:  # the author's code, whatever it does
                report._add("error", where, f"making the task raised {type(error).__name__}: {error}")
                continue
            report.tasks += 1
            seen.setdefault(split, set()).add(task.prompt.text)
            if task.prompt != again.prompt or task.reward_names != again.reward_names:
                report._add(
                    "error", where, "the same index gave two different tasks: a task may depend on its index alone"
                )
            _check_information(report, where, task)
            _check_secrets(report, where, env, task)
            if index < 5 * step:
                _check_verdicts(report, where, task)
    shared = seen.get("train", set()) & seen.get("test", set())
    if shared and env.tasks("train") is not env.tasks("test"):
        report._add(
            "warning", "splits", f"{len(shared)} prompts are in both train and test: what is held out was trained on"
        )
    elif env.tasks("train") is env.tasks("test"):
        report._add(
            "warning", "splits", "train and test are the same tasks: give the environment a test split of its own"
        )
    _check_gymnasium(report, env)
    return report


def _check_information(report: CheckReport, where: str, task: Task) -> None:
    """Statement and reference: there must be something to replay a response with or without."""
    for verifier in task.verifiers:
        at = f"{where}/{verifier.name}"
        try:
            statement, reference = verifier.statement(task), verifier.reference(task)
        except Exception as error:
            report._add("error", at, f"statement or reference raised {type(error).__name__}: {error}")
            continue
        if not isinstance(statement, str) or not isinstance(reference, str):
            report._add("error", at, "statement and reference must give strings (empty where there is none)")
            continue
        stated = verifier.name in task.prompt.stated
        if not statement and not reference and not stated:
            report._add(
                "error",
                at,
                "there is nothing to replay with: give the verifier a `reference` (what it compares with), or let a prompt "
                f"segment state it: Segment(text, states={verifier.name!r}) with the same text from `statement`",
            )
        if statement and not stated:
            report._add(
                "error" if not reference else "warning",
                at,
                f"`statement` gives text, but no prompt segment states {verifier.name!r}: "
                f"write that text as Segment(text, states={verifier.name!r}), or it cannot be left out",
            )
        if stated and not statement:
            report._add(
                "warning", at, "a prompt segment states this reward, but `statement` is empty: return that text"
            )


def _check_verdicts(report: CheckReport, where: str, task: Task) -> None:
    rewards: dict[str, set[float | None]] = {}
    for probe in PROBES:
        start = time.perf_counter()
        verification = score(task, probe)
        middle = time.perf_counter()
        again = score(task, probe)
        took = min(middle - start, time.perf_counter() - middle)  # what is loaded on first use is not a verdict's time
        shown = repr(probe[:30]) + ("..." if len(probe) > 30 else "")
        if took > SLOW_S:
            report._add("warning", where, f"judging {len(probe)} characters took {took:.1f} s")
        for name, verdict in verification.verdicts.items():
            rewards.setdefault(name, set()).add(verdict.reward)
            if verdict.reward is None:
                report._add(
                    "error",
                    f"{where}/{name}",
                    f"no verdict on {shown}: {verdict.outcome}. A response may be any string: give it a reward, and keep "
                    "None for what is broken on the verifier's side",
                )
        if verification != again:
            report._add("error", where, f"two verdicts on {shown} differ: a verifier may not draw at random")
        _check_json(report, where, verification)
    for name, values in rewards.items():
        if len(values) == 1 and None not in values and len(task.verifiers) == 1:
            report._add("warning", f"{where}/{name}", f"every probe got {values.pop()}: does it tell good from bad?")


def _check_json(report: CheckReport, where: str, verification: Verification) -> None:
    try:
        back = Verification.from_dict(json.loads(json.dumps(verification.to_dict())))
    except (TypeError, ValueError) as error:
        report._add("error", where, f"a verdict does not survive JSON: {error}. Put plain values into `details`")
        return
    if back != verification:
        report._add("error", where, "a verdict changes on its way through JSON: `details` must hold lists, not tuples")


def _check_secrets(report: CheckReport, where: str, env: MultiRewardEnv, task: Task) -> None:
    """Gold data may be in nothing that the policy, a log or a traceback sees."""
    secrets = [s for s in _strings(list(dict(task.privileged).values())) if len(s) >= 6]
    if not secrets:
        return
    observation, info = env.reset(options={"task": task})
    places = {
        "the prompt": json.dumps(task.prompt.messages(), ensure_ascii=False),
        "the observation": observation,
        "reset's info": repr(info),
        "the task's repr": repr(task),
    }
    for place, text in places.items():
        shown = [secret for secret in secrets if secret in text]
        if shown:
            report._add("error", where, f"privileged data is in {place}: {shown[0][:40]!r}")
    outcomes = [v.outcome for probe in PROBES[:4] for v in score(task, probe).verdicts.values()]
    for secret in secrets:
        if any(secret in outcome for outcome in outcomes):
            report._add(
                "error", where, f"an outcome quotes privileged data: {secret[:40]!r}. Say what the response did"
            )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _check_gymnasium(report: CheckReport, env: MultiRewardEnv) -> None:
    from gymnasium.utils.env_checker import check_env as gymnasium_check

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # gymnasium asks for an environment made by gymnasium.make, and for render modes it can draw
        warnings.filterwarnings("ignore", message=".*spec.*")
        try:
            gymnasium_check(env, skip_render_check=True, skip_close_check=True)
        except Exception as error:
            report._add("error", "gymnasium", f"{type(error).__name__}: {error}")
