"""Tasks, and the prompts that know which of their sentences states which reward.

A `Task` is one problem: a `Prompt`, the verifiers that judge an answer, and *privileged* data (gold answers) that only
the verifiers see. A `Prompt` is chat messages made of `Segment`s; a segment may state one reward, and
`prompt.messages(omit=..., hints=...)` gives the same chat without those statements or with hints appended. That is the
replay pair's raw material: hints go after the last user message's text, so that the prefix stays shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from mrtpo_envs.errors import TaskError
from mrtpo_envs.verifier import Verifier, require_verifiers

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a message's text. It carries its own white space: segments are joined with nothing between."""

    text: str
    states: str | None = None
    """Name of the reward that this text states, or None for text that belongs to the task itself."""
    template_tools: bool = False
    """Whether this text shows the prompt's tools, and is left out where the chat template shows them itself."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message: a role and its segments."""

    role: str
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise TaskError(f"a message's role must be one of {', '.join(ROLES)}, got {self.role!r}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """Chat messages that lead up to the policy's answer, and the tools offered to it, if any."""

    turns: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """JSON Schema tool definitions for the chat template's `tools=`; most tasks have none."""
    hint_turn: int | None = None
    """Index of the message that takes hints; the last user message where None."""
    tools_format: str = ""
    """How calls are to be written: a chat template that asks for another way is not given the tools. Any where empty."""

    def __post_init__(self) -> None:
        if not any(turn.role == "user" for turn in self.turns):
            raise TaskError("a prompt needs at least one user message")

    @classmethod
    def user(cls, *segments: Segment | str, system: str | None = None) -> Prompt:
        """A prompt of one user message made of `segments` (plain strings state no reward)."""
        made = tuple(Segment(s) if isinstance(s, str) else s for s in segments)
        head = (Message("system", (Segment(system),)),) if system is not None else ()
        return cls((*head, Message("user", made)))

    def messages(
        self, omit: Collection[str] = (), hints: Sequence[str] = (), *, template_tools: bool = False
    ) -> list[dict[str, str]]:
        """The chat as `[{"role": ..., "content": ...}]`.

        Args:
            omit: names of rewards whose stating segments are left out.
            hints: texts appended, each after a blank line, to the task's text: the last user message, or the
                task's own where later ones are feedback.
            template_tools: the chat template shows the tools, so the text that does is left out.
        """
        out = []
        for i, turn in enumerate(self.turns):
            text = "".join(
                s.text
                for s in turn.segments
                if (s.states is None or s.states not in omit) and not (template_tools and s.template_tools)
            )
            if i == self._hint_index:
                text = "\n\n".join([text, *hints])
            out.append({"role": turn.role, "content": text})
        return out

    def continued(self, response: str, feedback: str) -> Prompt:
        """This chat, then the policy's `response` and the environment's `feedback` as the next user message.

        Hints still go to the message they went to before: they belong to the task, not to the feedback.
        """
        more = (Message("assistant", (Segment(response),)), Message("user", (Segment(feedback),)))
        return Prompt((*self.turns, *more), self.tools, self._hint_index, self.tools_format)

    @property
    def _hint_index(self) -> int:
        if self.hint_turn is not None:
            return self.hint_turn
        return max(i for i, turn in enumerate(self.turns) if turn.role == "user")

    @property
    def stated(self) -> frozenset[str]:
        """Names of the rewards that some segment states."""
        return frozenset(s.states for turn in self.turns for s in turn.segments if s.states is not None)

    @property
    def text(self) -> str:
        """The chat as one readable text: the user's words alone where there is one message, else with roles."""
        messages = self.messages()
        if len(messages) == 1:
            return messages[0]["content"]
        return "\n\n".join(f"{m['role']}: {m['content']}" for m in messages)


class Privileged(Mapping[str, Any]):
    """Gold data that only verifiers read. Shows its keys and never its values in `repr`, logs or tracebacks."""

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        self._data = dict(data or {})

    def __getitem__(self, key: str) -> Any:
        try:
            return self._data[key]
        except KeyError:
            raise TaskError(f"the task has no privileged {key!r}; it has: {', '.join(self._data) or 'none'}") from None

    def get(self, key: str, default: Any = None) -> Any:
        """The value under `key`, or `default` where there is none."""
        return self._data.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Privileged) and self._data == other._data

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<privileged: {', '.join(self._data) or 'nothing'}>"


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One problem: what the policy is shown, and how its answer is judged."""

    prompt: Prompt
    verifiers: tuple[Verifier, ...]
    id: str = ""
    privileged: Privileged = field(default_factory=Privileged)
    """Gold data, for verifiers only: in no observation, no `repr` and no `info`."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Public facts about the task (its source, its difficulty), JSON-serialisable."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "verifiers", tuple(self.verifiers))
        if not isinstance(self.privileged, Privileged):
            object.__setattr__(self, "privileged", Privileged(self.privileged))
        require_verifiers(self.verifiers)
        stray = self.prompt.stated - {v.name for v in self.verifiers}
        if stray:
            raise TaskError(
                f"task {self.id!r}: prompt segments state {sorted(stray)}, but no verifier has that name; "
                f"the verifiers are {self.reward_names}"
            )

    @property
    def reward_names(self) -> list[str]:
        """The rewards' names, in order."""
        return [v.name for v in self.verifiers]

    def verifier(self, name: str) -> Verifier:
        """The verifier of reward `name`; raises TaskError where there is none."""
        for verifier in self.verifiers:
            if verifier.name == name:
                return verifier
        raise TaskError(f"task {self.id!r} has no reward {name!r}; it has {self.reward_names}")


class TaskSet(Sequence[Task]):
    """A sequence of tasks that makes each one when it is asked for, the same one every time.

    `TaskSet(list_of_tasks)` holds given tasks; `TaskSet(function, size)` calls `function(index)`, which must depend on
    nothing but the index.
    """

    def __init__(self, source: Sequence[Task] | Callable[[int], Task], size: int | None = None) -> None:
        if callable(source):
            if size is None or size < 1:
                raise TaskError(f"a generated task set needs a size of at least 1, got {size!r}")
            self._make: Callable[[int], Task] = source
            self._size = size
        else:
            tasks = list(source)
            if not tasks:
                raise TaskError("a task set needs at least one task, got none")
            self._make = tasks.__getitem__
            self._size = len(tasks) if size is None else min(size, len(tasks))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> TaskSet: ...
    def __getitem__(self, index: int | slice) -> Task | TaskSet:
        if isinstance(index, slice):
            return TaskSet([self[i] for i in range(*index.indices(self._size))])
        if index < 0:
            index += self._size
        if not 0 <= index < self._size:
            raise IndexError(f"task {index} of {self._size}")
        return self._make(index)
