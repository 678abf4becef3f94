"""Constraints on where things stand and on whole answers: families `startend`, `combination`, `repeat`."""

from __future__ import annotations

import re

from mrtpo_envs.instructions.constraint import Constraint, Finding, count, phrase, register
from mrtpo_envs.instructions.text import normal
from mrtpo_envs.verifier import Evidence

_QUOTES = "\"'“”‘’"


@register
class EndChecker(Constraint):
    """The answer ends with a phrase, and no other words follow. Closing quotation marks may; published: case may differ."""

    id = "startend:end_checker"
    takes = {"end_phrase": phrase}
    cue = r"\b(end|finish|close|conclude)\b.*\b(phrase|words|sentence|with)\b|no other words should follow"

    def describe(self) -> str:
        """See `Constraint`."""
        return f'Finish the response with exactly this phrase and nothing after it: "{self.arguments["end_phrase"].strip()}"'

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        wanted = normal(self.arguments["end_phrase"]).strip().strip(_QUOTES).strip()
        end = len(text.rstrip().rstrip(_QUOTES).rstrip())
        if not wanted:
            return Finding(False, "the phrase is nothing but quotation marks")
        if text.endswith(wanted, 0, end):
            return Finding(True, "ends with the phrase", [(end - len(wanted), end)])
        end = max(end, len(text.rstrip()) if end == 0 else end)  # nothing but quotation marks: those
        start = max(0, end - len(wanted))
        return Finding(False, "ends with other words", [(end - len(text[start:end].lstrip()), end)])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return text.strip().strip('"').lower().endswith(self.arguments["end_phrase"].strip().lower())


@register
class Quotation(Constraint):
    """The whole answer stands in double quotation marks, straight or typographic, with something between them."""

    id = "startend:quotation"
    cue = r"\bquotation marks?\b|\bdouble quotes?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return "Wrap the entire response in double quotation marks."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        first, last = (start, start + 1), (end - 1, end)
        opened, closed = text[start] in '"“', text[end - 1] in '"”' and end - start > 1
        if opened and closed and text[start + 1 : end - 1].strip():
            return Finding(True, "wrapped in quotation marks", [first, last])
        wrong = [span for span, right in ((first, opened), (last, closed)) if not right]
        return Finding(False, "not wrapped in quotation marks", wrong or [first, last])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        text = text.strip()
        return len(text) > 1 and text[0] == text[-1] == '"'


@register
class TwoResponses(Constraint):
    """Exactly two different answers with six asterisks between; a longer row of asterisks is no separator."""

    id = "combination:two_responses"
    cue = r"\btwo (different )?responses\b|\*{6}"

    def describe(self) -> str:
        """See `Constraint`."""
        return "Give exactly two different responses, separated by six asterisks: ******"

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        separators = [m.span() for m in re.finditer(r"(?<!\*)\*{6}(?!\*)", text)]
        edges = [0, *(x for s in separators for x in s), len(text)]
        parts = [text[a:b].strip() for a, b in zip(edges[::2], edges[1::2], strict=True)]
        parts = parts[not parts[0] :]
        if parts and not parts[-1]:
            parts.pop()
        met = len(parts) == 2 and all(parts) and parts[0] != parts[1]
        same = len(parts) == 2 and parts[0] == parts[1]
        return Finding(met, "twice the same response" if same else f"{len(parts)} parts", separators)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        valid = []
        parts = text.split("******")
        for i, part in enumerate(parts):
            if part.strip():
                valid.append(part)
            elif i not in (0, len(parts) - 1):
                return False
        return len(valid) == 2 and valid[0].strip() != valid[1].strip()


@register
class RepeatPrompt(Constraint):
    """The answer first repeats the request word for word, then says something more. White space may differ.

    Published: case may differ as well, and nothing more is needed.
    """

    id = "combination:repeat_prompt"
    takes = {"prompt_to_repeat": phrase}
    cue = r"\brepeat\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return (
            "First repeat the following request word for word, without change, and then give your answer: "
            f'"{self.arguments["prompt_to_repeat"].strip()}"'
        )

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        start = len(text) - len(text.lstrip())
        at = start
        for word in normal(self.arguments["prompt_to_repeat"]).split():
            while at < len(text) and text[at].isspace():
                at += 1
            if at == len(text):
                return Finding(False, "the answer ends before the repetition does", Evidence.ABSENT)
            if not text.startswith(word, at):
                return Finding(False, f"the repetition goes astray at character {at}", [(at, _word_end(text, at))])
            at += len(word)
        more = bool(text[at:].strip())
        return Finding(more, "repeated" if more else "repeated, but nothing follows", [(start, at)])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return text.strip().lower().startswith(self.arguments["prompt_to_repeat"].strip().lower())


def _word_end(text: str, at: int) -> int:
    end = at + 1
    while end < len(text) and not text[end].isspace():
        end += 1
    return end


@register
class RepeatSpan(Constraint):
    """The answer is words n_start to n_end of a text, counted from 0, both included (IFBench).

    Published: characters are sliced where the prompt says words.
    """

    id = "repeat:repeat_span"
    takes = {"prompt_to_repeat": phrase, "n_start": count(), "n_end": count()}
    cue = r"\bspan of words\b|\bword indices\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return (
            f"Write only the words {a['n_start']} to {a['n_end']}, both included and counted from 0, of this text: "
            f'"{a["prompt_to_repeat"]}"'
        )

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        wanted = normal(a["prompt_to_repeat"]).split()[a["n_start"] : a["n_end"] + 1]
        met = [w.casefold() for w in text.split()] == [w.casefold() for w in wanted]
        return Finding(met, "the span that was asked for" if met else "another text than the span that was asked for")

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        wanted = a["prompt_to_repeat"][a["n_start"] : a["n_end"]]
        return bool(text.strip().lower().split() == wanted.strip().lower().split())
