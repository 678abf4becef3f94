"""Tool calls: reading, rewards, evidence, hostile input, and the cases from public bug reports."""

import ast
import importlib.util
import json
import sys
import time
import warnings
from pathlib import Path

import pytest

import mrtpo_envs
from mrtpo_envs import Evidence, TaskError, UnknownNameError, score
from mrtpo_envs.tool_calls import FORMATS, KINDS, Expected, TaskGenerator, find_calls, make_task, solution
from mrtpo_envs.tool_calls.expected import assignment, same
from mrtpo_envs.tool_calls.generator import catalogue, tools_of
from mrtpo_envs.tool_calls.schemas import UnusableSchema, check_arguments, type_name

CASES = Path(__file__).parents[1] / "cases" / "verifier_cases.jsonl"
TOOL_CASES = [row for row in map(json.loads, CASES.read_text().splitlines()) if row["domain"] == "tool"]


def case_task(case, rewards):
    given = case["task"]
    options = {"format": given["template"], "lenient": given.get("lenient", False)}
    if given["template"] == "think":
        return make_task(question="Q", tools=[], expected=[], rewards=["format"], prefilled=True)
    if given["template"] == "bfcl_python":
        own = {"functions": given["functions"], "answers": given["possible_answer"], "category": given["category"]}
        calls = [
            {"name": n, "arguments": {k: v[0] for k, v in p.items() if v[0] != ""}}
            for answer in given["possible_answer"]
            for n, p in answer.items()
        ]
        tools = given["functions"]
        return make_task(
            question="Q", tools=tools, expected=calls, rewards=rewards, privileged={"bfcl": own}, **options
        )
    if given["template"] == "toolrl":
        gold = find_calls(given["ground_truth"], "toolrl")
        calls = [{"name": c.name, "arguments": c.arguments} for c in gold.calls]
        tools = []
        if "tools_text" in given:
            tools = [{"name": calls[0]["name"], "parameters": {"properties": json.loads(given["tools_text"])}}]
        return make_task(question="Q", tools=tools, expected=calls, rewards=rewards, **options)
    calls = given["gold_calls"]
    rewards = [r for r in rewards if not r.startswith("toolrl") and (calls is not None or r in ("format", "schema"))]
    return make_task(question="Q", tools=given["tools"], expected=calls, rewards=rewards, **options)


KNOWN = {
    "format", "n_calls", "schema_valid", "call_match", "lenient_call_match", "bfcl_ast", "bfcl_reference", "toolrl_format",
    "toolrl_correctness", "toolrl_correctness_reference", "irrelevance", "attempted_call", "verdict", "truncated",
    "gold_schema_valid", "error", "network_requests", "crash", "finishes_within_s", "code_executed",
}  # fmt: skip


@pytest.mark.parametrize("case", TOOL_CASES, ids=lambda c: c["id"])
def test_cases_from_bug_reports(case):
    expected, response = case["expected"], case["output"]
    assert not set(expected) - KNOWN
    rewards = ["format", "tool", "schema", "match", "bfcl"]
    if case["task"]["template"] == "toolrl":
        rewards += ["toolrl_format", "toolrl_correctness"]
    task = case_task(case, rewards)
    start = time.perf_counter()
    found = score(task, response)
    assert time.perf_counter() - start < expected.get("finishes_within_s", 3)
    calls = find_calls(response, task.metadata["format"], prefilled=task.metadata["prefilled"])
    got = {
        "format": lambda: found["format"].reward,
        "n_calls": lambda: len(calls.calls),
        "attempted_call": lambda: found["format"].details["attempted"],
        "schema_valid": lambda: found["schema"].reward,
        "gold_schema_valid": lambda: 0 if found["schema"].reward is None else 1,
        "call_match": lambda: found["match"].reward,
        "irrelevance": lambda: found["tool"].reward,
        "bfcl_ast": lambda: found["bfcl"].reward,
        "toolrl_format": lambda: found["toolrl_format"].reward,
        "toolrl_correctness": lambda: found["toolrl_correctness"].reward,
        "lenient_call_match": lambda: (
            score(case_task({**case, "task": {**case["task"], "lenient": True}}, ["match"]), response)["match"].reward
        ),
    }
    for key, value in expected.items():
        if key in got:
            assert got[key]() == value, (key, found.to_dict())


# fmt: off
WEATHER = {"name": "get_weather", "description": "Weather.", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}}
# fmt: on


