"""The run folder, and checkpoints that survive Ctrl-C, a crash and a full disk.

    config.yaml       the resolved configuration
    versions.json     of Python and the libraries
    metrics.jsonl     one line a training step
    evals.jsonl       one line an evaluation
    rollouts.jsonl    sampled rollouts: text, verdicts, relevance and advantage of each token
    checkpoints/step-000010/   adapter, optimiser and position; the two newest are kept
    adapter/          the trained adapter in peft's format, with the tokenizer

A checkpoint is written beside its place and moved there whole, so one that is there is complete. All randomness of a
run is a function of its seed and the step, so the position is all there is to restore beside the weights and the
optimiser: a resumed run takes the steps that it would have taken.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from mrtpo_agent import config as configuration
from mrtpo_agent.config import TrainConfig
from mrtpo_agent.policy import Policy
from mrtpo_envs.errors import RunError

KEEP = 2
"""Checkpoints kept: the newest, and the one before it."""
LOGS = ("metrics.jsonl", "evals.jsonl", "rollouts.jsonl")
_LIBRARIES = ("mrtpo", "torch", "transformers", "peft", "accelerate", "gymnasium", "numpy", "tokenizers", "sqlglot")


class RunFolder:
    """One run's folder on disk.

    Args:
        path: the folder; made where it is missing.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def start(self, config: TrainConfig) -> None:
        """Writes the configuration and versions. Raises RunError where the folder holds a run already."""
        if (self.path / "config.yaml").exists():
            raise RunError(
                f"{self.path} holds a run already: go on with it (--resume {self.path}), "
                "or give another folder to --out"
            )
        with self._writing("the run folder"):
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / "config.yaml").write_text(configuration.dump(config), encoding="utf-8")
            (self.path / "versions.json").write_text(json.dumps(versions(), indent=1) + "\n", encoding="utf-8")

    def config(self) -> TrainConfig:
        """The run's configuration. Raises RunError where the folder holds no run."""
        if not (self.path / "config.yaml").is_file():
            raise RunError(f"{self.path} holds no run: it has no config.yaml")
        return configuration.load(self.path / "config.yaml")

    def log(self, name: str, record: Mapping[str, Any]) -> None:
        """Appends one line of JSON. Lone surrogates in a response are escaped, so every line is valid UTF-8."""
        with self._writing(name), (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(_finite(record), allow_nan=False, default=str) + "\n")

    def read(self, name: str) -> list[dict[str, Any]]:
        """The lines of a log; a last line that a crash cut short is left out."""
        path = self.path / name
        if not path.exists():
            return []
        records = []
        for line in path.read_text(encoding="utf-8").split("\n"):
            try:
                records.append(json.loads(line))
            except ValueError:
                continue
        return records

    def save(self, step: int, policy: Policy, optimizer: torch.optim.Optimizer, extra: Mapping[str, Any]) -> Path:
        """Writes the checkpoint of the state after `step` steps. Raises RunError; earlier checkpoints stay whole."""
        folder = self.path / "checkpoints"
        target, partial = folder / f"step-{step:06d}", folder / f".partial-{step:06d}"
        try:
            with self._writing("a checkpoint"):
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(parents=True)
                policy.save(partial / "adapter")
                torch.save(optimizer.state_dict(), partial / "optimizer.pt")
                (partial / "state.json").write_text(json.dumps({"step": step, **extra}), encoding="utf-8")
                shutil.rmtree(target, ignore_errors=True)
                os.replace(partial, target)
        except BaseException:  # a Ctrl-C too must leave no half-written folder behind
            shutil.rmtree(partial, ignore_errors=True)
            raise
        for old in self.checkpoints()[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
        return target

    def checkpoints(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        return sorted(p for p in (self.path / "checkpoints").glob("step-*") if (p / "state.json").is_file())

    def keep_config(self, config: TrainConfig) -> None:
        """Writes down settings that a resumed run changed; the ones before them stay beside, by the step they held to."""
        before = self.config()
        if before != config:
            found = self.checkpoints()
            until = found[-1].name if found else "step-000000"
            with self._writing("the configuration"):
                (self.path / f"config.until-{until}.yaml").write_text(configuration.dump(before), encoding="utf-8")
                (self.path / "config.yaml").write_text(configuration.dump(config), encoding="utf-8")

    def restore(self, policy: Policy, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Loads the newest checkpoint into the policy and the optimiser, and cuts the logs back to it.

        Returns its state (`step`, and what `save` was given as `extra`), or None where there is none.
        Raises RunError where the checkpoint does not fit the policy.
        """
        found = self.checkpoints()
        if not found:
            self._cut_logs(0)
            return None
        newest = found[-1]
        from peft import load_peft_weights, set_peft_model_state_dict

        try:
            weights = load_peft_weights(str(newest / "adapter"), device=str(policy.device))
            result = set_peft_model_state_dict(policy.model, weights)
            optimizer.load_state_dict(
                torch.load(newest / "optimizer.pt", map_location=policy.device, weights_only=True)
            )
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise RunError(f"cannot resume from {newest}: {str(error).splitlines()[0]}") from error
        if getattr(result, "unexpected_keys", None):
            raise RunError(f"cannot resume from {newest}: its adapter is for another model or other LoRA settings")
        state: dict[str, Any] = json.loads((newest / "state.json").read_text(encoding="utf-8"))
        self._cut_logs(state["step"])
        return state

    def save_adapter(self, policy: Policy) -> Path:
        """Writes the trained adapter, and the tokenizer, to `adapter/`."""
        with self._writing("the adapter"):
            policy.save(self.path / "adapter")
        return self.path / "adapter"

    def _cut_logs(self, step: int) -> None:
        for name in LOGS:
            kept = [r for r in self.read(name) if r["step"] <= step]
            if not (self.path / name).exists():
                continue
            with self._writing(name):
                lines = "".join(json.dumps(r, allow_nan=False) + "\n" for r in kept)
                (self.path / f"{name}.new").write_text(lines, encoding="utf-8")
                os.replace(self.path / f"{name}.new", self.path / name)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:  # torch and safetensors report a full disk as a RuntimeError
            if isinstance(error, RunError):
                raise
            found = self.checkpoints()
            kept = f" The checkpoint {found[-1].name} is whole." if found else ""
            raise RunError(
                f"cannot write {what} in {self.path}: {getattr(error, 'strerror', None) or error}.{kept} "
                f"Make room there, then go on with: mrtpo train --resume {self.path}"
            ) from error


def _finite(value: Any) -> Any:
    """The value with null where JSON has no number: a record must never cost a run."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that decide a run's numbers."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
