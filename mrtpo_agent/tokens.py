"""From characters to tokens: which part of the text a token stands for, and which tokens an evidence span covers."""

from __future__ import annotations

from collections.abc import Sequence

from mrtpo_agent.policy import Policy
from mrtpo_envs.verifier import Span


def token_spans(policy: Policy, ids: Sequence[int]) -> list[Span]:
    """The half-open character range of the decoded text that each token stands for.

    A token that is only part of a character (byte-level vocabularies split emoji) has the range of the whole character;
    a special token, which the text does not show, has an empty range.
    """
    ends, reached = [], 0
    for i in range(1, len(ids) + 1):
        text = policy.decode(ids[:i])
        if i < len(ids):
            text = text.rstrip("\ufffd")  # a character whose last byte is still to come
        reached = max(reached, len(text))
        ends.append(reached)
    spans, start = [], 0
    for i, end in enumerate(ends):
        if end == start and ids[i] not in policy.special_ids:
            end = next((later for later in ends[i + 1 :] if later > start), start)
        spans.append(Span(start, end))
        start = ends[i]
    return spans


def overlaps(tokens: Sequence[Span], evidence: Sequence[Span]) -> list[bool]:
    """Which tokens overlap a span of the evidence."""
    return [any(t.start < e.end and e.start < t.end for e in evidence) for t in tokens]