def weather(format="hermes", expected=({"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}},), **options):
    return make_task(question="How is Oslo?", tools=[WEATHER], expected=list(expected), format=format, **options)


def test_the_think_case_needs_its_prefilled_prompt():
    [case] = [c for c in TOOL_CASES if c["task"]["template"] == "think"]
    task = make_task(question="Q", tools=[], expected=[], rewards=["format"])
    assert score(task, case["output"])["format"].reward == 0


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_reads_what_it_writes(format):
    calls = [
        {"name": "get_weather", "arguments": {"city": "O's\"lo\n</tool_call> \\ é 😀", "days": 2}},
        {"name": "get_weather", "arguments": {"city": "]); }{", "days": 10}},
        {"name": "get_weather", "arguments": {"city": ""}},
    ]
    for n in range(4):
        task = weather(format, calls[:n])
        response = solution(task)
        assert score(task, response).all_passed, response
        found = find_calls(response, format)
        assert [(c.name, c.arguments) for c in found.calls] == [(c["name"], c["arguments"]) for c in calls[:n]]
        for call in found.calls:
            assert response[slice(*call.name_span)] == "get_weather"
            for key in call.members:
                member = call.member(response, key)
                assert response[member.key_start : member.key_end].strip("\"'") == key
                assert json.loads(json.dumps(member.value)) == call.arguments[key]


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_answer_is_never_a_whole_one(format):
    task = weather(format)
    response = solution(task)
    for end in range(len(response)):
        cut = score(task, response[:end])
        assert not cut.all_passed, response[:end]
        assert cut["tool"].reward == 0 or end > response.rindex("2"), response[:end]


CALL = '{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}'
# fmt: off
NOT_WELL_FORMED = [  # format, response, calls that are read all the same
    ("hermes", f"<tool_call>{CALL}</tool_call> Done.", 1),
    ("hermes", f"<tool_call>{CALL}</tool_call>, <tool_call>{CALL}</tool_call>", 2),
    ("hermes", f"<tool_call>{CALL}", 0),
    ("hermes", f"<tool_call>{CALL}</tool_call><tool_call>", 1),
    ("hermes", f"{CALL}</tool_call>", 0),
    ("hermes", f"<tool_call>[{CALL}]</tool_call>", 0),
    ("hermes", '<tool_call>{"name": "f", "arguments": {}, "id": 1}</tool_call>', 1),
    ("hermes", '<tool_call>{"name": 3, "arguments": {}}</tool_call>', 0),
    ("hermes", '<tool_call>{"arguments": {}}</tool_call>', 0),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', 0),
    ("hermes", "", 0),
    ("hermes", "  \n", 0),
    ("hermes", "<think>I wonder", 0),
    ("json", CALL, 0),
    ("json", f"[{CALL}", 1),
    ("json", f"[{CALL},]", 1),
    ("json", f"[{CALL}] ok", 1),
    ("json", "[]", 0),
    ("json", f"Here: [{CALL}]", 0),
    ("mistral", f"[TOOL_CALLS] {CALL}", 0),
    ("mistral", f"Well [TOOL_CALLS] [{CALL}]", 0),
    ("llama3_json", '{"name": "f", "parameters": {}} {"name": "f", "parameters": {}}', 1),
    ("llama3_json", '{"name": "f", "arguments": {}}', 0),
    ("llama3_pythonic", "[f(a=1)", 1),
    ("llama3_pythonic", "[f(1)]", 0),
    ("llama3_pythonic", "[f(a=b)]", 0),
    ("llama3_pythonic", "[f(a=1+1)]", 0),
    ("llama3_pythonic", "[f(a=1, a=2)]", 0),
    ("llama3_pythonic", "[f(**{'a': 1})]", 0),
    ("llama3_pythonic", "[f(a=g())]", 0),
    ("llama3_pythonic", "[f(a='x' 'y')]", 0),
    ("llama3_pythonic", "[f(a=f'{1}')]", 0),
    ("llama3_pythonic", "[f(a={1: 2})]", 0),
    ("llama3_pythonic", "[f(a=1e999)]", 0),
    ("llama3_pythonic", "f(a=1)", 0),
    ("bfcl_python", "I call [f(a=1)]", 0),
    ("toolrl", '<tool_call>\n{"name": "f", "parameters": {}}\n</tool_call>', 1),
    ("toolrl", "<think> t </think>\nIt is warm.", 0),
    ("toolrl", '<think> t </think>\n<tool_call>\n</tool_call>', 0),
]
# fmt: on


@pytest.mark.parametrize(("format", "response", "calls"), NOT_WELL_FORMED)
def test_what_is_not_letter_by_letter_has_no_format(format, response, calls):
    found = find_calls(response, format)
    assert not found.well_formed
    assert len(found.calls) == calls
    task = weather(format, expected=[])
    assert score(task, response)["format"].reward == 0
    if response.strip() and "wonder" not in response and "warm" not in response:
        assert found.calls or found.unread, "an attempt is no abstention"
        assert score(task, response)["tool"].reward == 0


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        ("[f(a=1, b=-2.5, c='x', d=\"y\", e=[1, 'a'], g=(1, 2), h={'k': None}, i=True)]", 1),
        ("[a.b.c(x=1), f()]", 1),
        ("[f(a='''it's\ntwo lines''', )]", 1),
        ("[ f( a = .5 , b=1e3 ) ]", 1),
        ("Nothing fits.", 1),
    ],
)
def test_python_literals_that_are_read(response, reward):
    assert find_calls(response, "bfcl_python").well_formed == reward


def test_escapes_mean_what_python_says():
    text = r"'\n\t\x41\u00e9\101\N{BULLET}\q\\\''"
    [call] = find_calls(f"[f(a={text})]", "bfcl_python").calls
    assert call.arguments["a"] == "\n\tAéA•\\q\\'"


@pytest.mark.parametrize("text", [r"'\x'", r"'1\u'", r"'\un'", r"'\U00110000'", r"'\N{NO SUCH}'"])
def test_broken_escapes_are_no_literal(text):
    with pytest.raises(SyntaxError):
        ast.literal_eval(text)
    assert find_calls(f"[f(a={text})]", "bfcl_python").unread == 1


# Rewards


def test_no_call_is_right_where_none_is_due_and_worth_nothing_where_one_is():
    assert score(weather(expected=[]), "I cannot do that.").rewards == {"format": 1.0, "tool": 1.0}
    assert score(weather(), "I cannot do that.").rewards == dict.fromkeys(
        ("format", "tool", "schema", "arguments"), 0.0
    )
    assert score(weather(expected=[]), solution(weather())).rewards == {"format": 1.0, "tool": 0.0}


# fmt: off
ATTEMPTS = [
    ("hermes", '{"name": "get_weather", "arguments": {"city": "Oslo"}}'),
    ("hermes", '```json\n{"name": "get_weather", "arguments": {}}\n```'),
    ("hermes", "[get_weather(city='Oslo')]"),
    ("hermes", "I call get_weather(city='Oslo')."),
    ("hermes", '<toolcall>{"x": 1}</toolcall>'),
    ("llama3_json", 'Sure: { "name": "get_weather", "parameters": {}}'),
    ("llama3_json", "{'name': 'get_weather', 'parameters': {}}"),
    ("bfcl_python", "```python\nget_weather(city='Oslo')\n```"),
    ("bfcl_python", '<tool_call>{"name": "f", "arguments": {}}</tool_call>'),
    ("mistral", '<tool_call>{ "name": "get_weather", "parameters": {}}</tool_call>'),
    ("json", '{"arguments": {}, "name": "get_weather"}'),
    ("toolrl", '<think> t </think>\n<response> {"name": "get_weather", "parameters": {}} </response>'),
]
# fmt: on


@pytest.mark.parametrize(("format", "response"), ATTEMPTS)
def test_a_call_in_another_notation_is_no_abstention(format, response):
    task = weather(format, expected=[], rewards=["format", "tool", "match", "bfcl"])
    found = score(task, response)
    assert set(found.rewards.values()) == {0}
    assert found["format"].details["attempted"]


@pytest.mark.parametrize("response", ["\u200b", ".", "...", "_"])
def test_an_answer_that_says_nothing_is_no_reply(response):
    assert score(weather(expected=[]), response).rewards == {"format": 0, "tool": 0}


@pytest.mark.parametrize(
    "response", ["The weather tool gets no weather there.", 'His "name" is Ann: see [1] (page 3).']
)
def test_words_that_are_no_call_are_a_reply(response):
    assert score(weather(expected=[]), response).all_passed


def test_lenient_reading_forgives_no_second_attempt_and_points_at_the_answer():
    task = weather(lenient=True, rewards=["format", "tool", "arguments", "match"])
    call = "<tool_call>{'name': 'get_weather', 'arguments': {'city': 'Oslo', 'days': 2}}</tool_call>"
    assert score(task, call).rewards == {"format": 0, "tool": 1, "arguments": 1, "match": 1}
    assert score(task, call + "<tool_call>{'name': 'g'")["match"].reward == 0
    assert score(task, "Oh dear " + call.replace("Oslo", "Rome"))["arguments"].spans[0].end > len(call)
    start = time.perf_counter()
    for text in ('{"name":' * 12375, '{"name":' * 60 + "[" + "1," * 49500):
        find_calls(text, "hermes", lenient=True)
    assert time.perf_counter() - start < 2


def test_toolrls_format_knows_a_prompt_that_ends_inside_the_reasoning():
    options = {"format": "toolrl", "rewards": "toolrl", "prefilled": True}
    task = weather(expected=[{"name": "get_weather", "arguments": {"city": "Oslo"}}], **options)
    assert score(task, solution(task)).all_passed
    assert score(task, "<think>" + solution(task))["toolrl_format"].reward == 0


def hermes(*calls):
    return "\n".join(f"<tool_call>\n{json.dumps(c)}\n</tool_call>" for c in calls)


def test_parallel_calls_are_a_multiset_and_matched_for_the_most():
    one, two = ({"name": "get_weather", "arguments": {"city": c, "days": d}} for c, d in (("Oslo", 1), ("Rome", 2)))
    task = weather(expected=[one, two], rewards=["tool", "arguments", "match"])
    assert score(task, hermes(two, one)).all_passed
    twice = score(task, hermes(one, one))
    assert twice["tool"].reward == 1
    assert twice["arguments"].reward == pytest.approx(0.5)
    assert score(task, hermes(one, two, two)).rewards == {"tool": 2 / 3, "arguments": 2 / 3, "match": 0}
    ordered = weather(expected=[one, two], rewards=["match"], ordered=True)
    assert score(ordered, hermes(one, two)).all_passed
    assert not score(ordered, hermes(two, one)).all_passed


def test_a_call_that_cannot_be_read_is_one_too_many():
    task = weather(rewards=["tool", "arguments", "match"])
    found = score(task, solution(task) + "<tool_call>{oops</tool_call>")
    assert found.rewards == {"tool": 0.5, "arguments": 0.5, "match": 0}


def spans(found, name, response):
    return [response[slice(*s)] for s in found[name].spans]


def test_evidence_is_the_wrong_name_key_or_value():
    task = weather()
    wrong = hermes({"name": "get_wether", "arguments": {"city": "Oslo", "days": 2}})
    found = score(task, wrong)
    assert (
        spans(found, "tool", wrong)
        == spans(found, "schema", wrong)
        == spans(found, "arguments", wrong)
        == ["get_wether"]
    )
    wrong = hermes({"name": "get_weather", "arguments": {"city": "days", "days": 0, "unit": "days"}})
    found = score(task, wrong)
    assert spans(found, "arguments", wrong) == ['"days"', "0", '"unit"']
    assert sorted(spans(found, "schema", wrong)) == ['"unit"', "0"]
    assert wrong.index('"days"') == found["arguments"].spans[0].start
    missing = hermes({"name": "get_weather", "arguments": {"city": "Oslo"}})
    assert score(task, missing)["arguments"].evidence is Evidence.ABSENT
    missing = hermes({"name": "get_weather", "arguments": {"days": 2}})
    assert score(task, missing)["schema"].evidence is Evidence.ABSENT
    assert "'city' is a required property" in score(task, missing)["schema"].outcome


def test_evidence_of_the_format_is_what_stands_round_the_calls():
    task = weather()
    response = "Sure thing, let me have a look at that.\n" + solution(task)
    assert [s.strip() for s in spans(score(task, response), "format", response)] == [
        '<tool_call>\n{"name": "',
        "}\n</tool_call>",
    ]


@pytest.mark.parametrize("format", ["hermes", "bfcl_python"])
def test_evidence_reaches_into_nested_values(format):
    tool = {"name": "f", "parameters": {"properties": {"a": {"type": "object"}}}}
    due = {"name": "f", "arguments": {"a": {"x": [1, {"y": "right"}], "z": 2}}}
    task = make_task(question="Q", tools=[tool], expected=[due], format=format)
    response = solution(task).replace("right", "wrong")
    assert [s.strip("\"'") for s in spans(score(task, response), "arguments", response)] == ["wrong"]


def test_references_name_what_is_checked_and_outcomes_never_quote_it():
    task = weather(expected=[{"name": "get_weather", "arguments": {"city": "Ouagadougou"}}])
    assert task.verifier("tool").reference(task) == "the right tool is get_weather."
    assert task.verifier("schema").reference(task) == "get_weather takes city (string), days (integer, optional)."
    assert "Ouagadougou" in task.verifier("arguments").reference(task)
    assert "tool_call" in task.verifier("format").statement(task)
    found = score(task, hermes({"name": "get_weather", "arguments": {"city": "Rome"}}))
    assert "Ouagadougou" not in json.dumps(found.to_dict()) + repr(task) + task.prompt.text


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [(1, 1.0, True), (True, 1, False), ("1", 1, False), ([1, [2]], (1, [2.0]), True), ({"a": None}, {"a": False}, False),
     ({"a": 1}, {"a": 1, "b": 2}, False), (None, None, True), ("é", "e\u0301", False), ([1, 2], [2, 1], False)],
)  # fmt: skip
def test_values_are_the_same_under_json_types(one, two, equal):
    assert same(one, two) is equal
    assert same(two, one) is equal


