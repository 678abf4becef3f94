"""Tool-call data sets from files as users have them: BFCL, ToolRL, xLAM, ToolACE, API-Bank."""

import collections
import importlib.util
import json

import pytest

from mrtpo_envs import score
from mrtpo_envs.errors import DataError, MrtpoError, TaskError, UnknownNameError
from mrtpo_envs.tool_calls.formats import find_calls
from mrtpo_envs.tool_calls.literals import java_literal, java_value, javascript_literal, javascript_value
from mrtpo_envs.tool_calls.load import load_api_bank, load_toolace, load_toolrl, load_xlam
from mrtpo_envs.tool_calls.load_bfcl import BFCL_CATEGORIES, load_bfcl
from mrtpo_envs.tool_calls.tasks import solution

installed = pytest.mark.skipif(importlib.util.find_spec("bfcl_eval") is None, reason="needs bfcl-eval")


def write(path, rows, lines=False):
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    path.write_text(text, encoding="utf-8")
    return path


def due(task):
    """The calls of the solution, read back from its text."""
    return [(c.name, c.arguments) for c in find_calls(solution(task), task.metadata["format"]).calls]


def schema_of(task, name):
    return task.metadata["parameters"][name]


# BFCL ---------------------------------------------------------------------------------------------------------------

RECORDS = {
    "simple_python": 400, "simple_java": 100, "simple_javascript": 50, "multiple": 200, "parallel": 200,
    "parallel_multiple": 200, "irrelevance": 240, "live_simple": 258, "live_multiple": 1053, "live_parallel": 16,
    "live_parallel_multiple": 24, "live_irrelevance": 884, "live_relevance": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def bfcl():
    """Every single-turn record of the installed package."""
    return load_bfcl(rewards=["format", "match", "bfcl"])


@installed
def test_every_installed_record_loads(bfcl):
    assert collections.Counter(task.metadata["category"] for task in bfcl) == RECORDS
    assert tuple(RECORDS) == BFCL_CATEGORIES
    assert len({task.id for task in bfcl}) == len(bfcl)


def fits(value, accepted):
    """Whether BFCL's own notation of accepted values has this one in it."""
    if isinstance(accepted, dict):
        listed = {k: v if isinstance(v, list) else [v] for k, v in accepted.items()}
        known = all(k in listed and v in listed[k] for k, v in value.items())
        return known and all(k in value or "" in v for k, v in listed.items())
    if isinstance(accepted, list) and any(isinstance(a, dict) for a in accepted):
        return len(value) == len(accepted) and all(map(fits, value, accepted))
    return value == accepted


def read_back(value, rule, language):
    if language == "python":
        return value
    assert isinstance(value, str)
    kind, items = rule.get("type"), (rule.get("items") or {}).get("type")
    return (java_value if language == "java" else javascript_value)(value, kind, items)


@installed
def test_the_solution_of_every_record_is_what_its_ground_truth_asks_for(bfcl):
    calls_due = [task for task in bfcl if task.metadata["calls_due"]]
    assert len(calls_due) == sum(RECORDS[c] for c in RECORDS if not c.endswith("relevance"))
    wrong = []
    for task in calls_due:
        assert score(task, solution(task)).rewards["match"] == 1, task.id
        truth = task.privileged["bfcl"]
        functions = {f["name"]: f["parameters"] for f in truth["functions"]}
        made = due(task)
        assert [name for name, _ in made] == [name for answer in truth["answers"] for name in answer], task.id
        for (name, arguments), answer in zip(made, truth["answers"], strict=True):
            accepted, required = answer[name], functions[name].get("required", [])
            assert set(arguments) <= set(accepted), task.id
            assert all(k in arguments for k, v in accepted.items() if k in required or (v and "" not in v)), task.id
            for key, value in arguments.items():
                rule = functions[name]["properties"].get(key, {})
                value = read_back(value, rule, task.metadata["language"])
                options = accepted[key] or [[]]
                if not any(fits(value, option) or str(option) == value for option in options):
                    wrong.append((task.id, key))
    assert wrong == []


@installed
def test_the_solution_is_right_under_bfcls_own_rules_unless_its_ground_truth_cannot_be_met(bfcl):
    failing = {
        task.id for task in bfcl if task.metadata["calls_due"] and score(task, solution(task)).rewards["bfcl"] != 1
    }
    unmeetable = {
        "simple_java_36", "simple_java_65",  # lists of mixed types, where BFCL wants elements of one
        "simple_java_64",  # a map's value that stands outside of a list
        "live_simple_106-63-0", "live_simple_112-68-0",  # parameters that are required, but nothing is accepted
        "live_multiple_862-181-3", "live_multiple_964-207-0",  # parameters that the schema lacks
        "live_multiple_1038-265-0",  # null
    }  # fmt: skip
    assert failing <= unmeetable


def function(name, properties, required=(), **more):
    return {
        "name": name,
        "description": "d",
        "parameters": {"type": "dict", "properties": properties, "required": list(required)},
        **more,
    }


def bfcl_record(identity, functions, text="Do it."):
    return {"id": identity, "question": [[{"role": "user", "content": text}]], "function": functions}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "possible_answer").mkdir()

    def make(category, rows, answers=None):
        name = f"BFCL_v4_{category}.json"
        write(tmp_path / name, rows, lines=True)
        if answers is not None:
            write(tmp_path / "possible_answer" / name, answers, lines=True)
        return tmp_path

    return make


