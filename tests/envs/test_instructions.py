"""Instruction constraints: cases from public bug reports, a table for each kind, tasks that can be met."""

import importlib.util
import json
import time
from pathlib import Path

import pytest

import mrtpo_envs
from mrtpo_envs import ConfigError, DataError, Evidence, TaskError, UnknownNameError, score
from mrtpo_envs.instructions import KINDS, TaskGenerator, load_jsonl, make_constraint, make_task, witness
from mrtpo_envs.instructions.generator import CONFLICTS, DRAW, EASY, HARD
from mrtpo_envs.instructions.text import sentences
from mrtpo_envs.instructions.words import END_PHRASES, KEYWORDS, LETTERS, TOPICS

CASES = Path(__file__).parents[1] / "cases" / "verifier_cases.jsonl"
IFEVAL = [row for row in map(json.loads, CASES.read_text().splitlines()) if row["domain"] == "ifeval"]


def met(task, output):
    return [reward == 1.0 for reward in score(task, output).rewards.values()]


def case_task(case, **settings):
    given = case["task"]
    return make_task(
        prompt=given["prompt"], instruction_id_list=given["instruction_id_list"], kwargs=given["kwargs"], **settings
    )


@pytest.mark.parametrize("case", IFEVAL, ids=lambda case: case["id"])
def test_public_bug_report(case):
    expected = case["expected"]
    if "error" in expected:
        with pytest.raises((TaskError, UnknownNameError)) as raised:
            case_task(case)
        assert any(word in str(raised.value) for word in ("max_words", "unknown instruction id"))
        return
    for strictness in ("strict", "loose"):
        if strictness in expected:
            assert met(case_task(case, strictness=strictness), case["output"]) == expected[strictness]
        reference = expected.get(f"{strictness}_reference")
        if isinstance(reference, list):
            task = case_task(case, strictness=strictness, rule="published")
            assert met(task, case["output"]) == reference
    if "same_verdict_for" in expected:
        assert met(case_task(case), expected["same_verdict_for"]) == expected["strict"]
    if "all_strict" in expected:
        assert score(case_task(case), case["output"]).all_passed == expected["all_strict"]
    if expected.get("deterministic"):
        assert len({tuple(met(case_task(case), case["output"])) for _ in range(5)}) == 1
    json.dumps(score(case_task(case), case["output"]).to_dict()).encode()


