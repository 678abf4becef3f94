"""Reading an answer: normal form with a way back, words, sentences, paragraphs, language.

Verdicts must not hang on invisible encoding, so an answer is read in Unicode's NFC with `\\n` line ends; `Reading` keeps
the way back to the response's own characters, for evidence. Everything here runs in time linear in the text.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from mrtpo_envs.answer import find_answer
from mrtpo_envs.verifier import Span

MAX_SPANS = 400
"""Evidence keeps this many spans: a megabyte of commas needs no million of them."""

WORD = re.compile(r"(?<![^\W_])(?:[^\W_]\.)+[^\W_](?![^\W_])|[^\W_]+(?:['’\-][^\W_]+)*")
"""A word: letters and digits, apostrophes and hyphens inside it (published rules split "don't" in two); or single
letters with points between, such as P.S or U.S, which are one word and not several."""

_ABBREVIATIONS = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "sr",
        "jr",
        "st",
        "vs",
        "etc",
        "e.g",
        "i.e",
        "fig",
        "no",
        "vol",
        "approx",
        "dept",
        "est",
        "inc",
        "ltd",
        "co",
        "corp",
        "gen",
        "col",
        "sgt",
        "capt",
        "lt",
        "rev",
        "hon",
        "jan",
        "feb",
        "mar",
        "apr",
        "jun",
        "jul",
        "aug",
        "sep",
        "sept",
        "oct",
        "nov",
        "dec",
        "p.s",
        "p.p.s",
        "a.m",
        "p.m",
        "u.s",
        "u.k",
    ]
)
# The look-behind keeps a run of marks from being tried once for each of its characters.
_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’)\]]*+(?=\s|$)|(?<![。！？])[。！？]++["'”’」』）]*+""")
_PARAGRAPH_BREAK = re.compile(r"\n[ \t]*\n\s*")


class Reading:
    """The answer within a response, in normal form.

    Attributes:
        text: the answer, NFC, line ends as newlines.
        given: False where the response holds no answer: reasoning that never ended, or nothing but white space.
    """

    def __init__(self, response: str) -> None:
        answer = find_answer(response)
        self._offset = answer.start
        self._starts: list[int] | None = None
        self.text = answer.text
        if "\r" in self.text or not unicodedata.is_normalized("NFC", self.text):
            self.text, self._starts = _normal_form(self.text)
        self.given = answer.given and bool(self.text.strip())

    def spans(self, ranges: Sequence[tuple[int, int]]) -> tuple[Span, ...]:
        """Ranges of `text` as spans of the response: sorted, touching ones joined, at most `MAX_SPANS`."""
        joined: list[list[int]] = []
        for start, end in sorted(ranges):
            if joined and start <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([start, end])
        return tuple(Span(self._raw(start), self._raw(end)) for start, end in joined[:MAX_SPANS] if start < end)

    def _raw(self, index: int) -> int:
        return self._offset + (index if self._starts is None else self._starts[index])


def normal(text: str) -> str:
    """A task's own words in the form that answers are read in."""
    return _normal_form(text)[0]


def _normal_form(text: str) -> tuple[str, list[int]]:
    """NFC with newlines, and for each of its characters (and its end) the index in `text` where it began."""
    out: list[str] = []
    starts: list[int] = []
    i = 0
    while i < len(text):
        j = i + 1
        if text[i] == "\r":
            j += text.startswith("\n", j)
            piece = "\n"
        else:
            while j < len(text) and _continues(text[j]):
                j += 1
            piece = unicodedata.normalize("NFC", text[i:j])
        out.append(piece)
        starts += [i] * len(piece)
        i = j
    return "".join(out), [*starts, len(text)]


def _continues(character: str) -> bool:
    """Whether a character may merge into the one before it: combining marks, and Hangul's vowels and finals."""
    return unicodedata.combining(character) > 0 or "\u1161" <= character <= "\u11c2"


def find_word(keyword: str, text: str) -> list[tuple[int, int]]:
    """Ranges where `keyword` stands as a whole word or phrase, whatever its case. It is text, not a pattern."""
    parts = [re.escape(part) for part in normal(keyword).split()]
    pattern = r"(?<!\w)" + r"\s+".join(parts) + r"(?!\w)"
    return [m.span() for m in re.finditer(pattern, text, re.IGNORECASE)]


def words(text: str) -> list[tuple[int, int]]:
    """Ranges of the words."""
    return [m.span() for m in WORD.finditer(text)]


