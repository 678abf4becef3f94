"""BFCL's AST verdict (Berkeley Function-Calling Leaderboard v4; Patil et al. 2025): right or wrong, as its checker decides.

The rules (REFERENCE: `eval_checker/ast_eval`): exact names; every required parameter, and every other one unless "" is among
its accepted values; no parameter besides; exact types, of which only int widens to float, with elements checked one level
deep; strings compared in lower case without spaces and `, . / - _ * ^`; lists in order; calls in parallel in any order.
Accepted values are looked up in tables that are made once for each task.

Ours differs from the published checker where that is wrong, in these kinds (`benchmarks/bfcl_agreement.py` counts each):

- calls in parallel are matched so that all fit if they can; the published loop takes the first that fits;
- a sign before a number, and a point or a minus within one, are not dropped from strings: "-1.5" is not "15";
- what is no literal is refused: arithmetic (which BFCL evaluates), a bare name, a call, a unary `not`, `~` or `+` that BFCL
  takes for a minus;
- a positional argument is refused, where BFCL drops it without a word; so is a name that is given twice;
- a call that cannot be read is an attempt, and no abstention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mrtpo_envs.task import Task
from mrtpo_envs.tool_calls.expected import assignment
from mrtpo_envs.tool_calls.formats import Call
from mrtpo_envs.tool_calls.literals import java_value, javascript_value
from mrtpo_envs.tool_calls.verifiers import calls_of, due_text, expected_of, parameters_of
from mrtpo_envs.verifier import Evidence, Span, Verdict, Verifier

_PYTHON = {
    "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list, "dict": dict, "any": str,
    "number": float, "object": dict,
}  # fmt: skip
_JAVA = {
    "byte": int, "short": int, "integer": int, "float": float, "double": float, "long": int, "boolean": bool, "char": str,
    "Array": list, "ArrayList": list, "HashMap": dict, "Hashtable": dict, "Queue": list, "Stack": list, "String": str,
    "any": str,
}  # fmt: skip
_JAVASCRIPT = {
    "String": str, "integer": int, "float": float, "Bigint": int, "Boolean": bool, "dict": dict, "array": list, "any": str,
}  # fmt: skip
_TABLES = {"python": _PYTHON, "java": _JAVA, "javascript": _JAVASCRIPT}
_WITH_ITEMS = {"python": ("array", "tuple"), "java": ("Array", "ArrayList"), "javascript": ("array",)}
_READ = {"java": java_value, "javascript": javascript_value}
_DROPPED = str.maketrans(dict.fromkeys(" ,./-_*^") | {"'": '"'})
_BEGINS = frozenset("+-0123456789")
_NUMERAL = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?$")


def plain_text(value: str) -> str:
    """A string as values are compared: BFCL's rule, but that a number keeps its sign and its point."""
    if value[:1] in _BEGINS and _NUMERAL.match(value):
        return value.replace(",", "").removeprefix("+")
    return value.translate(_DROPPED).lower()


def _plain(value: Any) -> Any:
    return plain_text(value) if type(value) is str else value