def python_task(folder, properties, required, truth, name="f"):
    rows = [bfcl_record("a", [function(name, properties, required)])]
    return load_bfcl(folder("simple_python", rows, [{"id": "a", "ground_truth": truth}]), "simple_python")[0]


def test_accepted_values_and_what_may_be_left_out(folder):
    types = {"n": {"type": "float"}, "unit": {"type": "string"}, "any": {"type": "any"}, "odd": {"type": "tuple"}}
    truth = [{"f": {"n": [5, 5.0], "unit": ["", "cm"], "any": ["x"], "odd": []}}]
    task = python_task(folder, types, ["n"], truth)
    assert due(task) == [("f", {"n": 5, "any": "x"})]
    assert score(task, solution(task)).all_passed
    assert schema_of(task, "f")["properties"] == {
        "n": {"type": "number"}, "unit": {"type": "string"}, "any": {}, "odd": {"type": "array"},
    }  # fmt: skip

    def reward(**arguments):
        text = json.dumps({"name": "f", "arguments": {"n": 5, "any": "x", **arguments}})
        return score(task, f"<tool_call>{text}</tool_call>").rewards["arguments"]

    assert [reward(unit="cm"), reward(n=5.0)] == [1, 1]
    assert max(reward(unit=""), reward(unit="mm"), reward(odd=[1])) < 1


def test_a_required_parameter_is_never_left_out(folder):
    types = {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "array"}}
    task = python_task(folder, types, ["a", "b", "c"], [{"f": {"a": ["", "x"], "b": [""], "c": []}}])
    assert due(task) == [("f", {"a": "x", "b": "", "c": []})]


def test_objects_are_multiplied_out_and_only_so_far(folder):
    given = {"limit": [50, 60], "sort": ["up", ""], "deep": [{"x": 1}]}
    task = python_task(
        folder, {"o": {"type": "dict"}, "l": {"type": "array"}}, [], [{"f": {"o": [given], "l": [[given]]}}]
    )
    [call] = task.privileged["expected"]
    assert {json.dumps(v, sort_keys=True) for v in call.accepted["o"]} == {
        json.dumps({"deep": {"x": 1}, "limit": limit, **sort}, sort_keys=True)
        for limit in (50, 60)
        for sort in ({"sort": "up"}, {})
    }
    assert [[v] for v in call.accepted["o"]] == list(call.accepted["l"])
    wide = {key: list(range(9)) for key in "abcdef"}
    [call] = python_task(folder, {"o": {"type": "dict"}}, [], [{"f": {"o": [wide]}}]).privileged["expected"]
    assert len(call.accepted["o"]) == 64


def test_a_gold_that_names_a_parameter_the_schema_lacks_stays(folder):
    task = python_task(folder, {"a": {"type": "string"}}, ["a"], [{"f": {"a": ["x"], "stray": [1]}}])
    assert due(task) == [("f", {"a": "x", "stray": 1})]


