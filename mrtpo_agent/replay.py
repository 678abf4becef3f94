"""The dual pass: what the policy would have thought of its own response with, and without, a verifier's information.

For reward k of a task

    with_k     the prompt, plus k's reference as a hint where it has one
    without_k  the prompt, less the segments that state k where there are some

and the response is the same on both sides. One of the two is nearly always the plain prompt, whose hidden states the
update computes anyway: so K rewards cost K passes, not 2 K, and all passes over one prompt's responses share that prompt
(`Policy.hidden`). A reward whose group has no spread gets no advantage, so it is never replayed.

A prompt that changes at all moves the distribution, whatever the change is about. The *placebo* measures that: a hint of
the same length about nothing, one pass for all hinted rewards of a prompt. `credit` subtracts what it explains.

    g response of the group, k reward, h hidden size, n sampled token (flat over the group's responses)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from mrtpo_agent.config import ReplayConfig
from mrtpo_agent.divergence import Divergence, replay_divergences
from mrtpo_agent.policy import Policy
from mrtpo_agent.rollout import Group
from mrtpo_envs.errors import TaskError
from mrtpo_envs.verifier import Verifier

HINT = "For your information, about what is checked: "
"""What a hint begins with, the placebo too, so that these words explain no difference between them."""
PLACEBO = (
    "The library on the corner opens at nine in the morning and closes at six in the evening. Its reading room has tall "
    "windows, a row of long tables and a clock that is two minutes slow. On Thursdays the caretaker waters the plants "
    "by the stairs before the first visitors arrive. "
)
"""Words about nothing that a verifier checks, repeated and cut to the length that is wanted."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two prompts of one reward, as token ids for each response, or None for the plain prompt."""

    with_: tuple[tuple[int, ...], ...] | None
    without: tuple[tuple[int, ...], ...] | None
    hint_tokens: int
    """Length of the hint in tokens; 0 where *with* is the plain prompt."""


def replay_pair(policy: Policy, group: Group, verifier: Verifier, config: ReplayConfig) -> Pair:
    """The prompts that show what `verifier` looks at.

    Raises TaskError where there is nothing to tell the two apart (neither statement nor reference).
    """
    prompt, task, name = group.task.prompt, group.task, verifier.name
    size = len(group.rollouts)
    reference = verifier.reference(task) if config.reference else ""
    hints = [reference] * size
    if config.outcome:
        hints = [f"{reference} {r.verification[name].outcome}".strip() for r in group.rollouts]
    with_ = without = None
    hint_tokens = 0
    if any(hints):
        encoded = {hint: tuple(policy.encode(prompt, hints=[HINT + hint])) for hint in set(hints)}
        with_ = tuple(encoded[hint] for hint in hints)
        hint_tokens = max(len(ids) for ids in with_) - len(group.prompt)
    if config.omission and name in prompt.stated:
        without = (tuple(policy.encode(prompt, omit={name})),) * size
    if with_ is None and without is None:
        raise TaskError(
            f"reward {name!r} of task {task.id!r} has nothing to replay with: give its verifier a `statement` that a "
            f"prompt segment states (Segment(..., states={name!r})) or a `reference` "
            f"(settings: omission={config.omission}, reference={config.reference}, outcome={config.outcome})"
        )
    return Pair(with_, without, hint_tokens)


@torch.no_grad()
def replay(
    policy: Policy,
    group: Group,
    rewards: Iterable[str],
    config: ReplayConfig,
    plain_nh: Tensor,
    *,
    temperature: float = 1.0,
    placebo: bool = False,
) -> dict[str, Divergence]:
    """Replays a group's responses for each of `rewards` and compares the two sides token by token.

    Args:
        rewards: names of the rewards to replay, the live ones.
        plain_nh: (N, H) hidden states of the sampled tokens under the plain prompt, detached.
        temperature: the sampling temperature; the distributions compared are the ones that are sampled from.
        placebo: also fill each hinted reward's `placebo`.

    Returns:
        For each reward, its `Divergence`: JSD distance, KL and the sampled token's log-ratio, each (N,).
    """
    training = policy.model.training
    policy.model.eval()
    responses = group.responses
    trained_n = torch.tensor(group.trained, device=policy.device)
    target_n = torch.tensor([i for r in responses for i in r], device=policy.device)[trained_n]
    hidden: dict[tuple[tuple[int, ...], ...], Tensor] = {}

    def states(prompts: tuple[tuple[int, ...], ...]) -> Tensor:
        if prompts not in hidden:
            if len(set(prompts)) == 1:
                hidden[prompts] = policy.hidden(prompts[0], responses)[trained_n]
            else:  # a prompt of its own for each response
                rows = [policy.hidden(p, [r]) for p, r in zip(prompts, responses, strict=True)]
                hidden[prompts] = torch.cat(rows)[trained_n]
        return hidden[prompts]

    pairs = {name: replay_pair(policy, group, group.task.verifier(name), config) for name in rewards}
    hinted = [pair.hint_tokens for pair in pairs.values() if pair.hint_tokens]
    try:
        with_ = [None if pair.with_ is None else states(pair.with_) for pair in pairs.values()]
        without = [None if pair.without is None else states(pair.without) for pair in pairs.values()]
        if placebo and hinted:  # as if it were one reward more
            ids = tuple(_placebo_prompt(policy, group, max(hinted)))
            with_, without = [*with_, states((ids,) * len(responses))], [*without, None]
        found = replay_divergences(with_, without, plain_nh, target_n, policy.head, temperature=temperature)
    finally:
        policy.model.train(training)
    nothing = found.pop().jsd if placebo and hinted else None
    return {
        name: dataclasses.replace(divergence, placebo=nothing if pair.hint_tokens else None)
        for (name, pair), divergence in zip(pairs.items(), found, strict=True)
    }


def _placebo_prompt(policy: Policy, group: Group, hint_tokens: int) -> list[int]:
    """The prompt with a hint about nothing, about `hint_tokens` tokens longer than the plain one."""
    prompt = group.task.prompt
    words = (PLACEBO * (1 + hint_tokens * 8 // len(PLACEBO))).split(" ")
    low, high = 1, len(words)
    while low < high:  # the fewest words that reach the length
        middle = (low + high) // 2
        ids = policy.encode(prompt, hints=[HINT + " ".join(words[:middle])])
        low, high = (low, middle) if len(ids) - len(group.prompt) >= hint_tokens else (middle + 1, high)
    return policy.encode(prompt, hints=[HINT + " ".join(words[:low])])
