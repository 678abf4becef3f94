"""Episodes and the gymnasium environment round them.

`Episode` is the pure part: a task, the transcript so far, and scoring. It holds no randomness and no gymnasium, and the
trainer drives it directly. `MultiRewardEnv` is a thin shell that gives one episode at a time gymnasium's interface.

A domain subclasses `MultiRewardEnv` to choose its task sets, and overrides `feedback` where a task may take more than
one turn. Anybody else passes task sets to `MultiRewardEnv` itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import gymnasium

from mrtpo_envs.errors import ConfigError, EnvError
from mrtpo_envs.options import checked
from mrtpo_envs.scoring import score
from mrtpo_envs.task import Prompt, Task, TaskSet
from mrtpo_envs.text_space import TextSpace
from mrtpo_envs.verifier import Verification

Feedback = Callable[[Task, str, Verification], str | None]
"""From a task, a response and its verification to the next observation, or None where the episode is over."""

SPLITS = ("train", "test")


@dataclass(frozen=True, slots=True)
class Turn:
    """One response and what came of it."""

    response: str
    verification: Verification
    feedback: str | None
    """The next observation, or None where this was the last turn."""


class Episode:
    """One task from its prompt to its last verdict. The last response counts."""

    def __init__(self, task: Task, *, max_turns: int = 1, feedback: Feedback | None = None) -> None:
        if max_turns < 1:
            raise ConfigError(f"max_turns must be at least 1, got {max_turns}")
        self.task = task
        self.turns: list[Turn] = []
        self._max_turns = max_turns
        self._feedback = feedback

    @property
    def done(self) -> bool:
        """Whether the last response has been given."""
        return bool(self.turns) and self.turns[-1].feedback is None

    @property
    def prompt(self) -> Prompt:
        """The prompt for the next response: the task's own, then each earlier response with its feedback."""
        prompt = self.task.prompt
        for turn in self.turns:
            if turn.feedback is not None:
                prompt = prompt.continued(turn.response, turn.feedback)
        return prompt

    def respond(self, response: str, verification: Verification | None = None) -> Turn:
        """Takes the policy's response and judges it.

        Args:
            response: any string.
            verification: the response's verification where it has been scored already (many at a time, say).

        Raises:
            EnvError: the episode is over.
        """
        if self.done:
            raise EnvError("this episode is over; start a new one")
        if verification is None:
            verification = score(self.task, response)
        feedback = None
        if self._feedback is not None and len(self.turns) + 1 < self._max_turns:
            feedback = self._feedback(self.task, response, verification)
        self.turns.append(Turn(response, verification, feedback))
        return self.turns[-1]


class MultiRewardEnv(gymnasium.Env[str, str]):
    """Tasks with several named rewards, behind gymnasium's interface.

    The observation is the prompt's text and the action is the response's text. `step` gives the weighted sum of the
    rewards as its scalar, and in `info`:

    - `rewards`: `{name: float or None}`;
    - `verification`: a `Verification`, the verdicts with outcome, evidence, range, weight and statement.

    `reset`'s `info` has `task_id` and `prompt` (the `Prompt`, for agents that speak in chat messages). Gold data is in
    neither. `reset(options={"task": index_or_Task})` chooses the task; else it is drawn with the environment's seed.

    Args:
        train: the tasks to train on.
        test: held-out tasks; the training tasks where None, which only a toy wants.
        split: which of the two `reset` draws from.
        max_turns: responses that a task may take; more than 1 needs `feedback` overridden.
        render_mode: None or "ansi" (the last response with its evidence marked, and its verdicts).
    """

    metadata: dict[str, Any] = {
        "render_modes": ["ansi"],
        "render_fps": 1,
    }

    def __init_subclass__(cls, **options: Any) -> None:
        """Options are compared with the annotations of the environment's own `__init__`, whoever makes it."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = checked()(cls.__init__)  # type: ignore[method-assign]

    @checked()
    def __init__(
        self,
        train: TaskSet | Sequence[Task],
        test: TaskSet | Sequence[Task] | None = None,
        *,
        split: str = "train",
        max_turns: int = 1,
        render_mode: str | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ConfigError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ConfigError(f"render_mode must be None or 'ansi', got {render_mode!r}")
        if max_turns < 1:
            raise ConfigError(f"max_turns must be at least 1, got {max_turns}")
        train = _as_task_set("train", train)
        self._sets = {"train": train, "test": train if test is None else _as_task_set("test", test)}
        self.split = split
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.observation_space = TextSpace()
        self.action_space = TextSpace()
        self._episode: Episode | None = None

    def tasks(self, split: str | None = None) -> TaskSet:
        """The tasks of `split` (of the environment's own split where None)."""
        split = self.split if split is None else split
        if split not in SPLITS:
            raise ConfigError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        return self._sets[split]

    def feedback(self, task: Task, response: str, verification: Verification) -> str | None:
        """The next observation after a response that is not the last one allowed; None ends the episode."""
        return None

    def solution(self, task: Task) -> str | None:
        """A response that earns full reward, for supervised warm-up; None where the environment knows none."""
        return None

    def episode(self, task: Task) -> Episode:
        """A fresh episode on `task` with this environment's turns and feedback. Touches no state of the environment."""
        return Episode(task, max_turns=self.max_turns, feedback=self.feedback)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; gymnasium's contract. Raises EnvError for a task option that is no task."""
        super().reset(seed=seed)
        task = self._choose((options or {}).get("task"))
        self._episode = self.episode(task)
        return task.prompt.text, {"task_id": task.id, "prompt": task.prompt}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Judges a response; gymnasium's contract. Raises EnvError before `reset`, after the end, or for no string."""
        if self._episode is None:
            raise EnvError("step was called before reset")
        if not isinstance(action, str):
            raise EnvError(f"an action is the response's text (str), got {type(action).__name__}")
        turn = self._episode.respond(action)
        info = {"rewards": turn.verification.rewards, "verification": turn.verification}
        return turn.feedback or "", turn.verification.total, turn.feedback is None, False, info

    def render(self) -> str | None:
        """In mode "ansi": the task, and the last response with its evidence marked and its verdicts."""
        from mrtpo_envs.render import render_episode

        return None if self.render_mode is None or self._episode is None else render_episode(self._episode)

    def _choose(self, wanted: Any) -> Task:
        tasks = self.tasks()
        if wanted is None:
            return tasks[int(self.np_random.integers(len(tasks)))]
        if isinstance(wanted, Task):
            return wanted
        if isinstance(wanted, Integral) and 0 <= int(wanted) < len(tasks):  # numpy's integers too
            return tasks[int(wanted)]
        raise EnvError(f"options['task'] must be a Task or an index from 0 to {len(tasks) - 1}, got {wanted!r}")


def _as_task_set(name: str, tasks: TaskSet | Sequence[Task]) -> TaskSet:
    if not isinstance(tasks, TaskSet):
        if not isinstance(tasks, Sequence) or not all(isinstance(task, Task) for task in tasks):
            raise ConfigError(f"{name} must be a TaskSet or a list of tasks, got {tasks!r:.200}")
        tasks = TaskSet(tasks)
    try:
        len(tasks)
    except OverflowError as error:  # what a machine word cannot count
        raise ConfigError(f"the size of {name} must be at most {sys.maxsize}, got more") from error
    return tasks
