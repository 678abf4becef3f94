"""Environments by name.

The three domains are in gymnasium's own registry, so `gymnasium.make("mrtpo_envs:mrtpo/Instructions-v0")` works. `make`
here gives the bare `MultiRewardEnv`, and takes more kinds of names; the first that fits wins:

    mrtpo/Instructions-v0, Instructions     a registered id; namespace and version may be left out
    module:id                               imports the module, which registers the id with gymnasium
    package.module:Class                    a class, or a function, that makes a MultiRewardEnv
    name                                    an entry point of the group `mrtpo.environments` in an installed package
"""

from __future__ import annotations

import difflib
import importlib
import typing
from collections.abc import Callable
from importlib import metadata
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from mrtpo_envs.env import MultiRewardEnv
from mrtpo_envs.errors import ConfigError, EnvError, unknown
from mrtpo_envs.options import require

ENTRY_POINTS = "mrtpo.environments"
NAMESPACE = "mrtpo"

BUILT_IN = {
    "TextToSQL": ("mrtpo_envs.text_to_sql:TextToSQLEnv", "answers questions with SQL, judged by running it"),
    "Instructions": (
        "mrtpo_envs.instructions:InstructionsEnv",
        "requests with instruction constraints (IFEval's kinds)",
    ),
    "ToolCalls": (
        "mrtpo_envs.tool_calls:ToolCallsEnv",
        "requests answered by calling tools, judged by name, schema, value",
    ),
}
"""Entry point and description of each domain."""


def register_all() -> None:
    """Puts the domains into gymnasium's registry. Safe to call again."""
    for name, (entry_point, _) in BUILT_IN.items():
        id = f"{NAMESPACE}/{name}-v0"
        if id not in gymnasium.registry:
            gymnasium.register(id=id, entry_point=entry_point)


def registered() -> list[tuple[str, str]]:
    """Names that `make` takes, with a line on each: the domains, then installed plug-ins."""
    found = [(f"{NAMESPACE}/{name}-v0", description) for name, (_, description) in BUILT_IN.items()]
    return found + [(point.name, f"plug-in: {point.value}") for point in _plug_ins().values()]


def make(name: str, **options: Any) -> MultiRewardEnv:
    """The environment of a name, without gymnasium's wrappers.

    Args:
        name: see the module's docstring.
        options: the environment's own keyword options.

    Raises:
        UnknownNameError: nothing has that name; says which names come close.
        ConfigError: the environment has no such option, or the value is not of the annotated type or is impossible.
        EnvError: what the name makes is no `MultiRewardEnv`, or its module cannot be imported.
    """
    maker = _find(name)
    require(name, maker, options, ConfigError)
    try:
        env = maker(**options)
    except TypeError as error:  # one that takes **options and hands them on
        if "unexpected keyword argument" in str(error):
            raise ConfigError(f"{name} does not take these options: {error}") from error
        raise
    env = getattr(env, "unwrapped", env)
    if not isinstance(env, MultiRewardEnv):
        raise EnvError(f"{name!r} makes a {type(env).__name__}, expected a mrtpo_envs.MultiRewardEnv")
    return env


def _find(name: str) -> Callable[..., Any]:
    if spec := _spec(name):
        return _maker(spec)
    module, colon, rest = name.partition(":")
    if colon:
        imported = _import(module, name)
        if spec := _spec(rest):
            return _maker(spec)
        made = imported
        for part in rest.split("."):
            made = getattr(made, part, None)
        if callable(made):
            return typing.cast(Callable[..., Any], made)
        close = difflib.get_close_matches(rest, dir(imported), n=1)
        hint = f" Did you mean {module}:{close[0]}?" if close else ""
        raise EnvError(
            f"importing {module} registers no environment {rest!r} and gives no such class or function.{hint}"
        )
    plug_ins = _plug_ins()
    if name in plug_ins:
        try:
            return plug_ins[name].load()  # type: ignore[no-any-return]
        except Exception as error:  # whatever a plug-in does on import
            raise EnvError(f"the plug-in {name!r} ({plug_ins[name].value}) cannot be loaded: {error}") from error
    raise unknown("environment", name, [n for n, _ in registered()])


def _spec(name: str) -> EnvSpec | None:
    """The registered id that a name stands for: itself, with our namespace, with its newest version, or with both."""
    register_all()
    for id in (name, f"{NAMESPACE}/{name}"):
        if id in gymnasium.registry:
            return gymnasium.registry[id]
        versions = [s for s in gymnasium.registry.values() if s.id.rpartition("-v")[0] == id]
        if versions and id.startswith(f"{NAMESPACE}/"):
            return max(versions, key=lambda spec: spec.version or 0)
    return None


def _maker(spec: EnvSpec) -> Callable[..., Any]:
    """What makes the environment, found without making it, so that its options can be checked first."""
    point = spec.entry_point
    if callable(point):
        return point
    module, _, attribute = str(point).partition(":")
    return getattr(_import(module, spec.id), attribute)  # type: ignore[no-any-return]


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"{name!r} needs the module {module!r}, which cannot be imported: {error}") from error


def _plug_ins() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}