ABSENT, WHOLE = Evidence.ABSENT, Evidence.WHOLE
# id, arguments, response, met, evidence: the texts that it points at, or its state
TABLE = [
    ("keywords:existence", {"keywords": ["sun"]}, "The Sun and sunny sun", 1, ["Sun", "sun"]),
    ("keywords:existence", {"keywords": ["sun", "moon"]}, "The sun.", 0, ABSENT),
    ("keywords:existence", {"keywords": ["C++"]}, "I like C++.", 1, ["C++"]),
    ("keywords:existence", {"keywords": ["ice cream"]}, "ice\n cream", 1, ["ice\n cream"]),
    ("keywords:existence", {"keywords": ["é"]}, "un e\u0301 ici", 1, ["e\u0301"]),
    ("keywords:frequency", {"keyword": "a", "frequency": 2, "relation": "less than"}, "a banana", 1, ["a"]),
    ("keywords:frequency", {"keyword": "go", "frequency": 2, "relation": "at least"}, "go, gone. Go!", 1, ["go", "Go"]),
    ("keywords:frequency", {"keyword": "go", "frequency": 1, "relation": "at least"}, "gone", 0, ABSENT),
    ("keywords:frequency", {"keyword": "go", "frequency": 1, "relation": "less than"}, "go", 0, ["go"]),
    ("keywords:forbidden_words", {"forbidden_words": ["rain"]}, "Rain, rainbow", 0, ["Rain"]),
    ("keywords:forbidden_words", {"forbidden_words": ["rain"]}, "rainbow", 1, ABSENT),
    ("keywords:forbidden_words", {"forbidden_words": ["a.b"]}, "a b axb", 1, ABSENT),
    ("keywords:forbidden_words", {"forbidden_words": ["x", "y"]}, "x y", 0, ["x", "y"]),
    ("keywords:letter_frequency", {"letter": "B", "let_frequency": 2, "let_relation": "at least"}, "bob", 1, ["b", "b"]),
    ("keywords:letter_frequency", {"letter": "!", "let_frequency": 2, "let_relation": "less than"}, "a!!", 0, ["!!"]),
    ("keywords:letter_frequency", {"letter": "z", "let_frequency": 1, "let_relation": "at least"}, "bob", 0, ABSENT),
    ("keywords:letter_frequency", {"letter": "ß", "let_frequency": 1, "let_relation": "at least"}, "Straße", 1, ["ß"]),
    ("language:response_language", {"language": "de"}, "Das ist ein Haus und das ist ein Garten.", 1, WHOLE),
    ("language:response_language", {"language": "de"}, "This is a house with a garden.", 0, WHOLE),
    ("language:response_language", {"language": "en"}, "12345 67", 0, WHOLE),
    ("language:response_language", {"language": "ru"}, "Это мой дом и мой сад.", 1, WHOLE),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "Mr. X is 3.5. Yes!", 1, WHOLE),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "One... two", 0, WHOLE),
    ("length_constraints:number_sentences", {"num_sentences": 3, "relation": "at least"}, "* a b\n* c d\n* e f", 1, WHOLE),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "less than"}, "It ends 'so.' --", 1, WHOLE),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", 1, ["***"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "***a*** and\nb", 0, ABSENT),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\n***\nb", 0, ["***", "***"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 1}, "***\na\n ***", 1, ["***", " ***"]),
    ("length_constraints:number_words", {"num_words": 4, "relation": "less than"}, "don't well-known us", 1, WHOLE),
    ("length_constraints:number_words", {"num_words": 4, "relation": "at least"}, "a b c", 0, WHOLE),
    ("length_constraints:number_words", {"num_words": 2, "relation": "at least"}, "-- b c !", 1, WHOLE),
    ("length_constraints:number_words", {"num_words": 1, "relation": "at least"}, "!!!", 0, WHOLE),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"}, "a\n \n\n\"So, b", 1, ["So"]),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"}, "a\n\nsome", 0, ["some"]),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a"}, "a\n\nb\n\nc", 0, ["a"]),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 3, "nth_paragraph": 3, "first_word": "a"}, "a\nb", 0, ABSENT),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[a] and [b c]", 1, ["[a]", "[b c]"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[] [ ]", 0, ABSENT),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "[a\nb]", 0, ABSENT),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[[a]]", 0, ["[a]"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi.\nP.S. bye", 1, ["P.S."]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi. p. s. bye", 1, ["p. s."]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi. P.S.", 0, ABSENT),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "P.S. bye", 0, ABSENT),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Hi.\nP.P.S. bye", 0, ABSENT),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Hi.\nP.P.S. bye", 1, ["P.P.S"]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "the R.P.S. game", 0, ABSENT),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n  - b\ntext", 1, ["* a", "- b"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "*bold* line", 0, ABSENT),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* * *\n* a", 1, ["* a"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}, "* a\n* b", 0, ["* a", "* b"]),
    ("detectable_format:constrained_response", {}, "My answer is yes. Yes, My answer is yes.", 1, ["My answer is yes."] * 2),
    ("detectable_format:constrained_response", {}, "My answer is yes. My answer is no.", 0,
     ["My answer is yes.", "My answer is no."]),
    ("detectable_format:constrained_response", {}, "my answer is yes.", 0, ABSENT),
    ("detectable_format:constrained_response", {}, "Yes.", 0, ABSENT),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a b* and **c**", 1, ["*a b*", "**c**"]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "* a\n* b", 0, ABSENT),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "**one**", 0, ["**one**"]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "2 * 3 * 4", 0, ABSENT),
    ("detectable_format:multiple_sections", {"section_spliter": "PART", "num_sections": 2}, "PART 1\na\n# PART 2\nb", 1,
     ["PART 1", "PART 2"]),
    ("detectable_format:multiple_sections", {"section_spliter": "PART", "num_sections": 1}, "see PART 1", 0, ABSENT),
    ("detectable_format:multiple_sections", {"section_spliter": "PART", "num_sections": 2}, "PART 1\nPART 1", 0,
     ["PART 1", "PART 1"]),
    ("detectable_format:multiple_sections", {"section_spliter": "PART", "num_sections": 1}, "PART 1\nPART 2", 0,
     ["PART 1", "PART 2"]),
    ("detectable_format:json_format", {}, '```json\n{"a": [1, 2.5e3]}\n```', 1, WHOLE),
    ("detectable_format:json_format", {}, '{"a": 1, "a": 2}', 0, WHOLE),
    ("detectable_format:json_format", {}, '{"a": 1 x}', 0, ["x"]),
    ("detectable_format:json_format", {}, '"a bare string"', 0, WHOLE),
    ("detectable_format:json_format", {}, "[" * 5000 + "]" * 5000, 0, WHOLE),
    ("detectable_format:json_format", {}, '{"n": ' + "9" * 5000 + "}", 1, WHOLE),
    ("detectable_format:title", {}, "<<A title>>\ntext", 1, ["<<A title>>"]),
    ("detectable_format:title", {}, "<< >> x", 0, ABSENT),
    ("detectable_format:title", {}, "<<a\nb>>", 0, ABSENT),
    ("detectable_format:title", {}, "1 << 2", 0, ABSENT),
    ("combination:two_responses", {}, "a\n******\nb", 1, ["******"]),
    ("combination:two_responses", {}, "a ****** a", 0, ["******"]),
    ("combination:two_responses", {}, "a ******* b", 0, ABSENT),
    ("combination:two_responses", {}, "a ****** ****** b", 0, ["******", "******"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi now."}, "Say  hi\nnow. Hi!", 1, ["Say  hi\nnow."]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi now."}, "Say ho now. Hi!", 0, ["ho"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi now."}, "Say hi", 0, ABSENT),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi now."}, "Say hi now.", 0, ["Say hi now."]),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So it goes. The end." ', 1, ["The end."]),
    ("startend:end_checker", {"end_phrase": "The end."}, "The end. Or not.", 0, ["Or not."]),
    ("startend:end_checker", {"end_phrase": "The end."}, "the end.", 0, ["the end."]),
    ("startend:end_checker", {"end_phrase": "The end."}, "x", 0, ["x"]),
    ("startend:quotation", {}, ' "a b" ', 1, ['"', '"']),
    ("startend:quotation", {}, '"a" b', 0, ["b"]),
    ("startend:quotation", {}, "\u201ca\u201d", 1, ["\u201c", "\u201d"]),
    ("startend:quotation", {}, '"', 0, ['"']),
    ("startend:quotation", {}, '""', 0, ['""']),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "BIG dog IS", 1,
     ["BIG", "IS"]),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}, "Big Dog", 0, ABSENT),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "less than"}, "a NO", 0, ["NO"]),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}, "123 4", 0, ABSENT),
    ("change_case:capital_word_frequency", {"capital_frequency": 2, "capital_relation": "at least"}, "hi. P.P.S. bye", 0,
     ["P.P.S"]),
    ("change_case:english_capital", {}, "THIS IS FOR YOU, 24/7!", 1, WHOLE),
    ("change_case:english_capital", {}, "THIS IS fOR YOU", 0, ["f"]),
    ("change_case:english_capital", {}, "123", 0, ABSENT),
    ("change_case:english_capital", {}, "DAS IST EIN SCHÖNES HAUS MIT GARTEN", 0, WHOLE),
    ("change_case:english_lowercase", {}, "cats are nice to us", 1, WHOLE),
    ("change_case:english_lowercase", {}, "cats Are Nice", 0, ["A", "N"]),
    ("change_case:english_lowercase", {}, "...", 0, ABSENT),
    ("change_case:english_lowercase", {}, "das ist ein schönes haus mit garten", 0, WHOLE),
    ("punctuation:no_comma", {}, "a, b，c", 0, [",", "，"]),
    ("punctuation:no_comma", {}, "a; b", 1, ABSENT),
    ("punctuation:no_comma", {}, "<think>a, b</think>c", 1, ABSENT),
    ("punctuation:no_comma", {}, "<think>x</think>a,\r\nb,", 0, [",", ","]),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one two three", 1, WHOLE),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "one", 0, WHOLE),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "a b c d", 0, WHOLE),
    ("count:word_count_range", {"min_words": 2, "max_words": 2}, "it's time", 1, WHOLE),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 1, "n_end": 2}, " B c\n", 1, WHOLE),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 1, "n_end": 2}, "a b", 0, WHOLE),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 0, "n_end": 9}, "a b c d", 1, WHOLE),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 0, "n_end": 0}, "a", 1, WHOLE),
    ("format:sub-bullets", {}, "* a\n  - b", 1, ["* a", "- b"]),
    ("format:sub-bullets", {}, "* a\n  - b\n* c", 0, ["* c"]),
    ("format:sub-bullets", {}, "a-b", 0, ABSENT),
    ("format:sub-bullets", {}, "- b\n* a", 0, ["* a"]),
    ("format:emoji", {}, "Hi 😀. Bye 🇫🇷!", 1, WHOLE),
    ("format:emoji", {}, "Hi. 😀 Bye! 👍🏽", 1, WHOLE),
    ("format:emoji", {}, "Hi 😀. Bye.", 0, ["."]),
    ("format:emoji", {}, "Hi 3.", 0, ["."]),
]  # fmt: skip


