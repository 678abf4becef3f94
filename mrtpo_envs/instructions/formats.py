"""Constraints on form: families `detectable_format`, `detectable_content`, `format`."""

from __future__ import annotations

import json
import re
from typing import Any

import regex

from mrtpo_envs.instructions.constraint import Constraint, Finding, amount, count, phrase, register
from mrtpo_envs.instructions.text import lines, normal, sentences
from mrtpo_envs.verifier import Evidence

MAX_JSON_DEPTH = 200
"""Deeper nesting than this is refused: no answer needs it, and the parser recurses."""


@register
class NumberPlaceholders(Constraint):
    """At least so many placeholders in square brackets, with something in them; published: empty ones count."""

    id = "detectable_content:number_placeholders"
    takes = {"num_placeholders": count()}
    cue = r"\bplaceholders?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        n = self.arguments["num_placeholders"]
        return f"Include at least {amount(n, 'placeholder')} in square brackets, such as [name]."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = [m.span() for m in re.finditer(r"\[([^\[\]\n]+)\]", text) if m.group(1).strip()]
        return Finding(len(found) >= self.arguments["num_placeholders"], amount(len(found), "placeholder"), found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        # The published pattern is \[.*?\], which takes quadratic time on a run of brackets; this finds as many.
        found = 0
        for line in text.split("\n"):
            at = 0
            while (start := line.find("[", at)) >= 0 and (end := line.find("]", start)) >= 0:
                found, at = found + 1, end + 1
        return bool(found >= self.arguments["num_placeholders"])


@register
class Postscript(Constraint):
    """A postscript at the end: the marker begins a line or follows a sentence, words before it and after it.

    Published: the marker's letters anywhere.
    """

    id = "detectable_content:postscript"
    takes = {"postscript_marker": phrase}
    cue = r"\bpostscript\b|\bP\.\s?(P\.\s?)?S\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return f"At the end of the response, add a postscript that begins with {self.arguments['postscript_marker']}"

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        marker = normal(self.arguments["postscript_marker"]).strip()
        letters = [re.escape(part) for part in re.split(r"[.\s]+", marker) if part]
        ending = r"\.?" if marker.endswith(".") else ""
        pattern = r"(?<![\w.])" + r"\.\s?".join(letters) + ending + r"(?!\w)"
        for match in re.finditer(pattern, text, re.IGNORECASE):
            before, after = text[: match.start()].rstrip(" \t*_\"'“("), text[match.end() :]
            begins = before.endswith(("\n", ".", "!", "?", "…", '"', "”", ")", ">", "]", "*"))
            if begins and before.strip() and any(c.isalnum() for c in after):
                return Finding(True, "there is a postscript", [match.span()])
        return Finding(False, "there is no postscript with that marker", Evidence.ABSENT)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        marker = self.arguments["postscript_marker"]
        patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
        return re.search(patterns.get(marker, re.escape(marker.lower())), text.lower()) is not None


@register
class NumberBulletLists(Constraint):
    """Exactly so many bullets: a line with a marker, a space and text. Published: bold lines and rules are bullets too."""

    id = "detectable_format:number_bullet_lists"
    takes = {"num_bullets": count()}
    cue = r"\bbullets?\b|\* This is"

    def describe(self) -> str:
        """See `Constraint`."""
        return (
            f'Use exactly {amount(self.arguments["num_bullets"], "bullet point")}, each a line that begins with "* ".'
        )

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = bullets(text, "*-+•")
        return Finding(len(found) == self.arguments["num_bullets"], amount(len(found), "bullet"), found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        rows = text.split("\n")
        stars = sum(re.match(r"\s*\*[^\*]", row) is not None for row in _joined_blank(rows))
        dashes = sum(re.match(r"\s*-", row) is not None for row in rows)
        return bool(stars + dashes == self.arguments["num_bullets"])


def bullets(text: str, markers: str) -> list[tuple[int, int]]:
    """Ranges of the lines that are list items with one of `markers`."""
    found = []
    for start, end in lines(text):
        line = text[start:end].strip()
        is_rule = len(line) >= 3 and not line.strip("*-_ \t")
        if len(line) > 2 and line[0] in markers and line[1] in " \t" and not is_rule:
            found.append((start + len(text[start:end]) - len(text[start:end].lstrip()), end))
    return found


def _joined_blank(rows: list[str]) -> list[str]:
    """Lines as the published multi-line pattern sees them: a lone star at a line's end takes the newline as its text."""
    return [row + "\n" for row in rows[:-1]] + rows[-1:]


_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@register
class ConstrainedResponse(Constraint):
    """One of three sentences, and only one of them; published: at least one."""

    id = "detectable_format:constrained_response"
    cue = r"\bMy answer is\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return 'Answer with exactly one of: "My answer is yes.", "My answer is no.", "My answer is maybe."'

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = {option: [m.span() for m in re.finditer(re.escape(option), text)] for option in _OPTIONS}
        given = [option for option, where in found.items() if where]
        outcome = f"{len(given)} of the three answers given"
        return Finding(len(given) == 1, outcome, [span for where in found.values() for span in where])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return any(option in text.strip() for option in _OPTIONS)


@register
class NumberHighlightedSections(Constraint):
    """At least so many highlighted sections, *so* or **so**, each counted once; a bullet's star opens none.

    Published: single and double stars are searched one after the other.
    """

    id = "detectable_format:number_highlighted_sections"
    takes = {"num_highlights": count()}
    cue = r"\bhighlight"

    def describe(self) -> str:
        """See `Constraint`."""
        n = self.arguments["num_highlights"]
        return f"Highlight at least {amount(n, 'section')} with markdown, such as *highlighted section*."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = [m.span() for m in re.finditer(r"(\*{1,2})(?=[^\s*])([^\n*]+)(?<=[^\s*])\1", text)]
        return Finding(len(found) >= self.arguments["num_highlights"], amount(len(found), "highlighted section"), found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        single = [m.strip("*").strip() for m in re.findall(r"\*[^\n\*]*\*", text)]
        double = [m.removeprefix("**").removesuffix("**").strip() for m in re.findall(r"\*\*[^\n\*]*\*\*", text)]
        return bool(sum(map(bool, [*single, *double])) >= self.arguments["num_highlights"])


@register
class MultipleSections(Constraint):
    """Exactly so many sections, each begun by a line with the word and a number of its own.

    Published: the word and a number anywhere, at least so many times.
    """

    id = "detectable_format:multiple_sections"
    takes = {"section_spliter": phrase, "num_sections": count(1)}
    cue = r"\bsections?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        a = self.arguments
        return (
            f"Write exactly {amount(a['num_sections'], 'section')}; begin each with a line {a['section_spliter']} X, "
            f"such as {a['section_spliter']} 1."
        )

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        a = self.arguments
        word = re.escape(normal(a["section_spliter"]).strip())
        pattern = re.compile(rf"^[ \t#*_>]*({word}\s?(\d+))(?!\d)", re.MULTILINE)
        found = list(pattern.finditer(text))
        n = len({m.group(2).lstrip("0") for m in found})
        return Finding(n == a["num_sections"], amount(n, "section"), [m.span(1) for m in found])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        a = self.arguments
        return bool(len(re.findall(rf"{re.escape(a['section_spliter'])}\s?\d+\s?", text)) >= a["num_sections"])


@register
class JsonFormat(Constraint):
    """The whole answer is one JSON object or array, in a code fence or bare.

    Strict: no NaN or Infinity, no key twice, no nesting beyond `MAX_JSON_DEPTH`. Published: what Python's json takes.
    """

    id = "detectable_format:json_format"
    cue = r"\bJSON\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return "Write the entire response as JSON."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        body, start = _unfenced(text)
        if _depth(body) > MAX_JSON_DEPTH:
            return Finding(False, f"nested more than {MAX_JSON_DEPTH} deep")
        try:
            value = json.loads(body, parse_constant=_no_constant, object_pairs_hook=_no_duplicates, parse_int=len)
        except json.JSONDecodeError as error:
            at = min(start + error.pos, len(text) - 1)
            return Finding(False, f"not JSON: {error.msg} at character {error.pos}", [(at, at + 1)])
        except (ValueError, RecursionError) as error:
            return Finding(False, f"not strict JSON: {error}")
        if not isinstance(value, dict | list):
            return Finding(False, "a bare value, no object or array")
        return Finding(True, "valid JSON")

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        body = text.strip()
        for fence in ("```json", "```Json", "```JSON", "```"):
            body = body.removeprefix(fence)
        try:
            json.loads(body.removesuffix("```").strip())
        except (ValueError, RecursionError):
            return False
        return True


def _unfenced(text: str) -> tuple[str, int]:
    """The text within one code fence round all of it, or all of it; and where that begins."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    fence = re.compile(r"```(?:json)?[ \t]*\n?", re.IGNORECASE).match(text, start, end)
    if fence and text.endswith("```", fence.end(), end):
        start, end = fence.end(), end - 3
    return text[start:end].strip(), start + len(text[start:end]) - len(text[start:end].lstrip())


def _depth(text: str) -> int:
    deepest = depth = 0
    for c in text:
        if c in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif c in "]}":
            depth -= 1
    return deepest


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


@register
class Title(Constraint):
    """A title in double angular brackets on one line."""

    id = "detectable_format:title"
    cue = r"\btitle\b|<<"

    def describe(self) -> str:
        """See `Constraint`."""
        return "Include a title in double angular brackets, such as <<my title>>."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = [m.span() for m in re.finditer(r"<<([^<>\n]+)>>", text) if m.group(1).strip()]
        return Finding(bool(found), "there is a title" if found else "there is no title", found)

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        # Each line's first << to its last >> with something between: what the published pattern <<[^\n]+>> can match.
        for line in text.split("\n"):
            start, end = line.find("<<"), line.rfind(">>")
            if 0 <= start < end - 2 and line[start : end + 2].lstrip("<").rstrip(">").strip():
                return True
        return False


@register
class SubBullets(Constraint):
    """Bullets with `*`, each with at least one sub-bullet with `-` under it (IFBench).

    Published: the text is cut at every star, bold text's too, and each part must hold a hyphen.
    """

    id = "format:sub-bullets"
    cue = r"\bsub-?bullets?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return 'Write bullet points with "* ", each with at least one sub-bullet with "- " under it.'

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        tops, subs = bullets(text, "*"), bullets(text, "-")
        edges = [start for start, _ in tops] + [len(text)]
        lone = [
            top for top, end in zip(tops, edges[1:], strict=True) if not any(top[0] < start < end for start, _ in subs)
        ]
        if not tops:
            return Finding(False, "no bullets", Evidence.ABSENT)
        if lone:
            return Finding(False, f"{amount(len(lone), 'bullet')} without a sub-bullet", lone)
        return Finding(True, "every bullet has a sub-bullet", [*tops, *subs])

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        return all("-" in part for part in text.split("*")[1:])


_AFTER_EMOJI = frozenset(" .!?…\"'”’)]}")
_EMOJI = regex.compile(r"\p{Extended_Pictographic}|\p{Regional_Indicator}{2}|[0-9#*]\uFE0F?\u20E3")


@register
class Emoji(Constraint):
    """An emoji at the end of every sentence (IFBench). An emoji is what is seen as one: flags and keycaps are.

    Published: one or two characters are looked at, which flags and keycaps do not fit in.
    """

    id = "format:emoji"
    takes = {}
    cue = r"\bemojis?\b"

    def describe(self) -> str:
        """See `Constraint`."""
        return "Put an emoji at the end of every sentence."

    def find(self, text: str) -> Finding:
        """See `Constraint`."""
        found = sentences(text)
        without = []
        for start, end in found:
            # "Hi 😀." and "Hi. 😀": the last thing seen before the end mark, or the first after it
            inside = [c for c in regex.findall(r"\X", text[max(start, end - 40) : end]) if c not in _AFTER_EMOJI]
            after = regex.match(r"\s*(\X)", text[end : end + 40])
            ends = [inside[-1]] if inside else []
            ends += [after.group(1)] if after else []
            if not any(_EMOJI.search(cluster) for cluster in ends):
                without.append((max(start, end - 1), end))
        if not found:
            return Finding(False, "no sentences", Evidence.ABSENT)
        if without:
            return Finding(False, f"{amount(len(without), 'sentence')} without an emoji at the end", without)
        return Finding(True, "every sentence ends with an emoji")

    def published(self, text: str) -> bool:
        """See `Constraint`."""
        for start, end in sentences(text):
            tail = re.sub(r"[^\w\s]", lambda m: m.group() if ord(m.group()) > 0x2000 else "", text[start:end]).strip()
            if not any(regex.fullmatch(r"\p{Extended_Pictographic}", c) for c in tail[-2:]):
                return False
        return True