class _Parameter:
    """One parameter's accepted values, ready to be looked up."""

    __slots__ = (
        "accepted",
        "any_item",
        "at_once",
        "by_name",
        "dicts",
        "exact",
        "item_types",
        "items",
        "kind",
        "lists",
        "named",
        "texts",
        "tuples",
        "widens",
    )

    def __init__(self, rule: Mapping[str, Any], accepted: Sequence[Any], language: str) -> None:
        types = _TABLES[language]
        declared = str(rule["type"])
        self.kind: type = types[declared]
        self.widens = language == "python" and declared in ("float", "number")
        self.tuples = declared == "tuple"
        self.items: type | None = None
        if declared in _WITH_ITEMS[language]:
            self.items = types.get(str((rule.get("items") or {}).get("type")))
        self.accepted = list(accepted)
        self.named = _first_type(accepted)
        """The type of the accepted values; where it is not the declared one, they are names of variables."""
        self.by_name = self.named is not None and self.named is not self.kind
        self.exact = self.by_name or self.kind not in (str, list, dict)
        self.texts = frozenset(plain_text(a) for a in accepted if type(a) is str) if self.kind is str else frozenset()
        # for each accepted list, the type that its elements may have besides the declared one
        self.item_types = [_first_type(a) for a in accepted if type(a) is list]
        self.any_item = any(type(a) is not list for a in accepted)
        plain = not self.by_name and self.kind in (str, int, float, bool)
        self.at_once = frozenset(a for a in accepted if type(a) is self.kind) if plain else frozenset()
        """Values that are right as they stand: most of those that are right at all."""
        self.lists = [[_plain(v) for v in a] for a in accepted if isinstance(a, (list, str))]
        self.dicts = [a for a in accepted if a != ""]

    def accepts(self, value: Any) -> bool:
        """Whether a value is of the declared type and among the accepted ones."""
        kind = type(value)
        if kind is int and self.widens:
            value, kind = float(value), float
        elif kind is tuple and self.tuples:
            value, kind = list(value), list
        if kind is self.kind:
            if self.kind is str and not self.by_name:
                return plain_text(value) in self.texts
            if self.items is not None and not self._items_fit(value):
                return False
            if self.exact:
                return value in self.accepted
            if self.kind is dict:
                return any(_dict_fits(value, a) for a in self.dicts)
            if self.items is dict:
                return any(_dicts_fit(value, a) for a in self.accepted)
            return [_plain(v) for v in value] in self.lists
        return kind is self.named and value in self.accepted

    def _items_fit(self, value: list[Any]) -> bool:
        """Elements of the declared type, or all of an accepted list's."""
        if self.any_item:
            return True
        return any(all(type(v) is self.items or type(v) is other for v in value) for other in self.item_types)


def _first_type(values: Sequence[Any]) -> type | None:
    """The type of the first value that does not say "may be left out"; None where there is none."""
    return next((type(v) for v in values if v != ""), None)


def _dict_fits(value: Mapping[str, Any], accepted: Any) -> bool:
    """Every key known, with an accepted value; every other key may be left out."""
    if not isinstance(accepted, Mapping):
        return False
    for key, item in value.items():
        values = accepted.get(key)
        if not isinstance(values, list) or _plain(item) not in [_plain(v) for v in values]:
            return False
    return all(key in value or "" in values for key, values in accepted.items())


def _dicts_fit(value: Sequence[Any], accepted: Any) -> bool:
    if not isinstance(accepted, (list, str)) or len(value) != len(accepted):
        return False
    return all(isinstance(v, Mapping) and a != "" and _dict_fits(v, a) for v, a in zip(value, accepted, strict=True))


_OTHER = ("another function than is due", None)


class _Gold:
    """One call that is due."""

    __slots__ = ("must", "name", "needed", "parameters", "read")

    def __init__(
        self, name: str, function: Mapping[str, Any], accepted: Mapping[str, Sequence[Any]], language: str
    ) -> None:
        schema = function["parameters"]
        properties = schema.get("properties", {})
        self.name = name
        self.must = frozenset(schema.get("required", ())) | {k for k, v in accepted.items() if "" not in v}
        self.parameters = {k: _Parameter(properties[k], v, language) for k, v in accepted.items() if k in properties}
        self.read = None if language == "python" else (_READ[language], properties)

    def fault(self, call: Call) -> tuple[str, str | None] | None:
        """What is wrong with a call, and the argument that is; None where it is right."""
        arguments = call.arguments
        if call.name != self.name:
            return _OTHER
        if arguments is None:
            return "the arguments are no object", None
        for key, value in arguments.items():
            parameter = self.parameters.get(key)
            if parameter is None:
                return f"no argument {key[:40]!r} is due", key
            if self.read is not None:
                if type(value) is not str:
                    return f"{key[:40]!r} must be a string", key
                reader, properties = self.read
                rule = properties[key]
                value = reader(value, str(rule["type"]), (rule.get("items") or {}).get("type"))
            if type(value) is parameter.kind and parameter.at_once and value in parameter.at_once:
                continue
            if not parameter.accepts(value):
                return f"{key[:40]!r} has a wrong value", key
        if not self.must <= arguments.keys():
            return "an argument is missing", None
        return None