def sentences(text: str) -> list[tuple[int, int]]:
    """Ranges of the sentences, without the space between them.

    A sentence ends at `.`, `!`, `?` or an ellipsis (with closing quotes or brackets) before white space, at their
    full-width kin, and at the end of a line that begins another paragraph or list item. Not at decimals, and not after
    abbreviations, initials and list numbers. A piece without a letter or digit is no sentence.
    """
    found: list[tuple[int, int]] = []
    for start, end in _lines(text):
        at = start
        for mark in _END.finditer(text, start, end):
            if _is_abbreviation(text, at, mark):
                continue
            found.append((at, mark.end()))
            at = mark.end()
        found.append((at, end))
    return [(a, b) for a, b in (_strip(text, a, b) for a, b in found) if any(c.isalnum() for c in text[a:b])]


def paragraphs(text: str) -> list[tuple[int, int]]:
    """Ranges of the paragraphs: what blank lines separate, blank ones left out."""
    found, at = [], 0
    for gap in _PARAGRAPH_BREAK.finditer(text):
        found.append((at, gap.start()))
        at = gap.end()
    found.append((at, len(text)))
    return [(a, b) for a, b in (_strip(text, a, b) for a, b in found) if a < b]


def lines(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of the lines, without their ends."""
    at = 0
    while True:
        end = text.find("\n", at)
        if end < 0:
            yield at, len(text)
            return
        yield at, end
        at = end + 1


def _lines(text: str) -> list[tuple[int, int]]:
    """Blocks that a sentence does not cross: lines, a line that merely wraps staying with the one before."""
    blocks: list[tuple[int, int]] = []
    blank = True
    for start, end in lines(text):
        if not text[start:end].strip():
            blank = True
            continue
        before = text[blocks[-1][1] - 1] if blocks else ""
        wraps = not blank and before not in '.!?:;…"”' and text[start].islower()
        if wraps:
            blocks[-1] = (blocks[-1][0], end)
        else:
            blocks.append((start, end))
        blank = False
    return blocks


def _is_abbreviation(text: str, start: int, mark: re.Match[str]) -> bool:
    if mark.group()[0] != "." or mark.group().startswith(".."):
        return False
    at = text.rfind(" ", max(start, mark.start() - 20), mark.start()) + 1 or max(start, mark.start() - 20)
    word = text[at : mark.start()].lstrip("(\"'“‘*_[")
    if word.casefold() in _ABBREVIATIONS:
        return bool(text[mark.end() :].strip())
    if len(word) == 1 and word.isalpha() and word.isupper() and word != "I":
        return True  # an initial
    return word.isdigit() and at == start  # "1." at the beginning of a line numbers it


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


_ENGLISH = frozenset(
    [
        "the",
        "a",
        "an",
        "and",
        "or",
        "but",
        "of",
        "to",
        "in",
        "on",
        "at",
        "for",
        "with",
        "from",
        "by",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "it",
        "its",
        "this",
        "that",
        "these",
        "those",
        "i",
        "you",
        "he",
        "she",
        "we",
        "they",
        "my",
        "your",
        "his",
        "her",
        "our",
        "their",
        "not",
        "have",
        "has",
        "had",
        "do",
        "does",
        "did",
        "can",
        "will",
        "would",
        "as",
        "if",
        "so",
        "there",
        "what",
        "which",
        "who",
    ]
)


def is_in_language(text: str, code: str) -> bool:
    """Whether the text is in the language.

    The detector counts character sequences: it takes capitals for German, and errs on a line or two. So the lower-cased
    text may be the one that it knows, and English is also taken for English where at least a fifth of its words are the
    language's own small words.
    """
    lowered = text.lower()
    if code in (language_of(text), language_of(lowered)):
        return True
    if code != "en":
        return False
    found = [lowered[a:b] for a, b in words(lowered)]
    return bool(found) and sum(word in _ENGLISH for word in found) >= 0.2 * len(found)


@functools.cache
def _detector_factory() -> Any:
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = (
        DetectorFactory()
    )  # of our own: the package's shared one is unseeded, and seeding it would be felt elsewhere
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(0)
    return factory


@functools.lru_cache(maxsize=4096)
def language_of(text: str) -> str | None:
    """ISO 639-1 code of the text's most likely language, the same every time; None where none can be told."""
    from langdetect.lang_detect_exception import LangDetectException

    try:
        detector = _detector_factory().create()
        detector.append(text[:10_000].encode("utf-8", "replace").decode("utf-8"))
        found = detector.get_probabilities()
    except LangDetectException:
        return None
    return str(found[0].lang) if found else None


def known_languages() -> list[str]:
    """The codes that `language_of` can answer with."""
    return sorted(_detector_factory().get_lang_list())