@pytest.mark.parametrize(("id", "arguments", "response", "verdict", "evidence"), TABLE)
def test_kind(id, arguments, response, verdict, evidence):
    found = make_constraint(id, arguments).judge(response)
    assert (found.reward, found.outcome) == (verdict, found.outcome)
    if isinstance(evidence, Evidence):
        assert found.evidence is evidence
    else:
        assert [response[a:b] for a, b in found.spans] == evidence
    assert found.outcome


def test_every_kind_is_in_the_table_four_times_with_both_verdicts():
    for id in KINDS:
        rows = [row for row in TABLE if row[0] == id]
        assert len(rows) >= 4
        assert {row[3] for row in rows} == {0, 1}


EXAMPLES = {row[0]: row[1] for row in TABLE}


@pytest.mark.parametrize("rule", ["worded", "published"])
@pytest.mark.parametrize("id", sorted(KINDS))
def test_an_empty_answer_meets_nothing(id, rule):
    for response in ("", " \n\t", "<think>all thought", "<think>x</think>\n"):
        assert make_constraint(id, EXAMPLES[id], rule=rule).judge(response).reward == 0.0


@pytest.mark.parametrize("id", sorted(KINDS))
def test_strict_implies_loose(id):
    for row in TABLE:
        if make_constraint(id, EXAMPLES[id]).judge(row[2]).reward:
            assert make_constraint(id, EXAMPLES[id], strictness="loose").judge(row[2]).reward == 1.0


