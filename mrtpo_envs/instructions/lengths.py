"""Constraints on length and structure: families `length_constraints` and `count`."""

from __future__ import annotations

import re

from mrtpo_envs.instructions.constraint import (
    Constraint,
    Finding,
    amount,
    count,
    holds,
    phrase,
    register,
    relation,
)
from mrtpo_envs.instructions.text import lines, normal, paragraphs, sentences, words
from mrtpo_envs.verifier import Evidence


@register
class NumberSentences(Constraint):
    """So many sentences. Published: counted by a trained splitter (nltk's punkt); here both rules use `text.sentences`."""

    id = "length_constraints:number_sentences"
    takes = {"num_sentences": count(), "relation": relation}
    cue = r"\bsentences?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return f"Write {a['relation']} {amount(a['num_sentences'], 'sentence')}."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        found = len(sentences(text))
        return Finding(holds(a["relation"], found, a["num_sentences"]), amount(found, "sentence"))

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        return holds(a["relation"], len(sentences(text)), a["num_sentences"])


@register
class NumberParagraphs(Constraint):
    """Exactly so many paragraphs with a markdown divider `***` between. The divider stands on a line of its own.

    Published: three stars anywhere divide, those of bold italics too.
    """

    id = "length_constraints:number_paragraphs"
    takes = {"num_paragraphs": count(1)}
    cue = r"\bparagraphs?\b|\*\*\*"

    def describe(self) -> str:
        """See `Constraint`."""
        n = self.arguments["num_paragraphs"]
        return f"Write exactly {amount(n, 'paragraph')}, separated by a line with the divider ***."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        dividers = [(a, b) for a, b in lines(text) if text[a:b].strip() == "***"]
        edges = [0, *(x for divider in dividers for x in divider), len(text)]
        parts = [text[a:b].strip() for a, b in zip(edges[::2], edges[1::2], strict=True)]
        parts = parts[not parts[0] :]
        if parts and not parts[-1]:
            parts.pop()
        if not all(parts):
            return Finding(False, "nothing stands between two dividers", dividers)
        met = len(parts) == self.arguments["num_paragraphs"]
        return Finding(met, amount(len(parts), "paragraph"), dividers)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        parts = re.split(r"\s?\*\*\*\s?", text)
        n = len(parts)
        for i, part in enumerate(parts):
            if not part.strip():
                if i not in (0, len(parts) - 1):
                    return False
                n -= 1
        return bool(n == self.arguments["num_paragraphs"])


@register
class NumberWords(Constraint):
    """So many words. A contraction or a hyphenated word is one word; published: it is several."""

    id = "length_constraints:number_words"
    takes = {"num_words": count(), "relation": relation}
    cue = r"\bwords\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return f"Write {a['relation']} {amount(a['num_words'], 'word')}."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        found = len(words(text))
        return Finding(holds(a["relation"], found, a["num_words"]), amount(found, "word"))

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        return holds(a["relation"], len(re.findall(r"\w+", text)), a["num_words"])


@register
class NthParagraphFirstWord(Constraint):
    """Exactly so many paragraphs with a blank line between, and one of them begins with a given word.

    Blank chunks count as nothing for either; published: they lower the count but are numbered.
    """

    id = "length_constraints:nth_paragraph_first_word"
    takes = {"num_paragraphs": count(1), "nth_paragraph": count(1), "first_word": phrase}
    cue = r"\bparagraph \d+\b|\b(first|second|third|fourth|\d+(st|nd|rd|th)) paragraph\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return (
            f"Write exactly {amount(a['num_paragraphs'], 'paragraph')}, separated by blank lines; "
            f'paragraph {a["nth_paragraph"]} must begin with the word "{a["first_word"]}".'
        )

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        found = paragraphs(text)
        if len(found) < a["nth_paragraph"]:
            return Finding(False, f"{amount(len(found), 'paragraph')}: there is no paragraph {a['nth_paragraph']}", ())
        start, end = found[a["nth_paragraph"] - 1]
        first = re.compile(r"[^\s.,?!'\"’”]+").search(text, _after_quotes(text, start, end), end)
        word = first.group() if first else ""
        begins = word.casefold() == normal(a["first_word"]).strip().casefold()
        met = begins and len(found) == a["num_paragraphs"]
        outcome = f"{amount(len(found), 'paragraph')}; paragraph {a['nth_paragraph']} begins with {word!r}"
        return Finding(met, outcome, [first.span()] if first else Evidence.ABSENT)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        chunks = text.split("\n\n")
        n = sum(bool(chunk.strip()) for chunk in chunks)
        if a["nth_paragraph"] > n:
            return False
        chunk = chunks[a["nth_paragraph"] - 1].strip()
        if not chunk:
            return False
        word = chunk.split()[0].lstrip("'").lstrip('"')
        word = re.split(r"[.,?!'\"]", word)[0].lower()
        return bool(n == a["num_paragraphs"] and word == a["first_word"].lower())


def _after_quotes(text: str, start: int, end: int) -> int:
    while start < end and text[start] in "\"'“”‘’*_#> ":
        start += 1
    return start


@register
class WordCountRange(Constraint):
    """Between so many and so many words, both included (IFBench)."""

    id = "count:word_count_range"
    takes = {"min_words": count(), "max_words": count(1)}
    cue = r"\bwords\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return f"Write between {self.arguments['min_words']} and {self.arguments['max_words']} words."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = len(words(text))
        return Finding(self.arguments["min_words"] <= found <= self.arguments["max_words"], amount(found, "word"))

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return bool(self.arguments["min_words"] <= len(re.findall(r"\w+", text)) <= self.arguments["max_words"])