@pytest.mark.parametrize(
    ("category", "kind", "accepted", "literals"),
    [
        ("simple_java", {"type": "long"}, 3, ["3L"]),
        ("simple_java", {"type": "double"}, 2.0, ["2.0", "2"]),
        ("simple_java", {"type": "boolean"}, True, ["true"]),
        ("simple_java", {"type": "String"}, "it's", ["it's"]),
        ("simple_java", {"type": "Array", "items": {"type": "String"}}, "names", ["names"]),
        ("simple_java", {"type": "HashMap"}, {"a": [1, 2]}, [
            'new HashMap<>() {{ put("a", 1); }}', 'new HashMap<>() {{ put("a", 2); }}',
        ]),
        ("simple_javascript", {"type": "float"}, 4.0, ["4.0", "4"]),
        ("simple_javascript", {"type": "dict", "properties": {"a": {"type": "Boolean"}}}, {"a": [True]}, ['{"a": true}']),
    ],
)  # fmt: skip
def test_java_and_javascript_want_literals_in_strings(folder, category, kind, accepted, literals):
    rows = [bfcl_record("a", [function("f", {"p": {"description": "What.", **kind}}, ["p"])])]
    answers = [{"id": "a", "ground_truth": [{"f": {"p": [accepted]}}]}]
    [task] = load_bfcl(folder(category, rows, answers), category, rewards=["schema", "match", "bfcl"])
    assert list(task.privileged["expected"][0].accepted["p"]) == literals
    rule = schema_of(task, "f")["properties"]["p"]
    assert set(rule) == {"type", "description"}
    assert rule["type"] == "string"
    assert kind["type"] in rule["description"]
    assert {"simple_java": "Java ", "simple_javascript": "JavaScript "}[category] in rule["description"]
    assert score(task, solution(task)).all_passed


@pytest.mark.parametrize(
    ("value", "kind", "items"),
    [
        (3, "integer", None),
        (-3, "long", None),
        (3.0, "float", None),
        (1e-7, "double", None),
        (False, "boolean", None),
        ("a \"b\" it's", "String", None),
        ([1, 2], "Array", "integer"),
        ([1, 2], "Array", "long"),
        (["a", "b, c"], "Array", "String"),
        (["x"], "Array", "char"),
        ([], "Array", "integer"),
        ([1, 2], "ArrayList", "long"),
        (["say \"hi\"", "it's"], "ArrayList", "String"),
        ([], "ArrayList", "String"),
        (["a", 1, True, 0.5], "ArrayList", "any"),
        ({"a": 1, "b": "x, y", "c": True}, "HashMap", None),
        ({}, "HashMap", None),
    ],
)  # fmt: skip
def test_java_literals_read_back_to_their_values(value, kind, items):
    assert java_value(java_literal(value, kind, items), kind, items) == value


@pytest.mark.parametrize(
    ("value", "kind", "items"),
    [
        (3, "integer", None),
        (3, "Bigint", None),
        (4.0, "float", None),
        (True, "Boolean", None),
        ("/home/user", "String", None),
        ([60, 30], "array", "float"),
        (["a, b", "it's"], "array", "String"),
        ([[1, 2], [3]], "array", "array"),
        ([], "array", "any"),
        ({"a": 1, "b": ["x", "y"], "c": {"d": True}}, "dict", None),
        ({}, "dict", None),
    ],
)
def test_javascript_literals_read_back_to_their_values(value, kind, items):
    assert javascript_value(javascript_literal(value, kind, items), kind, items) == value


def test_no_call_is_due_or_any(folder):
    f = function("f", {})
    folder("irrelevance", [bfcl_record("i", [f])])
    folder("live_irrelevance", [bfcl_record("none", [])])
    root = folder("live_relevance", [bfcl_record("r", [f])])
    no_call, no_tools, any_call = load_bfcl(root, ["irrelevance", "live_irrelevance", "live_relevance"])
    assert [t.reward_names for t in (no_call, no_tools, any_call)] == [["format", "tool"]] * 2 + [["format", "schema"]]
    assert score(no_call, solution(no_call)).all_passed
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert score(no_call, call).rewards == {"format": 1, "tool": 0}
    assert score(any_call, call).all_passed
    with pytest.raises(DataError, match="no expected calls"):
        load_bfcl(root, "live_relevance", rewards=["match"])
    [judged] = load_bfcl(root, "live_relevance", rewards="bfcl")
    assert [score(judged, text).rewards["bfcl"] for text in (call, "No.")] == [1, 0]