def test_assignments_have_the_greatest_total():
    import itertools
    import random

    draw = random.Random(0)
    for _ in range(200):
        rows, columns = draw.randint(1, 5), draw.randint(1, 5)
        weights = [[draw.choice((0.0, 0.5, draw.random())) for _ in range(columns)] for _ in range(rows)]
        found = assignment(weights)
        taken = [j for j in found if j is not None]
        assert len(taken) == len(set(taken)) == min(rows, columns)
        padded = [row + [0.0] * max(0, rows - columns) for row in weights]
        best = max(
            sum(padded[i][j] for i, j in enumerate(p)) for p in itertools.permutations(range(len(padded[0])), rows)
        )
        assert sum(weights[i][j] for i, j in enumerate(found) if j is not None) == pytest.approx(best)


# Schemas


@pytest.mark.parametrize(
    ("given", "name"),
    [("dict", "object"), ("float", "number"), ("tuple", "array"), ("str, optional", "string"), ("List[int]", "array"),
     ("any", None), ("Optional[str]", "string"), ("ArrayList", "array"), ("Boolean", "boolean"), ("frobnicate", None),
     ("Dict[str, float]", "object"), ("HashMap<String, Object>", "object"), ("Bigint", "integer")],
)  # fmt: skip
def test_type_names_become_json_schemas(given, name):
    assert type_name(given) == name


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"type": "string", "format": "date-time"}, "2025-01-31T10:00:00Z", True),
        ({"type": "string", "format": "date-time"}, "2025-01-31", False),
        ({"type": "string", "format": "date"}, "2025-02-29", False),
        ({"type": "string", "format": "email"}, "nobody", False),
        ({"type": "integer"}, 1.0, True),
        ({"type": "integer"}, True, False),
        ({"type": "number", "multipleOf": 0.1}, 10**299, True),
        ({"type": "string", "pattern": "^[a-z]+$"}, "abc", True),
        ({"type": "string", "pattern": "^a$"}, "a\\n", False),
        ({"type": "string", "pattern": r"^\$[$]$"}, "$$", True),
        ({"type": "string", "pattern": r"^\p{L}+$"}, "été", True),
        ({"type": "number", "multipleOf": 0.01}, 19.99, True),
        ({"type": "number", "multipleOf": 0.01}, 19.999, False),
        ({"type": "string", "format": "time"}, "12:30:00Z", True),
        ({"type": "string", "format": "time"}, "12:30:00", False),
        ({"type": "string", "format": "date-time"}, "2016-12-31t23:59:60z", True),
        ({"type": "string", "format": "date-time"}, "2024-W01-1T00:00:00Z", False),
        ({"type": "string", "format": "date-time"}, "2024-02-30T00:00:00Z", False),
        ({"uniqueItems": True}, [1, 1.0], False),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}, {"a": 2}], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}}, {"a" * 40 + "!": 1}, True),
        ({"$ref": "#/$defs/tree"}, {"child": {"child": {"child": {}}}}, True),
        ({"$ref": "#/$defs/tree"}, {"child": {"child": {"child": 1}}}, False),
        ({"type": "array", "items": {"type": "string"}}, ("a", "b"), True),
    ],
)
def test_arguments_are_checked_by_json_schema(schema, value, valid):
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/tree"}}}
    parameters = {"type": "object", "properties": {"x": schema}, "$defs": {"tree": tree}}
    assert (check_arguments(parameters, {"x": value}) == []) is valid


