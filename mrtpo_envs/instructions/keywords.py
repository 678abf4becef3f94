"""Constraints on words and letters: families `keywords`, `change_case`, `punctuation` and `language`."""

from __future__ import annotations

import re
from typing import Any

from mrtpo_envs.instructions.constraint import (
    Constraint,
    Finding,
    amount,
    character,
    count,
    holds,
    phrase,
    phrases,
    register,
    relation,
)
from mrtpo_envs.instructions.text import find_word, is_in_language, known_languages, language_of, normal, words
from mrtpo_envs.verifier import Evidence


def _listed(items: list[str]) -> str:
    quoted = [f'"{item}"' for item in items]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


@register
class KeywordExistence(Constraint):
    """Every keyword occurs. Published: each keyword is a regular expression searched anywhere, so "C++" finds a "C"."""

    id = "keywords:existence"
    takes = {"keywords": phrases}
    cue = r"\b(include|mention|use|using|contain)\b.*\b(word|keyword|phrase|term)s?\b|\bkeywords?\b"

    @classmethod
    def short_name(cls) -> str:
        """Says whose existence."""
        return "keyword_existence"

    def describe(self) -> str:
        """See `Constraint`."""
        keywords = self.arguments["keywords"]
        return f"Include the {'word' if len(keywords) == 1 else 'words'} {_listed(keywords)}."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = {keyword: find_word(keyword, text) for keyword in self.arguments["keywords"]}
        missing = [keyword for keyword, where in found.items() if not where]
        if missing:
            return Finding(False, f"missing: {_listed(missing)}", Evidence.ABSENT)
        return Finding(True, "every keyword occurs", [span for where in found.values() for span in where])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return all(_search(keyword, text) for keyword in self.arguments["keywords"])