HOSTILE = ["." * 10**6 + "a", "*" * 10**6, "[" * 10**6, "<<" * 10**5, "\u0301" * 10**5, "\r" * 10**6, ", " * 10**5,
           "a\ud83d\x00" * 10**5, "P.S" * 10**5, "\n \n" * 10**5, "**a" * 10**5, "* a\n" * 10**5, '"' * 10**6,
           "word " * 10**5, "A. " * 10**5, "{" * 10**6, "😀" * 10**5]  # fmt: skip


@pytest.mark.parametrize("id", sorted(KINDS))
def test_a_megabyte_of_anything_gets_a_verdict_in_time(id):
    constraint = make_constraint(id, EXAMPLES[id])
    published = make_constraint(id, EXAMPLES[id], rule="published")
    for response in HOSTILE:
        start = time.process_time()
        assert constraint.judge(response).reward in (0.0, 1.0)
        assert published.judge(response).reward in (0.0, 1.0)
        assert time.process_time() - start < 15


@pytest.mark.parametrize(
    ("id", "arguments", "message"),
    [
        ("keywords:existence", {}, "missing: keywords"),
        ("keywords:existence", {"keywords": []}, "one or more strings"),
        ("keywords:existence", {"keywords": "sun"}, "list of one or more"),
        ("keywords:existence", {"keywords": ["sun", " "]}, "not blank"),
        ("keywords:frequency", {"keyword": "x", "frequency": 1, "relation": "more than"}, "'less than', 'at least'"),
        ("keywords:frequency", {"keyword": "x", "frequency": -1, "relation": "at least"}, "whole number of at least 0"),
        ("keywords:frequency", {"keyword": "x", "frequency": True, "relation": "at least"}, "whole number"),
        ("keywords:frequency", {"keyword": "x", "frequency": None, "relation": "at least"}, "missing: frequency"),
        (
            "keywords:letter_frequency",
            {"letter": "ab", "let_frequency": 1, "let_relation": "at least"},
            "one character",
        ),
        ("length_constraints:number_words", {"num_words": 1.5, "relation": "at least"}, "whole number"),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 0}, "at least 1"),
        ("language:response_language", {"language": "xx"}, "ISO 639-1"),
        ("punctuation:no_comma", {"keywords": ["x"]}, "takes none; it has no argument 'keywords'"),
        ("startend:end_checker", {"end_phrase": ""}, "not blank"),
    ],
)
def test_bad_arguments_are_refused_when_the_task_is_made(id, arguments, message):
    with pytest.raises(TaskError, match=message) as raised:
        make_task(prompt="x", instruction_id_list=[id], kwargs=[arguments])
    assert id in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"instruction_id_list": []}, TaskError, "one or more ids"),
        ({"instruction_id_list": "punctuation:no_comma"}, TaskError, "for that one alone give"),
        ({"instruction_id_list": [[]]}, TaskError, "must be a list of texts"),
        (
            {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [3]},
            TaskError,
            "kwargs must be a list of mappings",
        ),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"rule": "x"}]}, TaskError, "do not fit"),
        ({"instruction_id_list": ["punctuation:no_comma"], "prompt": None}, TaskError, "prompt must be text, got None"),
        ({"instruction_id_list": ["punctuation:no_comma"], "prompt": " "}, TaskError, "must not be blank"),
        ({"instruction_id_list": ["punctuation:no_comma"], "prompt": "\ud83d"}, TaskError, "half of a surrogate pair"),
        ({"instruction_id_list": ["punctuation:no_coma"]}, UnknownNameError, "Did you mean 'punctuation:no_comma'"),
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}, {}]}, TaskError, "1 instruction ids, but 2"),
        ({"instruction_id_list": ["punctuation:no_comma"], "rule": "mine"}, TaskError, "rule must be"),
        ({"instruction_id_list": ["punctuation:no_comma"], "strictness": "lax"}, TaskError, "strictness must be"),
    ],
)
def test_bad_tasks_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_task(**{"prompt": "x", **arguments})