def answer(truth, identity="a"):
    return [{"id": identity, "ground_truth": truth}]


GOOD = bfcl_record("a", [function("f", {"p": {"type": "integer"}}, ["p"])])
TRUTH = [{"f": {"p": [1]}}]


@pytest.mark.parametrize(
    ("record", "answers", "message"),
    [
        ({**GOOD, "id": None}, answer(TRUTH), "line 1: there is no field 'id'"),
        ({**GOOD, "question": []}, answer(TRUTH), "must be a list of one turn"),
        ({**GOOD, "question": GOOD["question"] * 2}, answer(TRUTH), "must be a list of one turn"),
        ({**GOOD, "question": [[{"role": "user"}]]}, answer(TRUTH), "no field 'content'; there are role"),
        ({**GOOD, "question": [[{"role": "wizard", "content": "x"}]]}, answer(TRUTH), "user's words"),
        ({**GOOD, "function": "f"}, answer(TRUTH), "'function' is not JSON"),
        ({**GOOD, "function": [1]}, answer(TRUTH), "list of objects, got int"),
        ({**GOOD, "function": [*GOOD["function"], function("f", {})]}, answer(TRUTH), "two different tools .*'f'"),
        ({**GOOD, "function": [function("f", {"p": {"type": "integer", "enum": 1}})]}, answer(TRUTH), "no JSON Schema"),
        (GOOD, answer(TRUTH, "b"), "a: there is no answer with this id"),
        (GOOD, answer([]), "'ground_truth' must be a list of calls"),
        (GOOD, answer([{"f": {"p": 1}}]), "'p' must be a list, got 1"),
        (GOOD, answer([{"f": {"p": []}}]), "'p' is required, but no value is accepted"),
        (GOOD, answer([{"f": {}, "g": {}}]), "is {function: {parameter"),
        (GOOD, answer([{"g": {}}]), r"expected calls of \['g'\], but the tools are \['f'\]"),
        ([1], answer(TRUTH), "a record is an object with fields, got list"),
    ],
)
def test_bad_bfcl_records(folder, record, answers, message):
    good = {**GOOD, "id": "good"}
    root = folder("simple_python", [record, good], [*answers, *answer(TRUTH, "good")])
    with pytest.raises(DataError, match=message):
        load_bfcl(root, "simple_python")
    assert [task.id for task in load_bfcl(root, "simple_python", skip_bad=True)] == ["good"]


def test_equal_tools_count_once(folder):
    record = {**GOOD, "function": GOOD["function"] * 2}
    assert len(load_bfcl(folder("simple_python", [record], answer(TRUTH)), "simple_python")[0].prompt.tools) == 1


def test_missing_bfcl_files(tmp_path, folder, monkeypatch):
    with pytest.raises(DataError, match=r"no file .*BFCL_v4_multiple"):
        load_bfcl(folder("simple_python", [GOOD], answer(TRUTH)), ["simple_python", "multiple"])
    (tmp_path / "possible_answer" / "BFCL_v4_simple_python.json").unlink()
    with pytest.raises(DataError, match=r"no file .*possible_answer"):
        load_bfcl(tmp_path, "simple_python")
    with pytest.raises(DataError, match="no folder"):
        load_bfcl(tmp_path / "none")
    with pytest.raises(UnknownNameError, match="Did you mean 'multiple'"):
        load_bfcl(tmp_path, "multipel")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install bfcl-eval"):
        load_bfcl()


# ToolRL -------------------------------------------------------------------------------------------------------------

SYSTEM = """You help with tools.

**Available Tools**
In your response, you can use the following tools:
1. Name: Find Trains
Description: Finds trains.
For two towns.
Parameters: {"to": {"description": "Town", "type": "string", "default": ""}, "n": {"type": "int", "default": ""}}
2. Name: book
Description: Books.
Parameters: {}

**Steps for Each Turn**
1. **Think:** first.
"""