def test_a_pattern_that_is_none_gives_no_verdict():
    with pytest.raises(UnusableSchema, match="is none"):
        check_arguments({"type": "object", "properties": {"x": {"pattern": "(unclosed"}}}, {"x": "abc"})


def test_schemas_that_take_long_do_not():
    start = time.perf_counter()
    keys = {"a" * 40 + "!" * i: 1 for i in range(30)}
    slow = {"type": "object", "properties": {"x": {"patternProperties": {"^(a|aa)+$": {"type": "integer"}}}}}
    [fault] = check_arguments(slow, {"x": keys})
    assert "too long" in fault.reason
    unique = {"type": "object", "properties": {"x": {"uniqueItems": True}}}
    assert check_arguments(unique, {"x": [{"a": i} for i in range(9000)]}) == []
    assert check_arguments(unique, {"x": [*range(9000), "s"]}) == []
    assert time.perf_counter() - start < 2


def test_an_old_draft_refuses_parameters_that_it_does_not_name_too():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}]}
    for draft in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        assert check_arguments({"$schema": draft, **schema}, {"a": 1}) == []
        assert check_arguments({"$schema": draft, **schema}, {"a": 1, "zzz": 2})[0].keys == ("zzz",)


def test_the_draft_is_the_one_that_the_schema_names():
    tuples = {
        "items": [{"type": "integer"}],
        "additionalItems": False,
        "type": "array",
    }  # draft 7's way; 2020-12 has prefixItems
    seven = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"x": tuples}}
    assert check_arguments(seven, {"x": [1]}) == []
    assert check_arguments(seven, {"x": [1, 2]})
    newer = {"type": "object", "properties": {"x": {"prefixItems": [{"type": "integer"}], "items": False}}}
    assert check_arguments(newer, {"x": [1]}) == []
    assert check_arguments(newer, {"x": [1, 2]})


