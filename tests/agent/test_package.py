"""What the package exports, and what it costs to import."""

import subprocess
import sys

import pytest

import mrtpo_agent


def test_every_exported_name_is_there_and_nothing_else():
    assert set(mrtpo_agent.__all__) == set(mrtpo_agent._HOME)
    for name in mrtpo_agent.__all__:
        assert getattr(mrtpo_agent, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        mrtpo_agent.Trainr  # noqa: B018


def test_commands_that_need_no_model_import_no_torch():
    code = (
        "import sys; from mrtpo_agent.cli import main;"
        "main(['try', 'Instructions', '--response', 'x']);"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip().endswith("[]"), done.stderr


def test_the_command_says_what_is_missing_where_only_the_environments_are_installed():
    code = (
        "import sys; sys.modules['tyro'] = None;"  # as if it were not installed
        "from mrtpo_agent.entry import main; sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "mrtpo needs tyro" in done.stderr
    assert 'pip install "mrtpo[agent]"' in done.stderr