def toolrl_record(truth, system=SYSTEM):
    prompt = [{"content": system, "role": "system"}, {"content": "**Dialogue**\n<user> Go. </user>", "role": "user"}]
    return {"data_source": "rlla", "prompt": prompt, "reward_model": {"ground_truth": truth, "style": "rule"}}


CALLS = '<tool_call>\n{"name": "Find Trains", "parameters": {"to": "Ulm"}}\n{"name": "book", "parameters": {}}\n</tool_call>'
THINK = "<think> So. </think>\n"


@pytest.mark.parametrize("ending", ["parquet", "json", "jsonl"])
def test_toolrl(tmp_path, ending):
    record, file = toolrl_record(THINK + CALLS), tmp_path / f"train.{ending}"
    if ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist([record]), file)
    else:
        write(file, [record], lines=ending == "jsonl")
    rewards = ["format", "schema", "match", "toolrl_format", "toolrl_correctness"]
    [task] = load_toolrl(file, rewards=rewards)
    assert [dict(m) for m in task.prompt.messages()] == record["prompt"]
    assert task.prompt.tools == ()
    assert due(task) == [("Find Trains", {"to": "Ulm"}), ("book", {})]
    assert schema_of(task, "Find Trains")["properties"]["n"] == {"type": "integer", "default": ""}
    assert schema_of(task, "Find Trains")["required"] == []
    assert score(task, solution(task)).all_passed
    assert score(task, solution(task).replace('{"to": "Ulm"}', '{"to": 1}')).rewards["schema"] == 0.5


@pytest.mark.parametrize(
    ("truth", "shape", "names"),
    [
        (THINK + CALLS, "call", ["Find Trains", "book"]),
        (f"{THINK}{CALLS}\n<response> Done. </response>", "both", ["Find Trains", "book"]),
        (f"{THINK}<response> Which town? </response>", "response", []),
        ("<think> I may write <tool_call> here. </think>\n<response> No. </response>", "response", []),
        ("<think> Nothing. </think>", "think", []),
    ],
)
def test_toolrl_shapes(tmp_path, truth, shape, names):
    [task] = load_toolrl(write(tmp_path / "a.json", [toolrl_record(truth)]))
    assert task.metadata["shape"] == shape
    assert [e.name for e in task.privileged["expected"]] == names


@pytest.mark.parametrize(
    "system",
    ["You have tools.", SYSTEM.replace("Parameters: {}", "Parameters: {"), SYSTEM.replace("2. Name: book", "")],
)
def test_toolrl_tools_that_cannot_be_read_leave_no_schema_reward(tmp_path, system):
    file = write(tmp_path / "a.json", [toolrl_record(THINK + CALLS, system)])
    [task] = load_toolrl(file)
    assert task.reward_names == ["format", "tool", "arguments"]
    assert score(task, solution(task)).all_passed
    with pytest.raises(DataError, match="no tools that can be read"):
        load_toolrl(file, rewards=["schema"])


def test_toolrl_in_another_format_is_refused(tmp_path):
    with pytest.raises(TaskError, match="format='toolrl'"):
        load_toolrl(tmp_path / "a.json", format="hermes")


# xLAM ---------------------------------------------------------------------------------------------------------------

WEATHER = {
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {
        "city": {"type": "str", "description": "Which city."},
        "days": {"type": "int, optional", "description": "How many."},
        "unit": {"type": "str", "description": "Which unit.", "default": "C"},
        "at": {"type": "List[Tuple[float, float]]", "description": "Places."},
        "how": {"type": "Callable[[int], int]", "description": "Unheard of."},
        "type": {"type": "Optional[Dict[str, int]]", "description": "A parameter that is called type."},
    },
}


def xlam_record(
    tools=(WEATHER,), answers=({"name": "weather", "arguments": {"city": "Ulm", "at": [], "how": 1}},), **more
):
    return {"query": "How is it in Ulm?", "tools": list(tools), "answers": list(answers), **more}