@register
class KeywordFrequency(Constraint):
    """A word occurs so many times, as a whole word. Published: as any sub-string ("worship" contains "ship")."""

    id = "keywords:frequency"
    takes = {"keyword": phrase, "frequency": count(), "relation": relation}
    cue = r"\b(word|keyword)\b.*\b(at least|less than|times|appear|twice|once)\b|\bappear\b.*\btimes\b"

    @classmethod
    def short_name(cls) -> str:
        """Says whose frequency."""
        return "keyword_frequency"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return f'Use the word "{a["keyword"]}" {a["relation"]} {amount(a["frequency"], "time")}.'

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        found = find_word(a["keyword"], text)
        outcome = f'"{a["keyword"]}" occurs {amount(len(found), "time")}'
        return Finding(holds(a["relation"], len(found), a["frequency"]), outcome, found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        try:
            found = len(re.findall(a["keyword"], text, re.IGNORECASE))
        except re.error:
            found = 0
        return holds(a["relation"], found, a["frequency"])


@register
class ForbiddenWords(Constraint):
    """None of some words occurs. Published: the words are patterns between word boundaries."""

    id = "keywords:forbidden_words"
    takes = {"forbidden_words": phrases}
    cue = (
        r"\b(do not|don't|avoid|without|not)\b.*\b(include|use|using|mention|contain|say|word|keyword|term|phrase)s?\b"
    )

    def describe(self) -> str:
        """See `Constraint`."""
        forbidden = self.arguments["forbidden_words"]
        return f"Do not use the {'word' if len(forbidden) == 1 else 'words'} {_listed(forbidden)}."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = {word: find_word(word, text) for word in self.arguments["forbidden_words"]}
        used = [word for word, where in found.items() if where]
        outcome = f"used: {_listed(used)}" if used else "no forbidden word occurs"
        return Finding(not used, outcome, [span for where in found.values() for span in where])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return not any(_search(rf"\b{word}\b", text) for word in self.arguments["forbidden_words"])


@register
class LetterFrequency(Constraint):
    """A letter occurs so many times, whatever its case. Any character may be asked for.

    Published: a character that is no letter is replaced by a random letter; here it is counted.
    """

    id = "keywords:letter_frequency"
    takes = {"letter": character, "let_frequency": count(), "let_relation": relation}
    cue = r"\bletter\b|\bhashtags?\b|\bexclamation marks?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        what = "letter" if a["letter"].isalpha() else "character"
        return f'Use the {what} "{a["letter"]}" {a["let_relation"]} {amount(a["let_frequency"], "time")}.'

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        wanted = a["letter"].lower()
        found = [(i, i + 1) for i, c in enumerate(text) if c.lower() == wanted]
        outcome = f'"{a["letter"]}" occurs {amount(len(found), "time")}'
        return Finding(holds(a["let_relation"], len(found), a["let_frequency"]), outcome, found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        return holds(a["let_relation"], text.lower().count(a["letter"].lower()), a["let_frequency"])


def _language(name: str, value: Any) -> str:
    if value not in known_languages():
        raise ValueError(f"{name} must be an ISO 639-1 code of {', '.join(known_languages())}; got {value!r}")
    return str(value)


@register
class ResponseLanguage(Constraint):
    """The whole answer is in one language. A text whose language cannot be told is not in it; published: it is."""

    id = "language:response_language"
    takes = {"language": _language}
    cue = r"\blanguage\b|\b(in|using|only) (english|french|german|spanish|italian|portuguese|arabic|russian|korean|\w+i)\b"

    def describe(self) -> str:
        """See `Constraint`."""
        code = self.arguments["language"]
        return f"Write the whole response in {_LANGUAGES.get(code, f'the language with the code {code}')}."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = language_of(text)
        outcome = "its language cannot be told" if found is None else f"reads as {_LANGUAGES.get(found, found)}"
        return Finding(is_in_language(text, self.arguments["language"]), outcome)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return language_of(text) in (None, self.arguments["language"])


@register
class CapitalWordFrequency(Constraint):
    """So many words are in capitals throughout."""

    id = "change_case:capital_word_frequency"
    takes = {"capital_frequency": count(), "capital_relation": relation}
    cue = r"\b(capital|uppercase|all caps|capitalized)\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return f"Write {a['capital_relation']} {amount(a['capital_frequency'], 'word')} in all capital letters."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        found = [(i, j) for i, j in words(text) if text[i:j].isupper()]
        outcome = f"{amount(len(found), 'word')} in all capitals"
        return Finding(holds(a["capital_relation"], len(found), a["capital_frequency"]), outcome, found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        tokens = re.findall(r"\w+(?:[.'-]\w+)*|[^\w\s]", text)
        return holds(a["capital_relation"], sum(t.isupper() for t in tokens), a["capital_frequency"])


class _OneCase(Constraint):
    """All letters of one case, in English."""

    upper: bool

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        wrong = [(i, i + 1) for i, c in enumerate(text) if (c.islower() if self.upper else c.isupper())]
        if wrong:
            return Finding(False, f"{amount(len(wrong), 'letter')} of the other case", wrong)
        if not any(c.isalpha() for c in text):
            return Finding(False, "there are no letters", Evidence.ABSENT)
        if not is_in_language(text, "en"):
            return Finding(False, "all of one case, but it does not read as English")
        return Finding(True, "every letter is of the right case")

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return (text.isupper() if self.upper else text.islower()) and language_of(text) in (None, "en")


@register
class EnglishCapital(_OneCase):
    """English, in capital letters only. Letters without case do not matter."""

    id = "change_case:english_capital"
    cue = r"\b(all )?(capital|capitals|uppercase|caps)\b"
    upper = True

    def describe(self) -> str:
        """See `Constraint`."""
        return "Write the whole response in English and in capital letters only."


@register
class EnglishLowercase(_OneCase):
    """English, in small letters only."""

    id = "change_case:english_lowercase"
    cue = r"\b(lowercase|lower case|no capital|small letters)\b"
    upper = False

    def describe(self) -> str:
        """See `Constraint`."""
        return "Write the whole response in English and in lowercase letters only."


@register
class NoComma(Constraint):
    """No comma; full-width and ideographic commas are commas too."""

    id = "punctuation:no_comma"
    cue = r"\bcommas?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return "Do not use any commas."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = [(i, i + 1) for i, c in enumerate(text) if c in ",，、"]
        return Finding(not found, f"found {amount(len(found), 'comma')}" if found else "no comma", found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return "," not in text


def _search(pattern: str, text: str) -> bool:
    """Whether the published code's unescaped pattern is found; one that is no pattern never is."""
    try:
        return re.search(pattern, text, re.IGNORECASE) is not None
    except re.error:
        return normal(pattern).casefold() in text.casefold()


_LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "fa": "Persian", "fi": "Finnish", "fr": "French", "gu": "Gujarati",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian",
    "ja": "Japanese", "kn": "Kannada", "ko": "Korean", "ml": "Malayalam", "mr": "Marathi", "ne": "Nepali",
    "nl": "Dutch", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh-cn": "Chinese",
}  # fmt: skip