def test_whole_numbers_may_come_as_floats_and_padding_as_none():
    task = make_task(
        prompt="x",
        instruction_id_list=["length_constraints:number_words"],
        kwargs=[{"num_words": 3.0, "relation": "at least", "keyword": None}],
    )
    assert score(task, "a b c").all_passed


def test_two_of_a_kind_are_two_rewards():
    task = make_task(
        prompt="x",
        instruction_id_list=["length_constraints:number_words"] * 2,
        kwargs=[{"num_words": 3, "relation": "at least"}, {"num_words": 6, "relation": "less than"}],
    )
    assert score(task, "a b c d e f g").rewards == {"number_words": 1.0, "number_words_2": 0.0}


def test_a_sentence_that_states_one_constraint_becomes_its_segment():
    prompt = "Write about trains. Do not use any commas. Answer within 50 words or so."
    task = make_task(prompt=prompt, instruction_id_list=["punctuation:no_comma"], kwargs=[{}])
    assert task.prompt.messages()[0]["content"] == prompt
    without = task.prompt.messages(omit={"no_comma"})[0]["content"]
    assert without == "Write about trains. Answer within 50 words or so."
    assert task.verifier("no_comma").statement(task) == "Do not use any commas."
    assert task.verifier("no_comma").reference(task) == ""


def test_a_statement_that_cannot_be_told_apart_becomes_a_hint():
    task = make_task(prompt="Write about trains without commas", instruction_id_list=["punctuation:no_comma"])
    assert task.prompt.stated == frozenset()
    assert task.verifier("no_comma").reference(task) == "Do not use any commas."


@pytest.fixture(scope="module")
def ifeval_file():
    return (
        Path(importlib.util.find_spec("eval_framework").origin).parent
        / "tasks"
        / "ifeval"
        / "data"
        / "input_data.jsonl"
    )


def test_all_of_ifeval_loads_and_can_be_replayed(ifeval_file):
    tasks = load_jsonl(ifeval_file)
    assert len(tasks) == 541
    assert sum(len(t.verifiers) for t in tasks) == 834
    assert tasks.skipped == []
    for task in tasks:
        for verifier in task.verifiers:
            assert bool(verifier.statement(task)) != bool(verifier.reference(task))
        assert len(task.prompt.messages()[0]["content"]) > 10


def test_a_file_can_be_both_splits_of_the_environment(ifeval_file):
    env = mrtpo_envs.make("Instructions", path=str(ifeval_file), rule="published", strictness="loose")
    assert len(env.tasks("test")) == 541


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no task"),
        ("{", "line 1: Expecting property name"),
        ('{"prompt": "x"}', "line 1: missing instruction_id_list, kwargs"),
        ('{"prompt": "x", "instruction_id_list": ["a:b"], "kwargs": [{}]}', "line 1: unknown instruction id 'a:b'"),
        ('\n{"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": 3}', "line 2"),
        ("[1]", "line 1: a line is an object with fields, got list"),
        ("[" * 100_000, "line 1: maximum recursion depth"),
        (
            '{"prompt": null, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}',
            "line 1: .*prompt must be text",
        ),
        (
            '{"prompt": "x", "instruction_id_list": ["length_constraints:number_words"], '
            '"kwargs": [{"num_words": Infinity, "relation": "at least"}]}',
            "line 1: .*do not fit",
        ),
        (
            '{"key": 7, "prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}\n' * 2,
            "line 2: its key '7' is that of line 1 too",
        ),
    ],
)
def test_a_bad_file_names_line_and_cause(tmp_path, content, message):
    path = tmp_path / "tasks.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load_jsonl(path)


