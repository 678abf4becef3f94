"""Options against the signature that takes them: a wrong name or type is told in words, before it can do harm.

Options come from a command line or a YAML file, where "3" and 3 are easily confused and one name stands where a list of
them is meant. `require` compares them with a function's annotations; `checked` is the decorator that does so at every call.

No type checker: it knows numbers, bool, str, paths, None, Literal, lists and mappings, and unions of these. A parameter
with no annotation, or one that says anything else, takes everything, so that a plug-in may annotate as it likes.
"""

from __future__ import annotations

import collections.abc as abc
import difflib
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mrtpo_envs.errors import ConfigError, MrtpoError

P = ParamSpec("P")
R = TypeVar("R")

LISTS = (list, tuple, set, frozenset, abc.Sequence, abc.Collection, abc.Iterable)
MAPPINGS = (dict, abc.Mapping)


def require(called: str, taker: Callable[..., Any], options: Mapping[str, Any], error: type[MrtpoError]) -> None:
    """Raises `error` where one of the options is no parameter of `taker`, or not of the type that it is annotated with.

    Args:
        called: what the message calls the taker.
        taker: a function or class; one without a signature takes everything.
        options: by name. A parameter's own default is always right.
    """
    _require(called, _signature(taker), options, error)


def checked(error: type[MrtpoError] = ConfigError) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: every call's arguments go through `require`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        called = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            signature = _kept_signature(function)
            given = dict(zip(signature.positional, args, strict=False)) | options
            _require(called, signature, given, error)
            return function(*args, **options)

        return call

    return decorate


class _Signature(NamedTuple):
    names: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    kinds: Mapping[str, Any] = types.MappingProxyType({})
    """Annotations, by name, as far as they can be evaluated."""
    defaults: Mapping[str, Any] = types.MappingProxyType({})
    open: bool = True
    """Whether options of other names are taken too."""


def _signature(taker: Callable[..., Any]) -> _Signature:
    try:
        parameters = inspect.signature(taker).parameters.values()
    except (TypeError, ValueError):  # some callables written in C have none
        return _Signature()
    annotated = taker
    if inspect.isclass(taker) and inspect.isfunction(taker.__init__):
        annotated = taker.__init__
    try:
        kinds = typing.get_type_hints(annotated)
    except Exception:  # a name that exists for type checkers alone, say
        kinds = {}
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return _Signature(
        tuple(p.name for p in named),
        tuple(p.name for p in named if p.kind is not p.KEYWORD_ONLY),
        kinds,
        {p.name: p.default for p in named},
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


# Of this module by name, and not in `checked`'s closure: vector environments pickle classes by value, and a cache cannot be.
@functools.lru_cache(maxsize=256)
def _kept_signature(function: Callable[..., Any]) -> _Signature:
    return _signature(function)


def _require(called: str, signature: _Signature, options: Mapping[str, Any], error: type[MrtpoError]) -> None:
    for name, value in options.items():
        if name not in signature.names:
            if signature.open:
                continue
            known = [n for n in signature.names if n != "self"]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise error(f"{called} has no option {name!r}.{hint} Its options: {', '.join(known) or 'none'}")
        kind = signature.kinds.get(name, Any)
        if value is not signature.defaults[name] and not _fits(value, kind):
            raise error(f"{called}: {name} must be {_words(kind)}, got {value!r:.200}{_advice(value, kind)}")


def _fits(value: Any, kind: Any) -> bool:
    if kind in (None, types.NoneType):
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):  # a bool is an int to Python, and to nobody who writes `seed=true`
        return isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str) and not _half_a_character(value)
    if kind is Path:
        return isinstance(value, (str, os.PathLike))  # YAML has no paths
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is typing.Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin in MAPPINGS:
        return isinstance(value, Mapping)
    if origin in LISTS:
        # a list where a tuple or set is asked for: YAML has no others
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, (abc.Sequence, origin)):
            return False
        if not arguments or not isinstance(value, (list, tuple, set, frozenset)):
            return True  # reading others may use them up, or make every task of a task set
        if origin is tuple and arguments[-1] is not ...:
            return len(value) == len(arguments) and all(map(_fits, value, arguments))
        return all(_fits(item, arguments[0]) for item in value)
    return True


def _half_a_character(text: str) -> bool:
    """Whether text holds a lone surrogate, which nothing beyond Python takes: no file, no database, no tokenizer."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
    Path: ("a path", "paths"),
    types.NoneType: ("None", "None"),
    None: ("None", "None"),
}


def _words(kind: Any, many: bool = False) -> str:
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in _WORDS:
        return _WORDS[origin][many]
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(choice, many) for choice in arguments))
    if origin in MAPPINGS:
        return "mappings" if many else "a mapping"
    if origin not in LISTS:
        return "values" if many else "a value"
    head = "lists" if many else "a list"
    if origin is tuple and arguments and arguments[-1] is not ...:
        return f"{head} of {len(arguments)} values"
    return f"{head} of {_words(arguments[0], True)}" if arguments else head


def _advice(value: Any, kind: Any) -> str:
    if isinstance(value, str) and _half_a_character(value):
        return ", which is no Unicode text: it has half of a surrogate pair"
    if isinstance(value, (str, int)) and _fits([value], kind):
        return f"; for that one alone give [{value!r}]"
    return ""