@pytest.mark.parametrize("as_text", [True, False])
def test_xlam(tmp_path, as_text):
    record = xlam_record(id=7)
    if as_text:
        record |= {key: json.dumps(record[key]) for key in ("tools", "answers")}
    [task] = load_xlam(write(tmp_path / "xlam_function_calling_60k.json", [record]))
    assert task.id == "7"
    assert task.metadata["source"] == "xlam"
    schema = schema_of(task, "weather")
    assert schema["required"] == ["city", "at", "how"]
    types = {name: rule.get("type") for name, rule in schema["properties"].items()}
    assert types == {
        "city": "string",
        "days": "integer",
        "unit": "string",
        "at": "array",
        "how": None,
        "type": "object",
    }
    assert "How is it in Ulm?" in task.prompt.text
    assert score(task, solution(task)).all_passed


def test_xlam_with_a_schema_in_its_shell_and_no_call_due(tmp_path):
    shelled = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "str"}}, "required": ["a"]}}
    openai = {"type": "function", "function": {**shelled, "name": "g"}}
    [task] = load_xlam(write(tmp_path / "a.jsonl", [xlam_record([shelled, openai], [])], lines=True))
    assert schema_of(task, "f") == schema_of(task, "g")
    assert task.privileged["expected"] == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": " "}, "'query' is empty"),
        ({"query": 1}, "'query' must be text, got int"),
        ({"tools": None}, "no field 'tools'; there are query"),
        ({"tools": "[{"}, "'tools' is not JSON"),
        ({"tools": "{}"}, "'tools' must be a list, got dict"),
        ({"tools": [{"description": "x"}]}, "no field 'name'"),
        ({"tools": [{"name": "f", "parameters": {"a": "str"}}]}, "parameter 'a' must be an object"),
        ({"tools": [{"name": "f", "parameters": 3}]}, "parameters must be"),
        ({"tools": [WEATHER, {**WEATHER, "description": "Other."}]}, "two different tools"),
        ({"answers": [{"name": "weather"}]}, "no field 'arguments'"),
        ({"answers": [{"name": "weather", "arguments": "{}"}]}, "'arguments' must be an object, got str"),
        ({"answers": [{"name": "wether", "arguments": {}}]}, "expected calls of"),
        ({"answers": '[{"name": "weather", "arguments": {"at": NaN}}]'}, "NaN is no JSON"),
        ({"answers": '[{"name": "weather", "arguments": {"city": "\\ud83d"}}]'}, "half of a surrogate pair"),
        ({"answers": '[{"name": "weather", "arguments": {"at": 1e999}}]'}, "beyond the range"),
        ({"answers": f'[{{"name": "weather", "arguments": {{"at": 1{"0" * 400}}}}}]'}, "more than 300 digits"),
        ({"answers": "[" * 99_999}, "'answers' is not JSON"),
        ({"answers": f"[{'[' * 90}{']' * 90}]"}, "nested deeper than 64 levels"),
        (
            {"tools": [{"name": "f", "parameters": {"a": json.loads('{"items": ' * 50 + "{}" + "}" * 50)}}]},
            "nested deeper",
        ),
    ],
)
def test_bad_records_say_what_is_wrong_and_can_be_left_out(tmp_path, change, message):
    file = write(tmp_path / "a.json", [xlam_record(), xlam_record() | change])
    with pytest.raises(DataError, match=f"a.json, record 2: .*{message}"):
        load_xlam(file)
    assert len(load_xlam(file, skip_bad=True)) == 1
    alone = write(tmp_path / "b.json", [xlam_record() | change])
    with pytest.raises(DataError, match=f"1 were left out, the first for this: .*{message}"):
        load_xlam(alone, skip_bad=True)