def test_a_parameter_that_no_schema_names_is_refused_unless_the_schema_says_so():
    assert check_arguments({"type": "object", "properties": {}}, {"x": 1})[0].keys == ("x",)
    assert check_arguments({"type": "object", "properties": {}, "additionalProperties": True}, {"x": 1}) == []
    some = {"type": "object", "allOf": [{"properties": {"x": {"type": "integer"}}}]}
    assert check_arguments(some, {"x": 1}) == []
    assert check_arguments(some, {"x": 1, "y": 1})


@pytest.mark.parametrize(
    "reference", ["#", "#/$defs/a", "#/properties/x", "http://127.0.0.1:9/x", "file:///etc/passwd"]
)
def test_a_reference_that_leads_nowhere_gives_no_verdict(reference):
    tool = {
        "name": "f",
        "parameters": {"properties": {"x": {"$ref": reference}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    }
    task = make_task(question="Q", tools=[tool], expected=[{"name": "f", "arguments": {"x": 1}}])
    found = score(task, solution(task))
    assert found["arguments"].reward == 1
    assert found["schema"].reward in (
        None,
        0.0,
    )  # "#" is a schema of objects, so 1 fails it and so does the task's own call
    assert found["schema"].reward is None


# Hostile input

BAD = {
    "brackets": "[" * 1_000_000,
    "braces": '{"a":' * 100_000,
    "calls": "<tool_call>" * 9_000,
    "many calls": hermes(*[{"name": "f", "arguments": {}}] * 1000),
    "deep": '<tool_call>{"name": "f", "arguments": ' + '{"a":' * 500 + "1" + "}" * 500 + "}</tool_call>",
    "digits": '<tool_call>{"name": "f", "arguments": {"a": ' + "9" * 50_000 + "}}</tool_call>",
    "float": '<tool_call>{"name": "f", "arguments": {"a": 1e99999}}</tool_call>',
    "surrogate": '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>',
    "raw surrogate": '<tool_call>{"name": "f", "arguments": {"a": "\ud800"}}</tool_call>',
    "nul": '<tool_call>{"name": "f\0", "arguments": {"\0": "\0"}}</tool_call>',
    "quotes": '<tool_call>{"name": "' + '\\"' * 40_000,
    "python quotes": "[f(a='" + "\\'" * 40_000,
    "triple": "[f(a=" + "'''" * 20_000,
    "signs": "[f(a=" + "-" * 50_000 + "1)]",
    "spaces": "[f(a=" + " " * 90_000 + "1)]",
    "names": "[" + "a." * 40_000 + "b(c=1)]",
    "python deep": "[f(a=" + "[" * 50_000,
    "python calls": "[" + "f(), " * 15_000 + "f()]",
    "parentheses": "[f(a=" + "(" * 60 + "1" + ")" * 60 + ")]",
    "digits in python": "[f(a=" + "9" * 90_000 + ")]",
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("format", ["hermes", "json", "bfcl_python", "toolrl"])
def test_hostile_answers_get_a_verdict_in_time(format, name):
    rewards = ["format", "tool", "schema", "arguments", "bfcl"] + (
        ["toolrl_format", "toolrl_correctness"] * (format == "toolrl")
    )
    task = weather(format, rewards=rewards)
    start = time.perf_counter()
    for response in (BAD[name], "<think>x</think>\n" + BAD[name]):
        found = score(task, response)
        assert not found.all_passed
        assert None not in found.rewards.values()
        json.dumps(found.to_dict())
    assert time.perf_counter() - start < 2


def test_nothing_that_is_read_is_run(tmp_path):
    mark = tmp_path / "ran"
    for text in (f"[f(a=open({str(mark)!r}, 'w'))]", f"[f(a=__import__('os').system('touch {mark}')*0+6)]"):
        for lenient in (False, True):
            find_calls(text, "bfcl_python", lenient=lenient)
    assert not mark.exists()


# Bad tasks


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"format": "hermez"}, UnknownNameError, "hermes"),
        ({"rewards": ["tools"]}, UnknownNameError, "tool"),
        ({"rewards": "all"}, UnknownNameError, "default"),
        ({"rewards": []}, TaskError, "one or more"),
        ({"rewards": "toolrl"}, TaskError, "format='toolrl'"),
        ({"expected": None}, TaskError, "empty list"),
        ({"expected": {"name": "get_weather"}}, TaskError, "expected must be a list"),
        ({"expected": [{"nam": "get_weather"}]}, TaskError, "expected call"),
        ({"expected": [{"name": "g", "arguments": {}}]}, TaskError, "the tools are"),
        ({"expected": [{"name": "get_weather", "arguments": [1]}]}, TaskError, "must be an object"),
        ({"tools": [WEATHER, WEATHER]}, TaskError, "two tools"),
        (
            {"tools": [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"minimum": "x"}}}}]},
            TaskError,
            "no JSON",
        ),
        ({"tools": [{"name": "f", "parameters": {"type": "string"}}]}, TaskError, "of type object"),
        ({"tools": [{"name": "f", "parameters": [1]}]}, TaskError, "must be a JSON Schema"),
        ({"tools": ["f"]}, TaskError, "tools must be a list"),
        ({"tools": None}, TaskError, "tools"),
        ({"question": 5}, TaskError, "question"),
        ({"question": ["x"]}, TaskError, "question must be text or a list"),
        ({"question": [{"content": "x"}, {"role": "user", "content": "x"}]}, TaskError, "user's words"),
        ({"rewards": [["a"]]}, TaskError, "rewards"),
        ({"format": ["hermes"]}, TaskError, "format"),
        ({"expected": [{"name": "get_weather", "arguments": {"city": float("nan")}}]}, TaskError, "get_weather"),
        ({"expected": [{"name": "get_weather", "arguments": {"city": b"x"}}]}, TaskError, "cannot be written"),
        ({"expected": [{"name": "get_weather", "arguments": {"city": "\ud800"}}]}, TaskError, "cannot be written"),
        ({"expected": [{"name": "get_weather", "arguments": {"city": {1: 2}}}]}, TaskError, "is another one"),
        (
            {"tools": [], "expected": [{"name": "get-x", "arguments": {}}], "format": "bfcl_python"},
            TaskError,
            "identifiers",
        ),
        ({"question": " "}, TaskError, "user's words"),
        ({"question": [{"role": "assistant", "content": "x"}]}, TaskError, "user's words"),
    ],
)
def test_bad_tasks_are_refused_with_what_to_do(options, error, message):
    with pytest.raises(error, match=message):
        make_task(**{"question": "Q", "tools": [WEATHER], "expected": [], **options})


