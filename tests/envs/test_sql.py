"""Text-to-SQL: cases from public bug reports, and queries that mean harm."""

import contextlib
import hashlib
import json
import os
import random
import sqlite3
import time
from pathlib import Path

import pytest

import mrtpo_envs
from mrtpo_envs import Evidence, score, score_many
from mrtpo_envs.text_to_sql import LEVELS, Limits, TaskGenerator, gold, make_task, pool, solution, verifiers
from mrtpo_envs.text_to_sql.database import estimate_tokens, schema_of
from mrtpo_envs.text_to_sql.generator import THEMES
from mrtpo_envs.text_to_sql.pool import ERRORS, Query, execute, execute_many
from mrtpo_envs.text_to_sql.verifiers import REWARDS, databases

CASES = Path(__file__).parents[1] / "cases" / "verifier_cases.jsonl"
SQL = [row for row in map(json.loads, CASES.read_text().splitlines()) if row["domain"] == "sql"]


def digest(task):
    return [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in databases(task)]


@pytest.mark.parametrize("case", SQL, ids=lambda case: case["id"])
def test_public_bug_report(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given, expected = case["task"], case["expected"]
    task = make_task(
        question=given["question"],
        gold_sql=given["gold_sql"],
        setup_sql=given["setup_sql"],
        extra_setup_sql=given.get("extra_setup_sql", ()),
        rewards=[*REWARDS],
        limits=Limits(
            time_s=given.get("time_limit_s", 2),
            rows=given.get("max_rows", 10_000),
            value_bytes=given.get("max_cell_bytes", 2_000_000),
        ),
    )
    before = digest(task)
    start = time.monotonic()
    verification = score(task, case["output"])
    took = time.monotonic() - start
    rewards, valid = verification.rewards, verification["valid"].details
    measured = {
        "format": rewards["format"],
        "parse": valid.get("prepared"),
        "safe": valid.get("safe"),
        "execution": rewards["execution"],
        "execution_bird": rewards["bird"],
        "execution_test_suite": rewards["suite"],
        "execution_raw": verification["execution"].details.get("raw"),
        "gold_empty": verification["execution"].details.get("gold_empty"),
        "schema_linking_tables_f1": verification["schema"].details.get("tables_f1"),
        "schema_linking_columns_f1": verification["schema"].details.get("columns_f1"),
        "tables_used": verification["schema"].details.get("tables"),
        "columns_used": sorted(verification["schema"].details.get("columns", [])),
    }
    for key, value in measured.items():
        if key in expected:
            wanted = sorted(expected[key]) if isinstance(expected[key], list) else expected[key]
            assert value == wanted, (key, verification["execution"])
    if expected.get("error") == "gold_error":
        assert "the gold query fails" in verification["execution"].outcome
    elif "error" in expected:
        assert valid["error"] or verification["execution"].details["error"]
        assert (valid["error"] in expected["error"]) or (
            valid["error"] == "no_such_function" and "no such" in expected["error"]
        )
    assert took < expected.get("finishes_within_s", 5)
    assert digest(task) == before
    assert list(tmp_path.iterdir()) == []
    json.dumps(verification.to_dict())


SETUP = """CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, n REAL);
INSERT INTO t VALUES (1,'a',1.5),(2,'b',2.5),(3,'b',NULL);"""


def task(gold="SELECT name FROM t WHERE id = 1", **options):
    return make_task(question="Which?", gold_sql=gold, setup_sql=SETUP, **options)


def run(sql, **limits):
    [path] = databases(task())
    return execute(Query(path, sql, Limits(**limits)))


STATEMENTS = (
    """
INSERT INTO t VALUES (9,'x',0)|UPDATE t SET n=0|DELETE FROM t|REPLACE INTO t VALUES (1,'x',0)
INSERT INTO t VALUES (9,'x',0) RETURNING id|UPDATE t SET n=0 RETURNING n|DELETE FROM t RETURNING id
WITH x AS (SELECT 1) INSERT INTO t SELECT 9,'x',0|CREATE TABLE u(a)|CREATE TABLE u AS SELECT * FROM t
CREATE TEMP TABLE u(a)|CREATE VIEW v AS SELECT 1|CREATE TEMP VIEW v AS SELECT 1|CREATE INDEX i ON t(n)
CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END|CREATE VIRTUAL TABLE f USING fts5(a)
CREATE VIRTUAL TABLE f USING rtree(a,b,c)|DROP TABLE t|DROP TABLE IF EXISTS nothing|ALTER TABLE t RENAME TO u
ALTER TABLE t ADD COLUMN z|ALTER TABLE t DROP COLUMN n|ATTACH DATABASE 'x.db' AS x|ATTACH ':memory:' AS x
DETACH DATABASE main|PRAGMA journal_mode=WAL|PRAGMA table_info(t)|PRAGMA hard_heap_limit=0|VACUUM|VACUUM INTO 'x.db'
BEGIN|BEGIN EXCLUSIVE|COMMIT|ROLLBACK|SAVEPOINT s|RELEASE s|REINDEX|ANALYZE|SELECT load_extension('x')
SELECT readfile('/etc/passwd')|SELECT writefile('x','y')|SELECT edit('x')|SELECT fts3_tokenizer('simple')
SELECT * FROM pragma_table_info('t')|SELECT random()|SELECT * FROM fsdir('.')
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_no_statement_but_reading_runs(sql, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = digest(task())
    result = run(sql)
    assert result.error in ERRORS
    assert "/" not in result.message
    verification = score(task(), f"```sql\n{sql}\n```")
    assert verification.rewards["valid"] == 0
    assert verification.rewards["execution"] == 0
    assert digest(task()) == before
    assert list(tmp_path.iterdir()) == []


BOMBS = {
    "endless": "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r) SELECT count(*) FROM r",
    "rows": "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r) SELECT x FROM r",
    "product": "SELECT count(*) FROM t a, t b, t c, t d, t e, t f, t g, t h, t i, t j, t k, t l, t m, t n, t o, t p, t q",
    "blob": "SELECT zeroblob(1000000000)",
    "hex": "SELECT hex(zeroblob(900000000))",
    "printf": "SELECT printf('%.*c', 1000000000, 'x')",
    "grow": "WITH RECURSIVE r(x) AS (VALUES('x') UNION ALL SELECT x||x FROM r) SELECT length(x) FROM r",
    "concat": "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r) SELECT group_concat(x) FROM r",
    "sort": "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r LIMIT 90000000) SELECT x FROM r ORDER BY -x",
    "like": "SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' LIKE '" + "%a" * 400 + "b'",
    "glob": "SELECT count(*) FROM t WHERE '" + "a" * 3000 + "' GLOB '" + "*a" * 60 + "b'",
    "depth": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "wide": "SELECT " + ",".join(["1"] * 40000),
    "megabyte": "SELECT '" + "x" * 1_000_000 + "'",
    "unions": " UNION ALL ".join(["SELECT 1"] * 3000),
    "wide value": "SELECT replace(hex(zeroblob(900000)), '00', 'xxxxxxxxxx')",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_goes_off_alone(name):
    start = time.monotonic()
    bomb = f"```sql\n{BOMBS[name]}\n```"
    right = solution(task())
    verdicts = score_many([(task(limits=Limits(time_s=0.5)), r) for r in (right, bomb, right)])
    assert [v.rewards["execution"] for v in verdicts] == [1.0, 0.0, 1.0]
    assert time.monotonic() - start < 8


STRANGE = [
    "", "SELECT", "```sql", "```sql\n```", "```sql\n\x00\n```", "```sql\nSELECT '\ud83d'\n```", "```sql\n-- nothing\n```",
    "```sql\n;\n```", "```\nSELECT 1\n```", "<think>```sql\nSELECT name FROM t WHERE id = 1\n```", "`" * 100_000,
    "```sql\n" * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("response", STRANGE)
def test_anything_gets_a_verdict(response):
    verification = score(task(rewards=[*REWARDS]), response)
    assert all(reward is not None and 0 <= reward <= 1 for reward in verification.rewards.values())
    assert verification.rewards["execution"] == 0
    if "SELECT 1" not in response:
        assert verification.rewards["valid"] == 0
    json.dumps(verification.to_dict())


@pytest.mark.parametrize(
    ("response", "reward", "evidence"),
    [
        ("```sql\nSELECT nam FROM t\n```", "valid", ["nam"]),
        ("```sql\nSELECT name FROM tt\n```", "valid", ["tt"]),
        ("```sql\nSELECT name FRM t\n```", "valid", ["t"]),
        ("```sql\nSELECT n FROM t WHERE id = 1\n```", "schema", ["n"]),
        ("```sql\nSELECT name FROM t WHERE id = 2\n```", "execution", ["WHERE id = 2"]),
        ("```sql\nSELECT n FROM t WHERE id = 1\n```", "execution", ["SELECT n "]),
        ("```sql\nSELECT name FROM t WHERE id = 1 LIMIT 0\n```", "execution", ["LIMIT 0"]),
        ("SELECT name FROM t", "format", Evidence.ABSENT),
    ],
)
def test_evidence_points_at_what_is_wrong(response, reward, evidence):
    verdict = score(task(), response)[reward]
    assert verdict.reward < 1
    if evidence is Evidence.ABSENT:
        assert verdict.evidence is evidence
    else:
        assert [response[a:b] for a, b in verdict.spans] == evidence


@pytest.mark.parametrize(
    ("gold", "found", "same"),
    [
        ("SELECT id FROM t ORDER BY name", "SELECT id FROM t ORDER BY name, id DESC", True),
        ("SELECT id FROM t ORDER BY name DESC", "SELECT id FROM t ORDER BY name", False),
        (
            "SELECT name, count(*) FROM t GROUP BY 1 ORDER BY count(*)",
            "SELECT name, count(*) FROM t GROUP BY name ORDER BY 2",
            True,
        ),
        ("SELECT DISTINCT name FROM t ORDER BY id", "SELECT DISTINCT name FROM t ORDER BY id DESC", False),
        ("SELECT * FROM t ORDER BY name", "SELECT * FROM t ORDER BY name, id DESC", True),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY id)", "SELECT id FROM t ORDER BY id DESC", True),
        ("SELECT id FROM t UNION SELECT 7 ORDER BY 1", "SELECT id FROM t UNION SELECT 7 ORDER BY 1 DESC", False),
        ("SELECT n FROM t WHERE id = 3", "SELECT NULL", True),
        ("SELECT n FROM t WHERE id = 1", "SELECT '1.5'", False),
        ("SELECT 1", "SELECT 1.0", True),
        ("SELECT 9007199254740993", "SELECT 9007199254740992", False),
        ("SELECT 1, 'x'", "SELECT 'x', 1", True),
        ("SELECT 1, 2 UNION ALL SELECT 2, 1", "SELECT 1, 1 UNION ALL SELECT 2, 2", False),
        ("SELECT x'61'", "SELECT 'a'", False),
    ],
)
def test_what_counts_as_the_same_result(gold, found, same):
    assert score(task(gold), f"```sql\n{found}\n```").rewards["execution"] == float(same)


PEOPLE = (
    """CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, age INTEGER);
INSERT INTO t VALUES (1,'b',30),(2,'a',30),(3,'c',20);
CREATE TABLE p(a, b); INSERT INTO p VALUES (1,2),(2,1);
CREATE TABLE w(id, s TEXT COLLATE NOCASE, d); INSERT INTO w VALUES (1,'A','2020-01-05'),(2,'a','2021-02-06'),(3,'b','2');
CREATE TABLE big(x); INSERT INTO big VALUES (1700000000),(1700000001);
CREATE TABLE f(x REAL); INSERT INTO f VALUES (0.3),(0.1 + 0.2),(1.0);
CREATE TABLE bits AS WITH RECURSIVE r(x) AS (VALUES(0) UNION ALL SELECT x+1 FROM r LIMIT 4096)
SELECT """
    + ", ".join(f"(x >> {i}) & 1 AS b{i}" for i in range(12))
    + " FROM r;"
)
LONG = f"SELECT name FROM t WHERE age IN ({', '.join(f'({i})' for i in range(160))}) ORDER BY name"
BITS = [f"b{i}" for i in range(12)]
PARITY = f"SELECT {', '.join(BITS[:11])}, ({' + '.join(BITS[:11])}) % 2 FROM bits"


@pytest.mark.parametrize(
    ("gold", "found", "same"),
    [
        # numbers
        ("SELECT count(*) FROM t", "SELECT 9e999", False),
        ("SELECT count(*) FROM t", "SELECT -9e999", False),
        ("SELECT 9e999", "SELECT 9e999 + 1", True),
        ("SELECT 9e999", "SELECT -9e999", False),
        ("SELECT max(x), avg(x) FROM big", "SELECT max(x) - 1, avg(x) FROM big", False),
        ("SELECT max(x), avg(x) FROM big", "SELECT avg(x) + 1e-7, max(x) FROM big", True),
        ("SELECT x FROM f", "SELECT round(x, 9) FROM f", True),
        ("SELECT 1000000001.0, 1", "SELECT 1, 1000000001", True),
        # the order that the gold query asks for
        ("SELECT * FROM t ORDER BY 3", "SELECT * FROM t ORDER BY 1", False),
        ("SELECT * FROM t ORDER BY 3", "SELECT * FROM t ORDER BY age, name", True),
        ("SELECT t.* FROM t ORDER BY 3 DESC", "SELECT * FROM t ORDER BY age", False),
        ("SELECT *, 1 FROM t ORDER BY (2)", "SELECT *, 1 FROM t ORDER BY id", False),
        ("SELECT a, b FROM p ORDER BY a", "SELECT b, a FROM p ORDER BY a", True),
        ("SELECT id, name FROM t ORDER BY id", "SELECT name, id FROM t ORDER BY name", False),
        ("SELECT CAST(d AS DATE), id FROM w ORDER BY w.id", "SELECT CAST(d AS DATE), id FROM w ORDER BY id", True),
        (LONG, LONG, True),
        (LONG, LONG + " DESC", False),
        ("SELECT name FROM t ORDER /* it */ BY name", "SELECT name FROM t ORDER BY name DESC", False),
        ("SELECT name FROM t -- ORDER BY name", "SELECT name FROM t ORDER BY name DESC", True),
        ("SELECT name FROM t ORDER BY name;", "SELECT name FROM t ORDER BY name", True),
        ("WITH q AS (SELECT * FROM t) SELECT name FROM q ORDER BY age", "SELECT name FROM t ORDER BY age, name", True),
        ("WITH q AS (SELECT * FROM t) SELECT name FROM q ORDER BY age", "SELECT name FROM t ORDER BY name", False),
        # ties
        ("SELECT id, age AS s FROM t ORDER BY -s", "SELECT id, age FROM t ORDER BY age DESC, id DESC", True),
        ("SELECT id, age AS s FROM t ORDER BY -s", "SELECT id, age FROM t ORDER BY age", False),
        ("SELECT id FROM w ORDER BY d > '3', s COLLATE NOCASE", "SELECT id FROM w ORDER BY s, id DESC", True),
        ("SELECT id FROM w ORDER BY s", "SELECT id FROM w ORDER BY s, id DESC", True),
        ("SELECT id FROM w ORDER BY s COLLATE BINARY DESC", "SELECT id FROM w ORDER BY s DESC, id", False),
        ("SELECT DISTINCT * FROM t ORDER BY age", "SELECT * FROM t ORDER BY age, id DESC", True),
        ("SELECT DISTINCT * FROM t ORDER BY age", "SELECT * FROM t ORDER BY id", False),
        ("SELECT DISTINCT age, name FROM t ORDER BY abs(age)", "SELECT age, name FROM t ORDER BY age, name", True),
        ("SELECT age AS x, name AS x FROM t ORDER BY x", "SELECT age, name FROM t ORDER BY age, name", True),
        ("SELECT age AS x, name AS x FROM t ORDER BY x", "SELECT age, name FROM t ORDER BY name", False),
        (
            "SELECT age FROM t UNION ALL SELECT 20 ORDER BY age",
            "SELECT age FROM t UNION ALL SELECT 20 ORDER BY 1",
            True,
        ),
        (
            "SELECT age FROM t UNION ALL SELECT 7 ORDER BY age",
            "SELECT age FROM t UNION ALL SELECT 7 ORDER BY 1 DESC",
            False,
        ),
        ("SELECT name, id FROM t ORDER BY age LIMIT 2", "SELECT name, id FROM t ORDER BY age, id LIMIT 2", True),
        # answers that are wrong whatever they are
        ("SELECT name FROM t", "VALUES (1)", False),
        ("SELECT name FROM t", "EXPLAIN SELECT name FROM t", False),
        (f"SELECT {', '.join(BITS)} FROM bits", PARITY, False),
        (f"SELECT {', '.join(BITS)} FROM bits", f"SELECT {', '.join(BITS[::-1])} FROM bits", True),
        ("SELECT value FROM json_each('[1,2]')", "SELECT 1 UNION SELECT 2", True),
    ],
)
def test_the_same_result_on_cases_that_a_reader_found(gold, found, same):
    one = make_task(question="q", gold_sql=gold, setup_sql=PEOPLE)
    start = time.monotonic()
    verdict = score(one, f"```sql\n{found}\n```")["execution"]
    assert verdict.reward == float(same), verdict
    assert score(one, solution(one)).rewards["execution"] == 1
    assert time.monotonic() - start < 8


def test_a_column_search_that_is_given_up_says_so(monkeypatch):
    monkeypatch.setattr("mrtpo_envs.text_to_sql.compare.MAX_CELLS", 30_000)
    one = make_task(question="q", gold_sql=f"SELECT {', '.join(BITS)} FROM bits", setup_sql=PEOPLE)
    verdict = score(one, f"```sql\n{PARITY}\n```")["execution"]
    assert verdict.reward == 0
    assert "too much alike" in verdict.outcome


@pytest.mark.parametrize(
    ("response", "format_", "execution"),
    [
        ("```sql\r\nSELECT name FROM t WHERE id = 1\r\n```\r\n", 1, 1),
        ("```sql\nSELECT name FROM t WHERE id = 1```", 0, 1),
        ("```sql\nSELECT name FROM t WHERE id = 1``` is it.", 0, 1),
        ("```sql\nSELECT 1```\nor\n```sql\nSELECT name FROM t WHERE id = 1\n```", 1, 1),
        ("```sql\nSELECT 1\n```sql\nSELECT name FROM t WHERE id = 1\n```", 1, 1),
        ("```sql\nSELECT name FROM t WHERE id = 1\n  ```  ", 1, 1),
        ("```sql\nSELECT name FROM t WHERE id = 1", 0, 1),
    ],
)
def test_where_a_code_block_ends(response, format_, execution):
    rewards = score(task(), response).rewards
    assert (rewards["format"], rewards["valid"], rewards["execution"]) == (format_, 1, execution)


@pytest.mark.parametrize(
    ("sql", "valid", "error", "prepared"),
    [
        ("SELECT interrupted FROM t", 0, "no_such_column", False),
        ("SELECT [out of memory] FROM t", 0, "no_such_column", False),
        ("SELECT * FROM [too big]", 0, "no_such_table", False),
        ("SELECT [one statement at a time] FROM t", 0, "no_such_column", False),
        ("SELECT sum(count(*)) FROM t", 0, "error", False),
        ("QUERY PLAN SELECT 1", 0, "syntax", False),
        ("SELECT abs(-9223372036854775808)", 1, "runtime_error", True),
        ("SELECT json_extract(name, '$.a') FROM t", 1, "runtime_error", True),
        ("SELECT hex(zeroblob(9000000))", 1, "too_big", True),
        ("SELECT value FROM json_each('[1]')", 1, None, True),
        ("SELECT value FROM json_tree('[1]')", 1, None, True),
    ],
)
def test_valid_means_that_sqlite_prepares_it(sql, valid, error, prepared):
    verdict = score(task(), f"```sql\n{sql}\n```")["valid"]
    assert verdict.reward == valid
    assert (verdict.details["error"], verdict.details["prepared"]) == (error, prepared)


@pytest.mark.parametrize(
    ("gold", "sql", "same"),
    [
        ("SELECT 1", "SELECT 1 " + "UNION SELECT 1 " * 40, False),
        ("SELECT 1 UNION SELECT 2 UNION SELECT 3", "SELECT 3 UNION (SELECT 1 UNION SELECT 2)", True),
        ("SELECT rank() OVER (ORDER BY n DESC) FROM t", "SELECT rank() OVER (ORDER BY n) FROM t", False),
        ("SELECT name FROM t ORDER BY n NULLS FIRST", "SELECT name FROM t ORDER BY n NULLS LAST", False),
        ("SELECT name FROM t ORDER BY n NULLS FIRST", "SELECT name FROM t ORDER BY n", True),
        ("SELECT name FROM t LIMIT 1", "SELECT name FROM t LIMIT 1 OFFSET 3", False),
        ("SELECT name FROM t LIMIT 1", "SELECT name FROM t LIMIT 5", True),  # Spider's rule
        ("SELECT name FROM t UNION SELECT 'x'", "SELECT name FROM t UNION ALL SELECT 'x'", False),
        ("SELECT a.name FROM t a, t b", "SELECT b.name FROM t a, t b", True),  # Spider's rule
        ("SELECT name FROM t", "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", False),
        ("SELECT name FROM t", "WITH x AS (UPDATE t SET n = 1 RETURNING *) SELECT * FROM x", False),
        ("SELECT name FROM t", "SELECT name FROM t UNION DESCRIBE t", False),
        ("SELECT name FROM t", "SELECT {:}", False),
    ],
)
def test_exact_set_reads_all_of_a_query_in_time(gold, sql, same):
    start = time.monotonic()
    verification = score(task(gold, rewards=[*REWARDS]), f"```sql\n{sql}\n```")
    assert verification.rewards["exact_set"] == float(same)
    assert None not in verification.rewards.values()
    assert time.monotonic() - start < 4


def test_a_solution_gets_full_reward_and_its_prompt_hides_the_gold():
    one = task()
    assert score(one, solution(one)).all_passed
    text = one.prompt.messages()[0]["content"]
    assert "CREATE TABLE t" in text
    assert "WHERE id = 1" not in text
    for verifier in one.verifiers:
        assert bool(verifier.statement(one)) != bool(verifier.reference(one))


@pytest.mark.parametrize(
    ("sql", "tables", "columns"),
    [
        ("SELECT x.name FROM t AS x", ["t"], ["t.name"]),
        ("SELECT [x]." + '"NAME" FROM `t` x', ["t"], ["t.name"]),
        ("SELECT * FROM t", ["t"], ["t.id", "t.n", "t.name"]),
        ("SELECT count(*) FROM t", ["t"], []),
        ('SELECT name FROM t WHERE name = "a"', ["t"], ["t.name"]),
        ("WITH t2 AS (SELECT name AS n FROM t) SELECT n FROM t2", ["t"], ["t.name"]),
        ("WITH u AS (SELECT b FROM u) SELECT name FROM t", ["t"], ["t.name"]),
        ("SELECT u.b FROM t JOIN u ON u.id = t.id", ["t", "u"], ["t.id", "u.b", "u.id"]),
        ("SELECT u.b FROM t JOIN u USING (id)", ["t", "u"], ["t.id", "u.b", "u.id"]),
        ("SELECT b FROM t NATURAL JOIN u", ["t", "u"], ["t.id", "u.b", "u.id"]),
        ("SELECT name FROM t WHERE EXISTS (SELECT 1 FROM u WHERE b = name)", ["t", "u"], ["t.name", "u.b"]),
        ("SELECT shown FROM v", ["v"], ["v.shown"]),
        ("WITH v AS (SELECT name FROM t) SELECT name FROM v", ["t"], ["t.name"]),
        ("SELECT name FROM t, u -- using (id)", ["t", "u"], ["t.name"]),
        ("SELECT name, 'natural' FROM t, u /* natural */", ["t", "u"], ["t.name"]),
        ("SELECT x FROM t JOIN u USING (id) JOIN g", ["g", "t", "u"], ["g.x", "t.id", "u.id"]),
        ("SELECT x FROM (t JOIN u USING (id)) JOIN g USING (id)", ["g", "t", "u"], ["g.id", "g.x", "t.id", "u.id"]),
        ("SELECT c FROM g", ["g"], ["g.c"]),
        ("WITH z AS (SELECT 1 FROM t JOIN u USING (id)) SELECT name FROM t, u", ["t", "u"], ["t.name"]),
        ("SELECT name FROM sqlite_master", [], []),
        ("SELECT 1", [], []),
        ("SELECT name FROM t, t t2", ["t"], None),  # ambiguous: sqlglot's best guess
        ("SELECT nam, id FROM t", ["t"], ["t.id"]),  # SQLite does not take it, and what can be told is told
        ("WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r) SELECT x, id FROM r, t", ["t"], ["t.id"]),
    ],
)
def test_tables_and_columns_are_those_that_sqlite_resolves(sql, tables, columns):
    setup = SETUP + "CREATE TABLE u(id INTEGER, b TEXT); CREATE VIEW v AS SELECT name AS shown, n FROM t;"
    setup += "CREATE TABLE g(id, x, c AS (x + 1));"
    one = make_task(question="q", gold_sql="SELECT 1", setup_sql=setup, limits=Limits(time_s=0.5))
    details = score(one, f"```sql\n{sql}\n```")["schema"].details
    assert details["tables"] == tables
    assert columns is None or details["columns"] == columns


def test_queries_that_a_killed_worker_had_not_begun_are_run():
    [path] = databases(task())
    killer = Query(path, "SELECT printf('%.*c', 1000000000, 'z')", Limits(time_s=0.1, value_bytes=2_000_000_000))
    ask = [Query(path, f"SELECT {i}") for i in range(200)]
    answers = execute_many([*ask[:50], killer, *ask[50:]])
    assert [a.rows for a in answers[:50] + answers[51:]] == [((i,),) for i in range(200)]


def test_results_that_are_kept_have_a_bound_in_bytes(monkeypatch):
    monkeypatch.setattr(pool, "KEPT_BYTES", 300_000)
    [path] = databases(task())
    one = pool.Pool(1)
    queries = [Query(path, f"SELECT hex(zeroblob({50_000 + i}))") for i in range(5)]
    one.prefetch(queries)
    assert len(one._kept) == 2  # none is held for the batch beside those that are kept
    assert one._bytes == sum(r.size + len(q.sql) for q, (r, _) in one._kept.items()) < 300_000
    assert [len(r.rows[0][0]) for r in one.run(queries)] == [100_000 + 2 * i for i in range(5)]
    one.close()


def test_a_timeout_is_forgotten_and_a_slow_gold_query_gets_time(monkeypatch):
    slow = "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r LIMIT 300000) SELECT count(*) FROM r"
    monkeypatch.setattr(gold, "PATIENCE", 40)
    monkeypatch.setattr(verifiers, "PATIENCE", 40)
    one = task(slow, limits=Limits(time_s=run(slow, time_s=10).seconds / 4))
    assert score(one, solution(one)).rewards["execution"] == 1  # the gold query itself takes longer
    query = Query(databases(one)[0], BOMBS["endless"], Limits(time_s=0.05))
    first = execute(query)
    assert first.error == "timeout"
    assert execute(query) is first
    now = time.monotonic()
    monkeypatch.setattr(pool.time, "monotonic", lambda: now + 61)
    assert pool._pool()._look_up(query) is None


def test_forked_children_have_workers_of_their_own():
    one = task()
    [path] = databases(one)
    assert execute(Query(path, "SELECT 'parent'")).ok
    children = []
    for child in range(3):
        if (pid := os.fork()) == 0:
            answers = [execute(Query(path, f"SELECT {child * 1000 + i}")).rows for i in range(60)]
            right = answers == [((child * 1000 + i,),) for i in range(60)]
            pool._pool().close()
            os._exit(0 if right else 1)
        children.append(pid)
    mine = [execute(Query(path, f"SELECT -{i + 1}")).rows for i in range(60)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    assert mine == [((-i - 1,),) for i in range(60)]
    assert Path(path).exists()


def test_a_database_that_is_not_all_in_its_file_is_refused(tmp_path):
    path = tmp_path / "wal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1)")
        with pytest.raises(mrtpo_envs.TaskError, match=r"wal\.sqlite-wal holds changes.*wal_checkpoint"):
            make_task(question="q", gold_sql="SELECT x FROM t", database=path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    one = make_task(question="q", gold_sql="SELECT x FROM t", database=path)
    assert score(one, solution(one)).all_passed
    path.with_name("wal.sqlite-journal").write_bytes(bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(mrtpo_envs.TaskError, match="open it once to write"):
        schema_of.__wrapped__(str(path))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"not a database" * 500)])
def test_a_database_that_is_gone_is_not_the_responses_fault(damage, tmp_path):
    path = tmp_path / "x.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(SETUP)
    one = make_task(question="q", gold_sql="SELECT name FROM t", database=path)
    damage(path)
    verification = score(one, solution(one))
    assert verification.rewards["valid"] is None
    assert verification.rewards["execution"] is None


# the environment ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("level", LEVELS)
def test_generated_tasks_tell_right_from_wrong(level, split):
    generate = TaskGenerator(levels=[level], split=split, seed=3)
    tasks = [generate(i) for i in range(15)]
    other = "```sql\nSELECT id FROM sqlite_master\n```"
    right, wrong = (score_many([(t, text or solution(t)) for t in tasks]) for text in ("", other))
    assert all(v.all_passed for v in right), [v.to_dict() for v in right if not v.all_passed][:1]
    assert not any(v.rewards["execution"] for v in wrong)
    assert len({t.prompt.text for t in tasks}) >= 5


def test_no_schema_is_in_both_splits():
    names = [{t.table for t in THEMES[s]} | {t.child for t in THEMES[s]} for s in ("train", "test")]
    assert not names[0] & names[1]


def test_a_failed_query_may_be_tried_again_and_the_last_one_counts():
    env = mrtpo_envs.make("TextToSQL", max_turns=2)
    env.reset(options={"task": 0})
    observation, _, terminated, _, _ = env.step("```sql\nSELECT x FROM nowhere\n```")
    assert "no such table: nowhere" in observation
    assert not terminated
    _, _, terminated, _, info = env.step(solution(env.tasks()[0]))
    assert terminated
    assert info["verification"].all_passed
    env.reset(options={"task": 0})
    assert env.step("```sql\nSELECT 'wrong'\n```")[2]  # a result is an answer
    env.reset(options={"task": 0})
    observation, _, terminated, _, _ = env.step("```sql\nSELECT 1 WHERE 0\n```")
    assert "an empty result" in observation
    assert not terminated


def test_the_outcome_of_an_empty_result_does_not_tell_whether_the_gold_result_is_empty():
    outcomes = [
        score(task(gold), "```sql\nSELECT 1 WHERE 0\n```")["execution"] for gold in ("SELECT 2 WHERE 0", "SELECT 2")
    ]
    assert outcomes[0].outcome == outcomes[1].outcome
    assert [v.reward for v in outcomes] == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"question": " "}, "must not be blank"),
        ({"setup_sql": None}, "setup_sql or database, one of the two"),
        ({"database": "x"}, "one of the two"),
        ({"setup_sql": None, "database": "/no/such.sqlite"}, "there is no database file"),
        ({"setup_sql": None, "database": __file__}, "is no SQLite database"),
        ({"setup_sql": "CREATE TABEL x"}, "setup_sql is not what SQLite takes"),
        ({"rewards": []}, "one or more of"),
        ({"rewards": ["valdi"]}, "Did you mean 'valid'"),
    ],
)
def test_bad_tasks_are_refused(options, message):
    given = {"question": "Which?", "gold_sql": "SELECT 1", "setup_sql": SETUP} | options
    with pytest.raises(mrtpo_envs.MrtpoError, match=message):
        make_task(**given)


MANY = ";".join(f"CREATE TABLE t{i}(a INTEGER, b TEXT)" for i in range(100))
WIDE = "CREATE TABLE w(id INTEGER PRIMARY KEY, " + ", ".join(f"column_{i} TEXT" for i in range(200)) + ")"


@pytest.mark.parametrize(
    ("setup", "gold", "there"),
    [
        (MANY, "SELECT a FROM t77", "TABLE t77(a INTEGER, b TEXT);"),
        (WIDE, "SELECT column_150 FROM w", "column_150 TEXT"),
        (MANY + ";" + WIDE, "SELECT column_3 FROM w, T5", "TABLE t5("),
    ],
)
def test_a_long_schema_is_cut_to_its_budget_and_keeps_what_the_gold_query_needs(setup, gold, there):
    one = make_task(question="q", gold_sql=gold, setup_sql=setup, schema_tokens=100)
    schema = one.prompt.messages()[0]["content"].partition("\n\nQuestion")[0]
    assert there in schema
    assert 60 < estimate_tokens(schema) <= 100
    assert len(make_task(question="q", gold_sql=gold, setup_sql=setup, count_tokens=lambda t: 1).prompt.text) > 3000


def test_what_the_gold_query_needs_stays_even_over_the_budget():
    gold = "SELECT " + ", ".join(f"column_{i}" for i in range(50)) + " FROM w"
    text = make_task(question="q", gold_sql=gold, setup_sql=WIDE, schema_tokens=20).prompt.text
    assert all(f"column_{i} TEXT" in text for i in range(50))
    assert "column_60" not in text


def test_values_can_be_shown():
    text = task(sample_values=2).prompt.messages()[0]["content"]
    assert "-- name: a, b" in text


def test_another_process_that_is_killed_is_replaced():
    [path] = databases(task())
    slow = Query(path, "SELECT printf('%.*c', 1000000000, 'y')", Limits(time_s=0.3, value_bytes=2_000_000_000))
    assert execute(slow).error in ("killed", "too_big", "timeout")
    assert execute(Query(path, "SELECT 41 + 1")).rows == ((42,),)


def garbled(rng, sql):
    """Something near to SQL: pieces of it at random, or a query with some taken out and put in."""
    pieces = (
        "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT name id count(*) ( ) , . ; ' \" ` [ ] = > 1 'x' CREATE TABLE "
        "IF WITH AS JOIN ON USING UNION ALL EXCEPT * a. .b -- /* */ VALUES NOT IN INSERT PRAGMA NULL ? :a ```sql ```"
    ).split(" ")
    words = [rng.choice(pieces) for _ in range(rng.randint(0, 12))] if rng.random() < 0.5 else sql.split(" ")
    for _ in range(rng.randint(0, 3)):
        words.insert(rng.randint(0, len(words)), rng.choice(pieces))
        if rng.random() < 0.5:
            words.pop(rng.randrange(len(words)))
    return f"```sql\n{' '.join(words)}\n```"


def test_every_response_is_judged_and_nothing_is_printed(capfd, caplog):
    rng = random.Random(5)
    generate = TaskGenerator(levels=[*LEVELS], rewards=[*REWARDS])
    tasks = [generate(i) for i in range(60)]
    pairs = [(task, garbled(rng, task.privileged["gold_sql"])) for task in tasks for _ in range(25)]
    verifications = score_many(pairs)
    lost = [pair[1] for pair, v in zip(pairs, verifications, strict=True) if None in v.rewards.values()]
    assert lost == []
    assert any('near "."' in v["valid"].outcome for v in verifications)  # the message that names nothing
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")
