"""Experiment trackers through accelerate: TensorBoard, Weights & Biases, trackio and the others it knows. None is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mrtpo_agent.config import TrainConfig, to_dict
from mrtpo_envs.errors import ConfigError, unknown


class Trackers:
    """The trackers that `config.trackers` names, opened; with none named, nothing at all.

    Raises UnknownNameError for a tracker that accelerate does not know, ConfigError for one that is not installed.
    """

    def __init__(self, config: TrainConfig, folder: Path | None) -> None:
        self._open: list[Any] = []
        if not config.trackers:
            return
        from accelerate.state import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

        PartialState()  # accelerate's trackers ask it which process this is
        known = {str(getattr(key, "value", key)): cls for key, cls in LOGGER_TYPE_TO_CLASS.items()}
        installed = {str(getattr(t, "value", t)) for t in get_available_trackers()}
        where = folder or Path.cwd()
        for name in config.trackers:
            if name not in known:
                raise unknown("tracker", name, known)
            if name not in installed:
                raise ConfigError(f"the tracker {name!r} is not installed: pip install {name}")
            cls = known[name]
            tracker = cls(where.name, str(where)) if cls.requires_logging_directory else cls(where.name)
            if hasattr(tracker, "start"):
                tracker.start()
            tracker.store_init_configuration({k: str(v) for k, v in flatten(to_dict(config)).items()})
            self._open.append(tracker)

    def log(self, record: Mapping[str, Any]) -> None:
        """Sends a record's numbers, names of nested ones joined by slashes."""
        values = {k: v for k, v in flatten(record).items() if isinstance(v, int | float)}
        step = int(values.pop("step"))
        for tracker in self._open:
            tracker.log(values, step=step)

    def close(self) -> None:
        """Closes what was opened."""
        for tracker in self._open:
            tracker.finish()
        self._open = []


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by slashes."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{prefix}/{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            flat |= flatten(value, name)
        else:
            flat[name] = value
    return flat
