"""Scores responses: one with `score`, many with `score_many`.

Verifiers run in this process, each response under a time limit. The limit is a POSIX interval timer, so it holds in the
main thread only; elsewhere (another thread, Windows) a response is judged without one. It stops Python code and regular
expressions, not a C extension that never returns: a domain that runs what the policy wrote (SQL) isolates it itself.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from mrtpo_envs.errors import EnvError
from mrtpo_envs.task import Task
from mrtpo_envs.verifier import RewardSpec, Verification, cannot_judge, judge

TIME_LIMIT_S = 20.0
"""Seconds that all verifiers of a task together may take for one response. Ordinary ones take milliseconds."""


class _TimeUp(BaseException):
    """Not an Exception, so that no verifier's `except Exception` swallows it."""


def score(task: Task, response: str, *, time_limit_s: float = TIME_LIMIT_S) -> Verification:
    """All of `task`'s verdicts on `response`.

    Raises EnvError where `response` is no string; never on account of what it says.
    """
    if not isinstance(response, str):
        raise EnvError(f"a response is a string, got {type(response).__name__}")
    try:
        with _deadline(time_limit_s):
            return judge(task, response)
    except _TimeUp:
        why = f"the verifiers took longer than {time_limit_s:g} s"
        specs = {v.name: RewardSpec(*v.reward_range, v.weight, v.statement(task)) for v in task.verifiers}
        return Verification({name: cannot_judge(why) for name in specs}, specs)


def score_many(pairs: Sequence[tuple[Task, str]], *, time_limit_s: float = TIME_LIMIT_S) -> list[Verification]:
    """`score` for each pair, in order.

    Each kind of verifier in the batch first gets all pairs that have it (`Verifier.prefetch`), so that one which asks
    other processes can ask them all at once.
    """
    for response in (response for _, response in pairs):
        if not isinstance(response, str):
            raise EnvError(f"a response is a string, got {type(response).__name__}")
    batches: dict[Any, tuple[Any, list[tuple[Task, str]]]] = {}
    for task, response in pairs:
        hooks: dict[Any, Any] = {}
        for verifier in task.verifiers:  # classes that share a hook are asked once
            hook: Any = type(verifier).prefetch
            hooks[getattr(hook, "__func__", hook)] = hook
        for function, hook in hooks.items():
            batches.setdefault(function, (hook, []))[1].append((task, response))
    for hook, batch in batches.values():
        with contextlib.suppress(Exception):  # a fault shows again, as a verdict, where one response is judged
            hook(batch)
    return [score(task, response, time_limit_s=time_limit_s) for task, response in pairs]


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable or signal.getitimer(signal.ITIMER_REAL)[0] > 0:  # somebody else's timer is not ours to take
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