# Generated tasks and the environment


def test_generated_tasks_can_be_solved_and_are_the_same_every_time():
    for split in ("train", "test"):
        generate, again = TaskGenerator(split=split), TaskGenerator(split=split)
        kinds = set()
        for i in range(300):
            task = generate(i)
            kinds.add(task.metadata["kind"])
            assert score(task, solution(task)).all_passed, (task.prompt.text, solution(task))
            assert task.prompt.text == again(i).prompt.text
            assert task.metadata["ordered"] is (task.metadata["kind"] == "sequence")
            assert task.metadata["calls_due"] is (task.metadata["kind"] != "none")
        assert kinds == set(KINDS)
    assert TaskGenerator(seed=1)(0).prompt.text != TaskGenerator(seed=2)(0).prompt.text


def test_no_tool_is_in_both_splits_and_every_domain_is():
    train, test = tools_of("train"), tools_of("test")
    assert len(catalogue()) == len(train) + len(test) >= 60
    assert not {t.name for t in train} & {t.name for t in test}
    assert {t.domain for t in train} == {t.domain for t in test}


def test_every_value_that_is_due_is_in_the_words_of_the_request():
    """Strings stand there letter by letter, except dates and what an enum says in other words."""
    generate = TaskGenerator(kinds=["simple"], n_tools=1)
    for i in range(200):
        task = generate(i)
        [due] = task.privileged["expected"]
        request = task.prompt.text.rpartition("Request: ")[2]
        schema = task.metadata["parameters"][due.name]["properties"]
        for name, value in due.call["arguments"].items():
            assert "enum" in schema[name] or str(value) in request, (request, due)


