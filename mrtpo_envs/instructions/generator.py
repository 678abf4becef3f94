"""Generated instruction tasks: a topic, a request, and one to five constraints that can be met together.

Task `index` of a seed and split is the same in every process. Topics, keywords, phrases and letters of the test split
occur in no training task, so a policy is tested on words that it was not trained to write.

Constraints are drawn with arguments that a response of a few dozen words can meet, and never against each other:
`CONFLICTS` lists the pairs that exclude each other. `witness` writes a response that meets all constraints of a task; a
test does so for thousands of seeds, so that no task is impossible.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mrtpo_envs.errors import ConfigError, TaskError, unknown
from mrtpo_envs.instructions.constraint import KINDS, Constraint, Rule, Strictness, make_constraint
from mrtpo_envs.instructions.tasks import name_apart
from mrtpo_envs.instructions.words import END_PHRASES, KEYWORDS, LETTERS, REQUESTS, SECTION_WORDS, TOPICS
from mrtpo_envs.options import checked
from mrtpo_envs.task import Prompt, Segment, Task

EASY = (
    "keywords:existence",
    "keywords:frequency",
    "keywords:forbidden_words",
    "keywords:letter_frequency",
    "length_constraints:number_sentences",
    "length_constraints:number_words",
    "detectable_content:number_placeholders",
    "detectable_content:postscript",
    "detectable_format:number_bullet_lists",
    "detectable_format:number_highlighted_sections",
    "detectable_format:title",
    "startend:quotation",
    "change_case:capital_word_frequency",
    "change_case:english_lowercase",
    "punctuation:no_comma",
)
"""Kinds that a small model can learn in a few dozen tokens: a sample of it meets them sometimes, not always."""
HARD = (
    "startend:end_checker",
    "change_case:english_capital",
    "detectable_format:multiple_sections",
    "length_constraints:number_paragraphs",
    "length_constraints:nth_paragraph_first_word",
    "combination:two_responses",
    "combination:repeat_prompt",
    "detectable_format:json_format",
    "detectable_format:constrained_response",
    "language:response_language",
)
"""The other IFEval kinds, which a small model hardly ever meets by chance."""

_FOREIGN = {
    "es": "Este es un texto breve sobre algo que me gusta mucho y que siempre me hace feliz.",
    "fr": "Voici un petit texte sur une chose que j'aime beaucoup et qui me rend toujours heureux.",
    "de": "Hier ist ein kurzer Text über eine Sache, die ich sehr mag und die mich immer glücklich macht.",
    "it": "Questo è un breve testo su una cosa che mi piace molto e che mi rende sempre felice.",
}
_STRUCTURED = {
    "detectable_format:number_bullet_lists",
    "detectable_format:multiple_sections",
    "length_constraints:number_paragraphs",
    "length_constraints:nth_paragraph_first_word",
    "length_constraints:number_sentences",
    "combination:two_responses",
    "detectable_format:json_format",
}
_ALONE = {
    "combination:repeat_prompt",
    "combination:two_responses",
    "detectable_format:json_format",
    "detectable_format:constrained_response",
    "language:response_language",
}
"""What says what the whole response is: such a kind makes a task of one constraint."""


def _conflicts() -> frozenset[frozenset[str]]:
    pairs: set[frozenset[str]] = set()

    def exclude(one: str, others: Any) -> None:
        pairs.update(frozenset((one, other)) for other in others if other != one)

    for kind in _STRUCTURED:
        exclude(kind, _STRUCTURED)  # two layouts at once
    capitals = ("change_case:capital_word_frequency", "change_case:english_capital")
    exclude(
        "change_case:english_lowercase",
        (*capitals, "startend:end_checker", "detectable_content:postscript", "detectable_format:multiple_sections"),
    )
    exclude(
        "change_case:english_capital",
        ("change_case:capital_word_frequency", "startend:end_checker", "detectable_format:multiple_sections"),
    )
    # What is no sentence of its own, or could be read as one more, makes a count of sentences doubtful.
    exclude(
        "length_constraints:number_sentences",
        ("detectable_content:postscript", "detectable_format:title", "startend:end_checker"),
    )
    for layout in ("detectable_format:multiple_sections", "length_constraints:nth_paragraph_first_word"):
        exclude(layout, ("length_constraints:number_words",))  # with other demands too long for "less than"
    # Two demands on how the response ends.
    exclude("startend:end_checker", ("detectable_content:postscript",))
    exclude("length_constraints:nth_paragraph_first_word", ("detectable_format:title", "startend:quotation"))
    return frozenset(pairs)


CONFLICTS = _conflicts()
"""Pairs of kinds that no task holds together."""


class TaskGenerator:
    """Makes task `index` of a split, the same one every time.

    Args:
        seed: another seed, another order of tasks.
        split: "train" or "test".
        kinds: "easy", "all", or a list of published ids.
        n_constraints: how many constraints a task has, or the smallest and the largest number.
        rule: see `make_task`.
        strictness: see `make_task`.

    Raises:
        ConfigError, UnknownNameError: impossible options.
    """

    @checked()
    def __init__(
        self,
        *,
        seed: int = 0,
        split: str = "train",
        kinds: str | Sequence[str] = "easy",
        n_constraints: int | Sequence[int] = (1, 5),
        rule: Rule = "worded",
        strictness: Strictness = "strict",
    ) -> None:
        self.seed, self.split, self.rule, self.strictness = seed, split, rule, strictness
        self.kinds = _chosen_kinds(kinds)
        if split not in TOPICS:
            raise ConfigError(f"split must be one of {', '.join(TOPICS)}, got {split!r}")
        numbers = list(n_constraints) if isinstance(n_constraints, Sequence) else [n_constraints] * 2
        if len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] <= 5:
            raise ConfigError(
                f"n_constraints must be a number from 1 to 5, or the smallest and the largest, got {n_constraints!r}"
            )
        low, high = numbers
        together = len([k for k in self.kinds if k not in _ALONE])
        if high > 1 and together < high:
            raise ConfigError(f"n_constraints is up to {high}, but only {together} of the chosen kinds go with others")
        self.n_constraints = (low, high)

    def __call__(self, index: int) -> Task:
        """Task `index`."""
        rng = random.Random(f"{self.seed}/{self.split}/{index}")  # a string seeds alike in every process
        topic = rng.choice(TOPICS[self.split])
        request = rng.choice(REQUESTS).format(topic=topic)
        chosen: list[str] = []
        wanted = rng.randint(*self.n_constraints)
        for kind in rng.sample(self.kinds, len(self.kinds)):
            if wanted > 1 and kind in _ALONE:
                continue
            if all(frozenset((kind, other)) not in CONFLICTS for other in chosen):
                chosen.append(kind)
            if len(chosen) == wanted:
                break
        chosen.sort(key=_ORDER.index)
        # Words are dealt without repetition, so that no forbidden word is one that must be used.
        dealt = iter(rng.sample(KEYWORDS[self.split], 8))
        constraints = []
        for kind in chosen:
            arguments = DRAW[kind](rng, dealt, self.split, request)
            constraints.append(make_constraint(kind, arguments, rule=self.rule, strictness=self.strictness))
        name_apart(constraints)
        parts = [Segment(request), *(Segment(f"\n- {c.describe()}", c.name) for c in constraints)]
        return Task(
            Prompt.user(*parts),
            tuple(constraints),
            id=f"{self.split}-{self.seed}-{index}",
            metadata={"source": "generated", "topic": topic, "kinds": chosen},
        )


def _chosen_kinds(kinds: str | Sequence[str]) -> list[str]:
    if kinds == "easy":
        return list(EASY)
    if kinds == "all":
        return [*EASY, *HARD]
    if isinstance(kinds, str) or not kinds:
        raise ConfigError(f"kinds must be 'easy', 'all' or a list of instruction ids, got {kinds!r}")
    for kind in kinds:
        if kind not in KINDS:
            raise unknown("instruction id", str(kind), KINDS)
        if kind not in DRAW:
            raise ConfigError(f"{kind} is checked but not generated; generated are: {', '.join(DRAW)}")
    return list(dict.fromkeys(kinds))


def _end_phrase(rng: random.Random, dealt: Any, split: str, request: str) -> dict[str, Any]:
    return {"end_phrase": rng.choice(END_PHRASES[split])}


def _number_words(rng: random.Random, dealt: Any, split: str, request: str) -> dict[str, Any]:
    return {"relation": rng.choice(["at least", "less than"]), "num_words": rng.choice([15, 20, 25])}


def _number_sentences(rng: random.Random, dealt: Any, split: str, request: str) -> dict[str, Any]:
    return {"relation": rng.choice(["at least", "less than"]), "num_sentences": rng.randint(2, 3)}


def _letter(rng: random.Random, dealt: Any, split: str, request: str) -> dict[str, Any]:
    letter = rng.choice(LETTERS[split])
    return {"letter": letter, "let_relation": "at least", "let_frequency": rng.randint(2, 5)}


DRAW: dict[str, Callable[[random.Random, Any, str, str], dict[str, Any]]] = {
    "keywords:existence": lambda rng, dealt, split, request: {
        "keywords": [next(dealt) for _ in range(rng.randint(1, 2))]
    },
    "keywords:frequency": lambda rng, dealt, split, request: {
        "keyword": next(dealt),
        "relation": "at least",
        "frequency": 2,
    },
    "keywords:forbidden_words": lambda rng, dealt, split, request: {
        # small words that a response would otherwise hold, or nothing would be learnt from forbidding them
        "forbidden_words": [rng.choice(["the", "and", "is", "of", "to", "in"])]
    },
    "keywords:letter_frequency": _letter,
    "length_constraints:number_sentences": _number_sentences,
    "length_constraints:number_words": _number_words,
    "detectable_content:number_placeholders": lambda rng, dealt, split, request: {
        "num_placeholders": rng.randint(1, 2)
    },
    "detectable_content:postscript": lambda rng, dealt, split, request: {
        "postscript_marker": rng.choice(["P.S.", "P.P.S"])
    },
    "detectable_format:number_bullet_lists": lambda rng, dealt, split, request: {"num_bullets": rng.randint(2, 3)},
    "detectable_format:number_highlighted_sections": lambda rng, dealt, split, request: {
        "num_highlights": rng.randint(1, 2)
    },
    "detectable_format:title": lambda rng, dealt, split, request: {},
    "startend:end_checker": _end_phrase,
    "startend:quotation": lambda rng, dealt, split, request: {},
    "change_case:capital_word_frequency": lambda rng, dealt, split, request: {
        "capital_relation": "at least",
        "capital_frequency": rng.randint(1, 3),
    },
    "change_case:english_capital": lambda rng, dealt, split, request: {},
    "change_case:english_lowercase": lambda rng, dealt, split, request: {},
    "punctuation:no_comma": lambda rng, dealt, split, request: {},
    "detectable_format:multiple_sections": lambda rng, dealt, split, request: {
        "section_spliter": rng.choice(SECTION_WORDS[split]),
        "num_sections": rng.randint(2, 3),
    },
    "length_constraints:number_paragraphs": lambda rng, dealt, split, request: {"num_paragraphs": 2},
    "length_constraints:nth_paragraph_first_word": lambda rng, dealt, split, request: {
        "num_paragraphs": 2,
        "nth_paragraph": rng.randint(1, 2),
        "first_word": next(dealt),
    },
    "combination:two_responses": lambda rng, dealt, split, request: {},
    "combination:repeat_prompt": lambda rng, dealt, split, request: {"prompt_to_repeat": request},
    "detectable_format:json_format": lambda rng, dealt, split, request: {},
    "detectable_format:constrained_response": lambda rng, dealt, split, request: {},
    "language:response_language": lambda rng, dealt, split, request: {"language": rng.choice(list(_FOREIGN))},
}
"""Arguments of each generated kind, from the generator, the words dealt, the split and the request."""
_ORDER = list(DRAW)

_FILLER = ("It can be fun for you", "We like it so much", "They enjoy it each day", "You may try it with us")


def witness(task: Task) -> str:
    """A response that meets every constraint of a generated task.

    Raises TaskError where none could be written: the task would be impossible.
    """
    constraints = {c.id: c for c in task.verifiers if isinstance(c, Constraint)}
    for text in _attempts(constraints):
        if all(c.judge(text).reward == 1.0 for c in constraints.values()):
            return text
    raise TaskError(f"no witness for task {task.id!r} with {sorted(constraints)}")


def _attempts(constraints: dict[str, Constraint]) -> Iterator[str]:
    """Candidate responses: the plainest first, then shorter sentences, one long one, and more filler each time."""
    forbidden = set(_argument(constraints, "keywords:forbidden_words", "forbidden_words", []))
    filler = [f for f in _FILLER if not forbidden & set(f.lower().split())]
    for n in (1, 2, 3, 4, 5, 6):
        several = [filler[i % len(filler)] for i in range(n)]
        for dense in (False, True):
            yield _write(constraints, several, dense)
            yield _write(constraints, ["We try"] * n, dense)
            yield _write(constraints, [" ".join(several)], dense)


def _argument(constraints: dict[str, Constraint], kind: str, name: str, default: Any) -> Any:
    return constraints[kind].arguments[name] if kind in constraints else default


def _write(constraints: dict[str, Constraint], filler: list[str], dense: bool) -> str:
    """One candidate. `dense` puts every demanded word into the first sentence, for short limits."""
    if "detectable_format:constrained_response" in constraints:
        return "My answer is maybe."
    if "language:response_language" in constraints:
        return _FOREIGN[constraints["language:response_language"].arguments["language"]]
    if "detectable_format:json_format" in constraints:
        return '{"note": "We like it so much"}'
    extra: list[str] = list(_argument(constraints, "keywords:existence", "keywords", []))
    extra += [_argument(constraints, "keywords:frequency", "keyword", "")] * _argument(
        constraints, "keywords:frequency", "frequency", 0
    )
    letter = _argument(constraints, "keywords:letter_frequency", "letter", "")
    if letter:
        extra.append(letter * _argument(constraints, "keywords:letter_frequency", "let_frequency", 0))
    extra += ["NOW", "YES", "WOW"][
        : _argument(constraints, "change_case:capital_word_frequency", "capital_frequency", 0)
    ]
    extra += ["[name]"] * _argument(constraints, "detectable_content:number_placeholders", "num_placeholders", 0)
    extra += ["*well*"] * _argument(constraints, "detectable_format:number_highlighted_sections", "num_highlights", 0)
    sentences = list(filler)
    if extra:
        joined = " ".join(extra)
        sentences = [f"{joined} {sentences[0]}", *sentences[1:]] if dense else [*sentences, f"You see {joined}"]
    text = _laid_out(constraints, [s + "." for s in sentences])
    if "combination:repeat_prompt" in constraints:
        text = constraints["combination:repeat_prompt"].arguments["prompt_to_repeat"] + "\n" + text
    if "detectable_format:title" in constraints:
        text = "<<My note>>\n" + text
    if "detectable_content:postscript" in constraints:
        text += "\n" + constraints["detectable_content:postscript"].arguments["postscript_marker"] + " We like it."
    if "startend:end_checker" in constraints:
        text += " " + constraints["startend:end_checker"].arguments["end_phrase"]
    if "startend:quotation" in constraints:
        text = f'"\n{text}\n"' if "\n" in text else f'"{text}"'
    if "change_case:english_lowercase" in constraints:
        text = text.lower()
    if "change_case:english_capital" in constraints:
        text = text.upper()
    return text


def _laid_out(constraints: dict[str, Constraint], sentences: list[str]) -> str:
    """The sentences as bullets, sections or paragraphs, where one is asked for, else one after the other."""
    n = _argument(constraints, "detectable_format:number_bullet_lists", "num_bullets", 0)
    if n:
        return "\n".join(f"* {part}" for part in ["We try."] * (n - 1) + [" ".join(sentences)])
    if "detectable_format:multiple_sections" in constraints:
        a = constraints["detectable_format:multiple_sections"].arguments
        parts = [" ".join(sentences), *["We try."] * (a["num_sections"] - 1)]
        return "\n".join(f"{a['section_spliter']} {i + 1}\n{part}" for i, part in enumerate(parts))
    if "length_constraints:number_paragraphs" in constraints:
        return f"{' '.join(sentences)}\n***\nWe like it."
    if "length_constraints:nth_paragraph_first_word" in constraints:
        a = constraints["length_constraints:nth_paragraph_first_word"].arguments
        both = [" ".join(sentences), "We like it."]
        both[a["nth_paragraph"] - 1] = f"{a['first_word']} {both[a['nth_paragraph'] - 1]}"
        return "\n\n".join(both)
    if "combination:two_responses" in constraints:
        return f"{' '.join(sentences)}\n******\nWe like it."
    return " ".join(sentences)