@pytest.mark.parametrize("load", [load_xlam, load_toolace, load_toolrl, load_api_bank])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", None, "there is no file"),
        ("a.json", b"", "is empty; expected a JSON list"),
        ("a.jsonl", b" \n", "is empty"),
        ("a.json", b'[{"query": "\xff"}]', "cannot read .*utf-8"),
        ("a.json", '[{"query": 1}]'.encode("utf-16"), "cannot read"),
        ("a.json", b'[{"query": "x"', "a.json is not JSON"),
        ("a.json", b"[" * 99_999, "a.json is not JSON"),
        ("a.json", b"[]", "no record"),
        ("a.json", b"[1]", "record 1: a record is an object with fields, got int"),
        ("a.json", b'"x"', "line 1: a record is an object with fields, got str"),
        ("a.json", b"[{}]", "record 1: there is no field"),
        ("a.jsonl", b'\n{"query": "x"', "line 2: not JSON"),
        ("a.json", b'[{"x": ' + b"[" * 90 + b"]" * 90 + b"}]", "record 1: nested deeper than 64 levels"),
        ("a.parquet", b"PAR1", "cannot read"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, load, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path / name)
    with pytest.raises(DataError):
        load(tmp_path / name, skip_bad=True)


def test_a_folder_is_no_file_and_a_byte_order_mark_does_no_harm(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        load_xlam(tmp_path)
    (tmp_path / "a.json").write_text(json.dumps([xlam_record()]), encoding="utf-8-sig")
    assert len(load_xlam(tmp_path / "a.json")) == 1


def test_wrong_options_are_no_bad_records(tmp_path):
    file = write(tmp_path / "a.json", [xlam_record()])
    with pytest.raises(UnknownNameError, match="hermes"):
        load_xlam(file, format="hermse", skip_bad=True)
    with pytest.raises(UnknownNameError, match="reward"):
        load_xlam(file, rewards=["formt"], skip_bad=True)
    with pytest.raises(TaskError, match="ToolRL's format only"):
        load_xlam(file, rewards="toolrl", skip_bad=True)
    [task] = load_xlam(file, format="llama3_json", rewards="bfcl", lenient=True)
    assert [task.metadata["format"], task.metadata["lenient"], task.reward_names] == [
        "llama3_json",
        True,
        ["format", "bfcl"],
    ]


# ToolACE ------------------------------------------------------------------------------------------------------------

TOOLS = [
    {
        "name": "Get Daily Forecast (v2)",
        "description": "A forecast [daily].",
        "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "required": None,
    },
    {"name": "news.top", "description": "News.", "parameters": {"type": "dict", "properties": {"n": {"type": "int"}}}},
]


def toolace_record(said, tools=TOOLS, asked=("How is Ulm?",)):
    system = (
        "You compose calls, as in [name1(key1=value1), name2(key2=value2)].\nThe current time is 2024-03-05 10:00:00."
        f"Here are functions in JSON:\n{json.dumps(tools)}. \nWrite [func1(param=value)]. No other text."
    )
    turns = [{"from": "user", "value": text} for text in asked]
    later = [{"from": "tool", "value": "[]"}, {"from": "assistant", "value": "It rains."}]
    return {"system": system, "conversations": [*turns, {"from": "assistant", "value": said}, *later]}


@pytest.mark.parametrize(
    ("said", "calls"),
    [
        ('[Get Daily Forecast (v2)(city="Ulm")]', [("Get Daily Forecast (v2)", {"city": "Ulm"})]),
        ("[Get Daily Forecast (v2) (city='a, b) [c'), news.top(n=3)]\n",
         [("Get Daily Forecast (v2)", {"city": "a, b) [c"}), ("news.top", {"n": 3})]),
        ("[news.top()]", [("news.top", {})]),
        ("[news.top(n=[1, {'a': True}])]", [("news.top", {"n": [1, {"a": True}]})]),
        ("Which city do you mean?", []),
        ("[1] says: none.", []),
    ],
)  # fmt: skip
def test_toolace(tmp_path, said, calls):
    [task] = load_toolace(write(tmp_path / "data.json", [toolace_record(said)]), rewards=["match"])
    assert due(task) == calls
    assert score(task, solution(task)).all_passed
    system, user = task.prompt.messages()
    assert system == {"role": "system", "content": "The current time is 2024-03-05 10:00:00."}
    assert "How is Ulm?" in user["content"]
    assert "func1" not in task.prompt.text


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (toolace_record("[news.top(n=)]"), "calls that cannot be read at character 12"),
        (toolace_record("[news.top(3)]"), "without a name"),
        (toolace_record("[news.top(n=open('x'))]"), "expected a literal value"),
        (toolace_record("[news.top(n=1), n=1, n=1)"), "expected a tool's name"),
        (toolace_record("[news.top(n=1)"), "a closing square bracket"),
        (toolace_record("[news.top(n=1)] Done."), "expected nothing after the calls"),
        (toolace_record("I call [news.top(n=1)]"), "either calls or words, got both"),
        (toolace_record("[old.news(n=1)]"), "expected calls of"),
        (toolace_record("x", tools="none"), "no JSON list of tools"),
        (toolace_record("x", tools=[{"a": 1}]), "no JSON list of tools"),
        (toolace_record("x", asked=()), "end with the user's"),
        ({**toolace_record("x"), "conversations": [{"from": "user", "value": "x"}]}, "nothing to answer"),
        ({**toolace_record("x"), "conversations": [{"from": "user"}]}, "no field 'value'"),
    ],
)
def test_bad_toolace_records(tmp_path, record, message):
    with pytest.raises(DataError, match=f"record 1: .*{message}"):
        load_toolace(write(tmp_path / "data.json", [record]))


