"""The command line: `mrtpo envs | try | warmup | train | eval | report | check`.

Every command is a dataclass below, whose fields are its options and whose docstrings are its help. `train` has each field
of `TrainConfig` as an option, over the values of a YAML file: `mrtpo train --config run.yaml --optim.lr 1e-4`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
import yaml
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from mrtpo_envs.errors import ConfigError, MrtpoError

# Torch and transformers take seconds to import: only the commands that need them do.
from mrtpo_agent import config as configuration  # isort: skip
from mrtpo_agent.config import Options, TrainConfig  # isort: skip

if TYPE_CHECKING:
    from mrtpo_agent.policy import Policy
    from mrtpo_envs import MultiRewardEnv


@dataclass(kw_only=True)
class Envs:
    """Lists the environments that can be made by name."""

    def run(self, console: Console) -> int:
        """Prints a table."""
        import mrtpo_envs

        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("name", no_wrap=True)
        table.add_column("what the policy does")
        for name, description in mrtpo_envs.registered():
            table.add_row(name, description)
        console.print(table)
        return 0


@dataclass(kw_only=True)
class Try:
    """Shows a task, takes a response, and prints what each verifier says of it."""

    env: Positional[str]
    """The environment's name."""
    task: int = 0
    """Index of the task."""
    split: str = "train"
    """train or test."""
    options: Options = field(default_factory=dict)
    """Options of the environment, as KEY=VALUE."""
    response: str | None = None
    """The response; asked for, or read from standard input, where it is not given."""
    as_json: Annotated[bool, arg(name="json")] = False
    """Print the verification as JSON."""

    def run(self, console: Console) -> int:
        """Prints the prompt, then the verdicts with their evidence marked."""
        import mrtpo_envs

        env = mrtpo_envs.make(self.env, **self.options)
        tasks = env.tasks(self.split)
        if not 0 <= self.task < len(tasks):
            raise ConfigError(f"--task must be from 0 to {len(tasks) - 1}, got {self.task}")
        task = tasks[self.task]
        response = self.response
        if not self.as_json:
            console.rule(f"task {self.task}: {task.id}")
            console.print(task.prompt.text, markup=False)
            console.rule()
        if response is None:
            if sys.stdin.isatty():
                console.print("Your response; end it with Ctrl-D on a line of its own:", style="dim")
            response = sys.stdin.read()
            response = response.removesuffix("\n")
        verification = mrtpo_envs.score(task, response)
        if self.as_json:
            console.out(json.dumps(verification.to_dict(), indent=2), highlight=False)
        else:
            text = mrtpo_envs.render_verification(response, verification, color=console.is_terminal)
            console.file.write(text + "\n")
        return 0


@dataclass(kw_only=True)
class _Run:
    """What the commands that fill a run folder share."""

    config: Path | None = None
    """YAML file with the run's settings; options on the command line go over it."""
    resume: Path | None = None
    """Go on with the run in this folder."""
    out: Path | None = None
    """Folder for the run; a new one under runs/ where it is not given."""
    settings: Annotated[TrainConfig, arg(name="")] = field(default_factory=TrainConfig)

    def open(self, console: Console, kind: str) -> tuple[MultiRewardEnv, Policy, Path]:
        """The environment, the policy, and the folder; `kind` names a new one."""
        if self.resume is not None and self.out is not None:
            raise ConfigError("--resume goes on in its own folder: leave --out away")
        env, policy = _made(console, self.settings)
        return env, policy, self.resume or self.out or _free_folder(kind)


@dataclass(kw_only=True)
class Train(_Run):
    """Trains a LoRA adapter, with a held-out evaluation before and after."""

    def run(self, console: Console) -> int:
        """Trains; Ctrl-C saves and exits with 130."""
        from mrtpo_agent.progress import ConsoleProgress
        from mrtpo_agent.trainer import Trainer

        env, policy, out = self.open(console, self.settings.method)
        trainer = Trainer(env, policy, self.settings, out=out, progress=ConsoleProgress(console))
        trainer.train(resume=self.resume is not None)
        return 0


@dataclass(kw_only=True)
class Warmup(_Run):
    """Supervised steps on the tasks' own solutions, for a policy whose samples earn nothing yet."""

    def run(self, console: Console) -> int:
        """Writes an adapter to go on from."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from mrtpo_agent.warmup import warm_up

        env, policy, out = self.open(console, "warmup")
        steps = self.settings.warmup.steps
        columns = (
            "warm-up",
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(),
        )
        try:
            with Progress(*columns, console=console) as bar:
                task = bar.add_task("", total=steps, loss="-")

                def show(done: int, loss: float) -> None:
                    bar.update(task, completed=done, loss=f"{loss:.3f}")
                    if not console.is_terminal:
                        console.print(f"warm-up {done}/{steps}  loss {loss:.3f}")

                adapter = warm_up(policy, env, self.settings, out=out, resume=self.resume is not None, progress=show)
        except KeyboardInterrupt:
            console.print(
                f"Stopped; the last step is saved. Go on with:\n  mrtpo warmup --resume {out}", soft_wrap=True
            )
            raise
        console.print(f"Go on with training from it:\n  mrtpo train ... --policy.adapter {adapter}", soft_wrap=True)
        return 0


@dataclass(kw_only=True)
class Eval:
    """Measures pass rates on held-out tasks: of a run's adapter, or of a model as it is."""

    run_folder: Annotated[Path | None, arg(name="run")] = None
    """Run folder, whose settings and trained adapter are taken."""
    config: Path | None = None
    """YAML file with the settings, where there is no run."""
    base: bool = False
    """Measure the base model, without the run's adapter."""
    as_json: Annotated[bool, arg(name="json")] = False
    """Print the evaluation as JSON."""
    settings: Annotated[TrainConfig, arg(name="")] = field(default_factory=TrainConfig)

    def run(self, console: Console) -> int:
        """Prints a table, or JSON."""
        from mrtpo_agent.evaluation import evaluate_as_configured
        from mrtpo_agent.progress import evaluation_table

        settings, quiet = self.settings, Console(stderr=True)
        if self.run_folder is not None and not self.base:
            adapter = self.run_folder / "adapter"
            if not (adapter / "adapter_config.json").is_file():
                raise ConfigError(
                    f"{self.run_folder} has no trained adapter yet: finish it with --resume, or give --base"
                )
            settings = dataclasses.replace(settings, policy=dataclasses.replace(settings.policy, adapter=str(adapter)))
        env, policy = _made(quiet, settings)
        with quiet.status("sampling") as status:
            found = evaluate_as_configured(
                policy, env, settings, lambda done, total: status.update(f"sampled {done} of {total} responses")
            )
        if self.as_json:
            console.out(json.dumps(found.to_dict(), indent=2), highlight=False)
        else:
            console.print(evaluation_table(found))
        return 0


