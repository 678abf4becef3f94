import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that tests can import agent_models

from agent_models import make_policy


@pytest.fixture
def policy():
    """A tiny random Llama in float64 with a LoRA adapter that does something."""
    return make_policy()
