"""README says what is so: its example is the file that the tests run, its commands and files exist."""

import re
from pathlib import Path

from mrtpo_agent.cli import COMMANDS
from mrtpo_agent.config import load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_in_readme_is_the_one_that_is_tested():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    example = (ROOT / "examples" / "my_task.py").read_text(encoding="utf-8")
    assert any(block.strip() in example for block in blocks if "class Correct" in block)


def test_the_short_example_runs(capsys):
    [block] = [b for b in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "env.reset" in b]
    exec(compile(block, "README.md", "exec"), {})
    assert "no_comma" in capsys.readouterr().out


def test_files_and_commands_that_readme_names_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"(?:examples|docs)/[\w./]+\w", README):
        assert (ROOT / path).exists(), path
    named = re.findall(r"`mrtpo (\w+)", README)
    assert {"envs", "try", "train", "check", "report"} <= set(named) <= set(COMMANDS)


def test_every_configuration_in_examples_can_be_loaded():
    found = list((ROOT / "examples").glob("*.yaml"))
    assert found
    for path in found:
        assert load(path).steps >= 1
