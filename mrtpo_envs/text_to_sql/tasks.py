"""Text-to-SQL tasks from a question, a gold query and a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import TaskError, unknown
from mrtpo_envs.task import Privileged, Prompt, Segment, Task
from mrtpo_envs.text_to_sql.answer import STATEMENT
from mrtpo_envs.text_to_sql.database import Descriptions, estimate_tokens, schema_of, schema_text
from mrtpo_envs.text_to_sql.pool import Limits, database_of
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS, REWARDS


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
        TaskError: no database or two, a file that is none, SQL that SQLite does not take, no reward or one that is not
            known, impossible numbers. A gold query that fails is no error here: it gives no verdict.
    """
    if (setup_sql is None) == (database is None):
        raise TaskError("a task needs setup_sql or database, one of the two")
    if not question.strip() or not gold_sql.strip():
        raise TaskError(f"question and gold_sql must not be blank, got {question!r} and {gold_sql!r}")
    if sample_values < 0 or schema_tokens < 1:
        raise TaskError(
            f"sample_values must be at least 0 and schema_tokens at least 1, got {sample_values!r} and {schema_tokens!r}"
        )
    if not rewards or isinstance(rewards, str):
        raise TaskError(f"rewards must be a list of one or more of {', '.join(REWARDS)}; got {rewards!r}")
    for name in rewards:
        if name not in REWARDS:
            raise unknown("reward", name, REWARDS)
    first = database_of(setup_sql) if setup_sql is not None else _existing(str(database))
    paths = (first, *(database_of(sql) for sql in extra_setup_sql), *(_existing(str(path)) for path in extra_databases))
    schema_of(first)  # or say now that this is no database
    verifiers = tuple(REWARDS[name]() for name in rewards)
    text = schema_text(first, gold_sql, sample_values, schema_tokens, count_tokens, tuple(descriptions))
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


def _existing(database: str) -> str:
    path = Path(database).expanduser().resolve()
    if not path.is_file():
        raise TaskError(f"there is no database file {database!r}")
    return str(path)