@dataclass(kw_only=True)
class Check:
    """Looks an environment over and says in words what is wrong with it."""

    env: Positional[str]
    """The environment's name, `module:id`, or `package.module:Class`."""
    options: Options = field(default_factory=dict)
    """Options of the environment, as KEY=VALUE."""
    tasks: int = 20
    """Tasks to look at, from either split."""

    def run(self, console: Console) -> int:
        """Prints the findings; exits with 1 where one is an error."""
        import mrtpo_envs

        report = mrtpo_envs.check_env(mrtpo_envs.make(self.env, **self.options), tasks=self.tasks)
        console.print(str(report), markup=False, soft_wrap=True)
        return 0 if report.ok else 1


@dataclass(kw_only=True)
class Report:
    """Draws a run: held-out pass rates before and after, rewards by step, a response's relevance."""

    run_folder: Positional[Path]
    """The run folder."""
    out: Path | None = None
    """Where to write the picture, PNG or SVG by its ending; report.png in the run folder where it is not given."""

    def run(self, console: Console) -> int:
        """Writes the picture and prints its path."""
        from mrtpo_agent.report import draw_run

        console.print(str(draw_run(self.run_folder, self.out)), soft_wrap=True)
        return 0


COMMANDS: dict[str, Any] = {
    "envs": Envs,
    "try": Try,
    "warmup": Warmup,
    "train": Train,
    "eval": Eval,
    "report": Report,
    "check": Check,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status: 0, 1 for an error that is said in words, 130 for Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(highlight=False)
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # `my_task:make_env` is a module where the user stands
    try:
        return _parse(words).run(console)
    except (MrtpoError, yaml.YAMLError) as error:
        # A file that is no YAML is a ConfigError already, so this one is of the command line.
        said = f"a value of KEY=VALUE is read as YAML: {error}" if isinstance(error, yaml.YAMLError) else error
        Console(stderr=True, highlight=False).print(f"error: {said}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `mrtpo envs | head`
        return 0


def _parse(words: list[str]) -> Any:
    """The command that `words` ask for, its settings' defaults taken from the file or run that they name."""
    if words and words[0] in ("warmup", "train", "eval"):
        defaults = _defaults(words)
        if nameless := [key for key in defaults.env.options if not isinstance(key, str)]:  # YAML has keys of any type
            raise ConfigError(f"env.options: an option's name must be text, got {nameless[0]!r}")
        command = tyro.cli(
            COMMANDS[words[0]],
            prog=f"mrtpo {words[0]}",
            args=words[1:],
            default=COMMANDS[words[0]](settings=defaults),
        )
        # Options given here go over the file's one by one, like every other setting.
        env = dataclasses.replace(command.settings.env, options=defaults.env.options | command.settings.env.options)
        command.settings = dataclasses.replace(command.settings, env=env)
        return command
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS, prog="mrtpo", args=words, description="Train a language model against several verifiable rewards."
    )


def _defaults(words: Sequence[str]) -> TrainConfig:
    """The settings that the command line's options go over."""
    path = _value(words, "--config")
    folder = _value(words, "--resume") or _value(words, "--run")
    if folder is not None:
        from mrtpo_agent.checkpoint import RunFolder

        return RunFolder(folder).config()
    return TrainConfig() if path is None else configuration.load(path)


def _value(words: Sequence[str], option: str) -> str | None:
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(option + "="):
            return word.partition("=")[2]
    return None


def _made(console: Console, settings: TrainConfig) -> tuple[MultiRewardEnv, Policy]:
    """The environment and the policy that the settings describe."""
    import mrtpo_envs
    from mrtpo_agent.loading import load_policy

    _quiet_libraries()
    env = mrtpo_envs.make(settings.env.name, **settings.env.options)
    with console.status(f"loading {settings.policy.model}"):
        return env, load_policy(settings.policy, seed=settings.seed)


def _quiet_libraries() -> None:
    """Loading a model is one line of ours, not three progress bars of others."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def _free_folder(method: str) -> Path:
    n = 1
    while (Path("runs") / f"{method}-{n}").exists():
        n += 1
    return Path("runs") / f"{method}-{n}"


if __name__ == "__main__":
    sys.exit(main())