# API-Bank -----------------------------------------------------------------------------------------------------------

API = (
    '{"name": "AddAlarm", "description": "Sets an alarm.", "input_parameters": {"time": {"type": "str", '
    '"description": "When."}}, "output_parameters": {"status": {"type": "str"}}}'
)
INSTRUCTION = (
    "Write an API request from the dialogue. The current year is 2023.\nInput: \nUser: ...\n\nExpected output:\n"
    "API-Request: [ApiName(key1='value1')]\n\nAPI descriptions:\n"
)
DIALOGUE = "User: Wake me at six.\nGenerate API Request:\n"


@pytest.mark.parametrize(
    ("instruction", "dialogue", "read"),
    [(INSTRUCTION + API, DIALOGUE, True), (INSTRUCTION, f"API descriptions:\n{API}\n{DIALOGUE}", True),
     (INSTRUCTION.rstrip() + "\n", DIALOGUE, False), (INSTRUCTION + API.replace("AddAlarm", "Other"), DIALOGUE, False),
     (INSTRUCTION + API + DIALOGUE, "", False)],
)  # fmt: skip
def test_api_bank(tmp_path, instruction, dialogue, read):
    gold = "API-Request: [AddAlarm(time='2023-01-01 06:00:00')]"
    record = {"instruction": instruction, "input": dialogue, "expected_output": gold}
    [task] = load_api_bank(write(tmp_path / "lv1.json", [record]))
    assert due(task) == [("AddAlarm", {"time": "2023-01-01 06:00:00"})]
    assert score(task, solution(task)).all_passed
    assert "The current year is 2023" in task.prompt.text
    assert "Wake me at six." in task.prompt.text
    assert ("ApiName(" not in task.prompt.text) == read
    if read:
        assert "schema" in task.reward_names
        assert schema_of(task, "AddAlarm")["required"] == ["time"]


def test_api_bank_replies_and_bad_records(tmp_path):
    record = {"instruction": INSTRUCTION + API, "input": DIALOGUE, "output": "AI: When exactly?"}
    [task] = load_api_bank(write(tmp_path / "a.json", [record]))
    assert task.privileged["expected"] == ()
    for output, message in [
        ("Sure!", "expected 'API-Request"),
        ("API-Request: AddAlarm(time='x')", "an opening square bracket"),
        ("API-Request: [AddAlarm(time=2023-01-01)]", "cannot be read"),
    ]:
        with pytest.raises(MrtpoError, match=f"record 1: .*{message}"):
            load_api_bank(write(tmp_path / "b.json", [record | {"output": output}]))


@pytest.mark.parametrize("path", ["x" * 300, "nul\0byte", "~nobody-at-all/x.json"])
@pytest.mark.parametrize("load", [load_toolrl, load_xlam, load_toolace, load_api_bank, load_bfcl])
def test_a_path_that_no_file_can_have_is_no_file(load, path):
    with pytest.raises(DataError, match="there is no"):
        load(path)


def test_no_category_is_no_way_to_ask_for_all():
    with pytest.raises(TaskError, match="one or more"):
        load_bfcl(categories=[])
