"""Text-to-SQL tasks from a question, a gold query and a database."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import ConfigError, TaskError, unknown
from mrtpo_envs.options import checked, require
from mrtpo_envs.task import Privileged, Prompt, Segment, Task
from mrtpo_envs.text_to_sql.answer import STATEMENT
from mrtpo_envs.text_to_sql.database import Descriptions, estimate_tokens, schema_of, schema_text
from mrtpo_envs.text_to_sql.pool import Limits, database_of
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS, REWARDS

MOST_VALUES = 1000
"""Most sample values of a column: more are no prompt."""


@checked(TaskError)
def make_task(
    *,
    question: str,
    gold_sql: str,
    setup_sql: str | None = None,
    database: str | Path | None = None,
    extra_setup_sql: Sequence[str] = (),
    extra_databases: Sequence[str | Path] = (),
    rewards: Sequence[str] = DEFAULT_REWARDS,
    hint: str = "",
    sample_values: int = 0,
    schema_tokens: int = 2000,
    count_tokens: Callable[[str], int] = estimate_tokens,
    descriptions: Descriptions = (),
    limits: Limits | None = None,
    id: str = "",
    metadata: dict[str, Any] | None = None,
) -> Task:
    """A task: write the query that answers a question on a SQLite database.

    Args:
        question: the user's words.
        gold_sql: a query that answers it.
        setup_sql: SQL that makes the database, trusted; or
        database: path of a SQLite file.
        extra_setup_sql: more databases that the query must be right on, for the reward "suite"; or
        extra_databases: paths of such.
        rewards: names from `REWARDS`, in order.
        hint: knowledge that the question needs (BIRD's evidence), shown in the prompt.
        sample_values: how many values of each column the prompt shows.
        schema_tokens: most tokens of the schema's text; of a longer one, what the gold query needs stays (`schema_text`).
        count_tokens: how many tokens a text has, say `lambda text: len(tokenizer(text).input_ids)`; an estimate by default.
        descriptions: (table, column, meaning) of columns, shown as comments.
        limits: what a query may use.

    Raises:
        TaskError: a value of the wrong type, no database or two, a file that is none or holds no table, SQL that SQLite
            does not take, no reward, impossible numbers. A gold query that fails is no error here: it gives no verdict.
        UnknownNameError: a reward that is not known.
    """
    if (setup_sql is None) == (database is None):
        raise TaskError("a task needs setup_sql or database, one of the two")
    if not question.strip() or not gold_sql.strip():
        raise TaskError(f"question and gold_sql must not be blank, got {question!r} and {gold_sql!r}")
    _settings(
        rewards=rewards,
        sample_values=sample_values,
        schema_tokens=schema_tokens,
        count_tokens=count_tokens,
        descriptions=descriptions,
        limits=limits,
    )
    first = database_of(setup_sql) if setup_sql is not None else existing_database(str(database))
    if not schema_of(first):
        raise TaskError("setup_sql makes no table: a question needs one to be asked of")
    paths = (first, *map(database_of, extra_setup_sql), *map(existing_database, map(str, extra_databases)))
    verifiers = tuple(REWARDS[name]() for name in rewards)
    text = schema_text(first, gold_sql, sample_values, schema_tokens, count_tokens, tuple(map(tuple, descriptions)))
    parts = [f"{text}\n\n{hint + chr(10) if hint else ''}Question: {question}\n"]
    stated = Segment(STATEMENT, "format") if "format" in rewards else Segment(STATEMENT)
    return Task(
        Prompt.user(*parts, stated),
        verifiers,
        id=id,
        privileged=Privileged({"gold_sql": gold_sql, "databases": paths, "limits": limits}),
        metadata={"source": "text_to_sql", **(metadata or {})},
    )


def solution(task: Task) -> str:
    """A response that gets full reward: for supervised warm-up, and for tests."""
    return f"```sql\n{task.privileged['gold_sql']}\n```"


@checked(TaskError)
def _settings(
    *,
    rewards: Sequence[str],
    sample_values: int = 0,
    schema_tokens: int = 2000,
    count_tokens: Callable[[str], int] = estimate_tokens,
    descriptions: Descriptions = (),
    limits: Limits | None = None,
) -> None:
    """The checks of those options of `make_task` that all tasks of a set share."""
    if not rewards:
        raise TaskError(f"rewards must be a list of one or more of {', '.join(REWARDS)}; got none")
    for name in rewards:
        if name not in REWARDS:
            raise unknown("reward", name, REWARDS)
    if len(set(rewards)) < len(rewards):
        raise TaskError(f"rewards must name each reward once, got {list(rewards)}")
    if not 0 <= sample_values <= MOST_VALUES or schema_tokens < 1:
        raise TaskError(
            f"sample_values must be at least 0 and at most {MOST_VALUES}, and schema_tokens at least 1; "
            f"got {sample_values!r} and {schema_tokens!r}"
        )
    if not callable(count_tokens):
        raise TaskError(f"count_tokens must be a function from text to its number of tokens, got {count_tokens!r:.200}")
    if limits is not None:
        if not isinstance(limits, Limits):
            raise TaskError(f"limits must be Limits(time_s=..., rows=..., value_bytes=...), got {limits!r:.200}")
        require("Limits", Limits, limits._asdict(), TaskError)
        if not all(0 < value < math.inf for value in limits):
            raise TaskError(f"limits must all be above 0 and finite, got {limits}")


def require_settings(**options: Any) -> None:
    """Says at once what would be wrong with every task of a set: `rewards`, and the other options that they share.

    Raises:
        ConfigError, UnknownNameError: an option that is not known, is of the wrong type, or is impossible.
    """
    try:
        require("make_task", _settings, options, ConfigError)
        _settings(**options)
    except TaskError as error:
        raise ConfigError(str(error)) from error


def existing_database(database: str | Path) -> str:
    """The full path of a SQLite file that can be read and holds a table. Raises TaskError where it is none."""
    try:
        path = Path(database).expanduser().resolve()
        found = path.is_file()
        str(path).encode()
    except UnicodeEncodeError as error:  # SQLite takes paths in UTF-8 alone
        raise TaskError(f"the path {str(database)!r} is no Unicode text: rename the file or its folder") from error
    except (OSError, RuntimeError, ValueError) as error:  # too long a name, nobody's home, a NUL
        raise TaskError(f"there is no database file {str(database)!r:.200}: {error!s:.200}") from error
    if not found:
        raise TaskError(f"there is no database file {str(database)!r}")
    if not _tables(str(path)):  # SQLite takes an empty file for an empty database
        raise TaskError(f"{path} holds no table ({path.stat().st_size} bytes): is it the right file, and all of it?")
    return str(path)


@functools.lru_cache(maxsize=1 << 16)  # a test suite has hundreds of databases to a schema, asked of for every task
def _tables(path: str) -> int:
    return len(schema_of(path))