def test_bad_lines_can_be_left_out_and_are_told(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"prompt": "x", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}\nnot json\n')
    tasks = load_jsonl(path, skip_bad=True)
    assert len(tasks) == 1
    assert [number for number, _ in tasks.skipped] == [2]
    for path in (tmp_path / "missing.jsonl", tmp_path, "x" * 5000, "a\0b", "~nobody-of-this-name/x"):
        with pytest.raises(DataError, match="cannot read"):
            load_jsonl(path)


# generated tasks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("kinds", ["easy", "all"])
def test_every_generated_task_can_be_met(kinds, split):
    generate = TaskGenerator(kinds=kinds, split=split, seed=7)
    for index in range(400):
        task = generate(index)
        assert score(task, witness(task)).all_passed


def test_contradictory_kinds_never_meet():
    generate = TaskGenerator(kinds="all", seed=1)
    for index in range(500):
        kinds = generate(index).metadata["kinds"]
        assert not any(frozenset((a, b)) in CONFLICTS for a in kinds for b in kinds if a != b)


def test_each_generated_constraint_has_a_segment_that_omission_removes():
    task = TaskGenerator(n_constraints=3)(5)
    text = task.prompt.messages()[0]["content"]
    for verifier in task.verifiers:
        without = task.prompt.messages(omit={verifier.name})[0]["content"]
        assert verifier.statement(task) in text
        assert verifier.statement(task) not in without
        assert verifier.reference(task) == ""


def test_numbers_of_constraints_are_kept():
    assert {len(TaskGenerator(n_constraints=3, kinds="all")(i).verifiers) for i in range(200)} == {3}
    assert {len(TaskGenerator()(i).verifiers) for i in range(300)} == {1, 2, 3, 4, 5}


def test_train_and_test_share_no_topic_word_phrase_or_letter():
    for pool in (TOPICS, KEYWORDS, END_PHRASES, LETTERS):
        assert not set(pool["train"]) & set(pool["test"])
        assert len(set(pool["train"])) == len(pool["train"])
    prompts = {split: {TaskGenerator(split=split)(i).prompt.text for i in range(500)} for split in ("train", "test")}
    assert not prompts["train"] & prompts["test"]


def test_seeds_and_indices_give_different_tasks():
    texts = {TaskGenerator(seed=s)(i).prompt.text for s in range(3) for i in range(200)}
    assert len(texts) > 590


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kinds": "hard"}, ConfigError, "'easy', 'all' or a list"),
        ({"kinds": []}, ConfigError, "'easy', 'all' or a list"),
        ({"kinds": ["punctuation:no_comm"]}, UnknownNameError, "Did you mean"),
        ({"kinds": ["format:emoji"]}, ConfigError, "checked but not generated"),
        ({"n_constraints": 0}, ConfigError, "from 1 to 5"),
        ({"n_constraints": [2, 9]}, ConfigError, "from 1 to 5"),
        ({"n_constraints": [1, 2, 3]}, ConfigError, "the smallest and the largest"),
        ({"n_constraints": []}, ConfigError, "the smallest and the largest"),
        ({"train_size": 0}, ConfigError, "train_size must be at least 1"),
        ({"kinds": ["punctuation:no_comma"], "n_constraints": 2}, ConfigError, "only 1 of the chosen kinds"),
        ({"test_path": "x"}, ConfigError, "test_path goes with path"),
    ],
)
def test_impossible_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        mrtpo_envs.make("Instructions", **options)


def test_every_kind_of_ifeval_is_generated():
    assert set(EASY) | set(HARD) == set(DRAW)
    assert len(DRAW) == 25


def test_sentences_are_where_a_reader_sees_them():
    text = 'Dr. Lee paid $3.50, i.e. little. "Really?" she said... J. Doe left!\n\n1. First item\n2. Second. Third'
    assert [text[a:b] for a, b in sentences(text)] == [
        "Dr. Lee paid $3.50, i.e. little.", '"Really?"', "she said...", "J. Doe left!",
        "1. First item", "2. Second.", "Third",
    ]  # fmt: skip
