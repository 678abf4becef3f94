"""Rollouts: the policy answers each task several times, and every answer is judged.

Token in, token out: what was sampled is what is trained on. The text is decoded from the tokens for the verifiers and is
never tokenised again; evidence, which the verifiers give in characters, comes back to tokens in `tokens.py`.

Where a task may take several turns, a rollout also holds tokens that the environment wrote. `is_policy` says which are
the policy's own; no other token is trained or given credit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mrtpo_agent.clock import Clock
from mrtpo_agent.policy import Policy
from mrtpo_envs.env import Episode, MultiRewardEnv
from mrtpo_envs.scoring import score_many
from mrtpo_envs.task import Task
from mrtpo_envs.verifier import Verification


@dataclass(frozen=True, slots=True)
class Rollout:
    """One answer to a task."""

    ids: tuple[int, ...]
    """Every token after the prompt, end tokens included."""
    is_policy: tuple[bool, ...]
    """Which of them the policy sampled."""
    truncated: bool
    """The token limit came before an end token in the last turn."""
    text: str
    """The response that was judged: the last turn's."""
    verification: Verification
    turns: int = 1
    """Responses given."""

    @property
    def last_turn(self) -> int:
        """Index in `ids` at which the last turn's response begins."""
        start = len(self.ids)
        while start > 0 and self.is_policy[start - 1]:
            start -= 1
        return start


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one task: they share its prompt, and their rewards are compared with each other."""

    task: Task
    prompt: tuple[int, ...]
    rollouts: tuple[Rollout, ...]

    @property
    def rewards(self) -> Tensor:
        """(G, K) float64, rewards in the task's order; NaN where a verifier could not judge."""
        rows = [[math.nan if r is None else r for r in x.verification.rewards.values()] for x in self.rollouts]
        return torch.tensor(rows, dtype=torch.float64)

    @property
    def weights(self) -> Tensor:
        """(K,) float64: the rewards' weights."""
        return torch.tensor([v.weight for v in self.task.verifiers], dtype=torch.float64)

    @property
    def responses(self) -> list[tuple[int, ...]]:
        """Tokens of each rollout."""
        return [r.ids for r in self.rollouts]

    @property
    def trained(self) -> list[int]:
        """Positions, in the rollouts one after another, of the tokens that the policy sampled: N of them."""
        return [i for i, own in enumerate(own for r in self.rollouts for own in r.is_policy) if own]

    @property
    def lengths(self) -> list[int]:
        """Number of sampled tokens of each rollout; their sum is N."""
        return [sum(r.is_policy) for r in self.rollouts]


@dataclass(slots=True)
class _Transcript:
    """A rollout in the making."""

    episode: Episode
    ids: list[int] = field(default_factory=list)
    is_policy: list[bool] = field(default_factory=list)
    truncated: bool = False


def collect(
    policy: Policy,
    env: MultiRewardEnv,
    tasks: Sequence[Task],
    *,
    group_size: int,
    max_new_tokens: int,
    temperature: float,
    seeds: Sequence[int],
    clock: Clock | None = None,
) -> list[Group]:
    """Samples `group_size` rollouts of each task and judges them.

    Args:
        env: gives each task its episode: how many turns, and the feedback between them.
        max_new_tokens: limit for each turn.
        seeds: one for each task.
        clock: takes the seconds of the phases "sample" and "score".
    """
    clock = clock or Clock()
    prompts = [policy.encode(task.prompt) for task in tasks]
    groups = [[_Transcript(env.episode(task)) for _ in range(group_size)] for task in tasks]
    flat = [transcript for group in groups for transcript in group]

    with clock("sample"):
        sampled = policy.sample(
            prompts, group_size=group_size, max_new_tokens=max_new_tokens, temperature=temperature, seeds=seeds
        )
    answers = [answer for group in sampled for answer in group]
    pending = list(range(len(flat)))
    turn = 1
    while True:
        texts = [policy.decode(answer.ids) for answer in answers]
        with clock("score"):
            judged = score_many([(flat[i].episode.task, text) for i, text in zip(pending, texts, strict=True)])
        for i, answer, text, verification in zip(pending, answers, texts, judged, strict=True):
            transcript = flat[i]
            transcript.ids += answer.ids
            transcript.is_policy += [True] * len(answer.ids)
            transcript.truncated = answer.truncated
            before = transcript.episode.prompt
            feedback = transcript.episode.respond(text, verification).feedback
            if feedback is not None:
                written = policy.encode_feedback(before, feedback, ended=not answer.truncated)
                transcript.ids += written
                transcript.is_policy += [False] * len(written)
        pending = [i for i in pending if not flat[i].episode.done]
        if not pending:
            break
        with clock("sample"):
            sampled = policy.sample(
                [[*prompts[i // group_size], *flat[i].ids] for i in pending],
                group_size=1,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seeds=[seeds[i // group_size] * 8191 + turn * 131_071 + i % group_size for i in pending],
            )
        answers = [group[0] for group in sampled]
        turn += 1

    return [
        Group(task, tuple(prompt), tuple(_finished(t) for t in group))
        for task, prompt, group in zip(tasks, prompts, groups, strict=True)
    ]


def _finished(transcript: _Transcript) -> Rollout:
    last = transcript.episode.turns[-1]
    return Rollout(
        tuple(transcript.ids),
        tuple(transcript.is_policy),
        transcript.truncated,
        last.response,
        last.verification,
        len(transcript.episode.turns),
    )