def test_a_default_may_be_said_or_left_out():
    tool = {
        "name": "f",
        "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 3}}},
    }
    due = Expected("f", {"a": (1,), "b": (3,)}, frozenset({"b"}))
    task = make_task(question="Q", tools=[tool], expected=[due])
    for arguments, right in (({"a": 1}, True), ({"a": 1, "b": 3}, True), ({"a": 1, "b": 4}, False), ({"b": 3}, False)):
        assert score(task, hermes({"name": "f", "arguments": arguments})).all_passed is right


def test_toolrls_rewards_are_one_option():
    env = mrtpo_envs.make("mrtpo/ToolCalls-v0", rewards="toolrl")
    task = env.tasks()[0]
    assert task.reward_names == ["toolrl_format", "toolrl_correctness"]
    found = score(task, env.solution(task))
    assert found["toolrl_format"].reward == 1
    assert found["toolrl_correctness"].reward in (3, 0)
    assert {score(env.tasks()[i], "<think>x</think>")["toolrl_correctness"].reward for i in range(30)} == {-3, 0}


def test_bfcl_tasks_of_two_splits_share_no_set_of_tools():
    env = mrtpo_envs.make("ToolCalls", source="bfcl", format="bfcl_python", rewards="bfcl", categories="live_simple")
    sets = [{tuple(sorted(t.metadata["parameters"])) for t in env.tasks(split)} for split in ("train", "test")]
    assert not sets[0] & sets[1]
    assert all(sets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "bfc"}, "bfcl"),
        ({"source": "xlam"}, "needs path="),
        ({"path": "x"}, "takes no path"),
        ({"kinds": ["simpel"]}, "simple"),
        ({"kinds": []}, "one or more"),
        ({"n_tools": 0}, "n_tools must be"),
        ({"n_tools": (3, 2)}, "n_tools must be"),
        ({"n_tools": (1, 99)}, "n_tools must be"),
        ({"categories": ["simple_python"]}, "only source='bfcl'"),
        ({"train_size": 0}, "train_size"),
        ({"source": "bfcl", "kinds": ["none"]}, "are for source='generated'"),
        ({"format": "xml"}, "hermes"),
        ({"rewards": "everything"}, "default"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(mrtpo_envs.MrtpoError, match=message):
        mrtpo_envs.make("ToolCalls", **options).tasks()[0]


def test_bfcls_verdict_is_the_published_one_but_for_the_listed_kinds():
    """A sample of what benchmarks/bfcl_agreement.py compares."""
    spec = importlib.util.spec_from_file_location(
        "bfcl_agreement", CASES.parents[2] / "benchmarks" / "bfcl_agreement.py"
    )
    benchmark = importlib.util.module_from_spec(spec)
    sys.modules["bfcl_agreement"] = benchmark
    spec.loader.exec_module(benchmark)
    before = dict(sys.modules)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tasks = benchmark.load_bfcl(format="bfcl_python", rewards=["bfcl"])[::37]
            pairs = benchmark.pairs_of(tasks)
            found = benchmark.compare(pairs, benchmark.published())
    finally:
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
    assert len(pairs) > 2000
    assert found.unlisted == []
    agree = sum(row["agree"] for row in found.table.values())
    assert agree > 0.8 * len(pairs)
    assert agree + found.differing.total() == len(pairs)