class BFCL(Verifier):
    """BFCL's AST verdict, 1 or 0; see the module's docstring for where it is not the published one."""

    name = "bfcl"

    def __init__(self) -> None:
        self._for: Any = None
        self._golds: list[_Gold] | None = []

    def reference(self, task: Task) -> str:
        """The expected answer."""
        return "a call of some tool is due." if _any_call(task) else f"the right answer is {due_text(task)}"

    def check(self, task: Task, response: str) -> Verdict:
        """0 or 1."""
        found = calls_of(task, response)
        calls = found.calls
        if self._for is not task.privileged:
            self._golds, self._for = None if _any_call(task) else _golds_of(task), task.privileged
        golds = self._golds
        if golds is None:
            return Verdict(float(bool(calls)), found.found, tuple(c.span for c in calls[:20]) or Evidence.ABSENT)
        if not golds:
            spans = tuple(c.span for c in calls[:20])
            return Verdict(float(found.reply), found.found, Evidence.WHOLE if found.reply else spans or Evidence.ABSENT)
        if not calls or found.unread or not (found.well_formed or task.metadata["lenient"]):
            return Verdict(0.0, found.found, Evidence.ABSENT)
        if len(calls) != len(golds):
            outcome = f"{len(calls)} calls, which is not the number that is due"
            return Verdict(0.0, outcome, tuple(c.span for c in calls[:20]))
        if len(golds) == 1:
            fault = golds[0].fault(calls[0])
            return _right(calls) if fault is None else _wrong(response, calls[0], fault)
        if all(golds[i].fault(call) is None for i, call in enumerate(calls)):
            return _right(calls)
        faults = []
        for gold in golds:
            faults.append([gold.fault(call) for call in calls])
            if None not in faults[-1]:
                named = next((k for k, f in enumerate(faults[-1]) if f and f[1] is not None), 0)
                return _wrong(response, calls[named], faults[-1][named] or _OTHER)
        pairs = assignment([[float(f is None) for f in row] for row in faults])
        if all(j is not None and faults[i][j] is None for i, j in enumerate(pairs)):
            return _right(calls)
        return Verdict(
            0.0, "each call is right for some that is due, but not all for all", tuple(c.span for c in calls)
        )


def _right(calls: Sequence[Call]) -> Verdict:
    return Verdict(1.0, "the calls that are due", tuple(c.span for c in calls))


def _wrong(response: str, call: Call, fault: tuple[str, str | None]) -> Verdict:
    outcome, key = fault
    if key is not None and (member := call.member(response, key)) is not None:
        return Verdict(0.0, outcome, (Span(member.start, member.end),))
    if outcome.startswith("an argument is missing"):
        return Verdict(0.0, outcome, Evidence.ABSENT)
    return Verdict(0.0, outcome, (call.name_span,))


def _any_call(task: Task) -> bool:
    return task.privileged["expected"] is None


def _golds_of(task: Task) -> list[_Gold]:
    """BFCL's own answers where the task is BFCL's, else the expected calls in that shape."""
    own = task.privileged.get("bfcl")
    if own is not None:
        language = str(task.metadata.get("language", "python"))
        functions = {f["name"]: f for f in own["functions"]}
        return [
            _Gold(n, functions[n], accepted, language) for answer in own["answers"] for n, accepted in answer.items()
        ]
    schemas = parameters_of(task)
    return [
        _Gold(
            e.name,
            {"parameters": _with_types(schemas.get(e.name, {}))},
            {k: [*v, *([""] if k in e.optional else [])] for k, v in e.accepted.items()},
            "python",
        )
        for e in expected_of(task)
    ]


def _with_types(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which every parameter has one of BFCL's types: a union or none is "any" of a string."""
    properties = {}
    for name, rule in schema.get("properties", {}).items():
        rule = dict(rule) if isinstance(rule, Mapping) else {}
        if not isinstance(rule.get("type"), str) or rule["type"] not in _PYTHON:
            rule["type"] = "any"
        properties[name] = rule
    return {**schema, "properties": properties}
