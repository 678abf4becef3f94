"""The space of texts that a policy reads and writes.

`gymnasium.spaces.Text` holds strings over a given alphabet, letters and digits by default: it refuses most punctuation
and nearly all of Unicode. Language has no small alphabet, so this space holds any string up to a length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from mrtpo_envs.errors import ConfigError

_SAMPLE_CHARACTERS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;:!?'\"()[]{}<>*-_=\n\u00e9\u4e2d\U0001f600"
)


class TextSpace(spaces.Space[str]):
    """All strings of at most `max_length` characters (Python code points), lone surrogates included."""

    def __init__(self, max_length: int = 1_000_000, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 1:
            raise ConfigError(f"max_length must be at least 1 character, got {max_length}")
        self.max_length = max_length
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False: a text has no fixed numpy form."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string within the length limit."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short random text, the same for the same seed; masks have no meaning here and are refused."""
        if mask is not None or probability is not None:
            raise ConfigError("TextSpace.sample takes no mask and no probability")
        length = int(self.np_random.integers(0, min(40, self.max_length) + 1))
        return "".join(
            _SAMPLE_CHARACTERS[int(i)] for i in self.np_random.integers(len(_SAMPLE_CHARACTERS), size=length)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and other.max_length == self.max_length

    def __repr__(self) -> str:
        return f"TextSpace(max_length={self.max_length})"
