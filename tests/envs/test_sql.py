"""Text-to-SQL: cases from public bug reports, and queries that mean harm."""

import hashlib
import json
import random
import time
from pathlib import Path

import pytest

import mrtpo_envs
from mrtpo_envs import Evidence, score, score_many
from mrtpo_envs.text_to_sql import LEVELS, Limits, TaskGenerator, make_task, pool, solution
from mrtpo_envs.text_to_sql.database import estimate_tokens
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
        ("SELECT name FROM sqlite_master", [], []),
        ("SELECT 1", [], []),
        ("SELECT name FROM t, t t2", ["t"], None),  # ambiguous: sqlglot's best guess
        ("SELECT nam, id FROM t", ["t"], ["t.id"]),  # SQLite does not take it, and what can be told is told
        ("WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r) SELECT x, id FROM r, t", ["t"], ["t.id"]),
    ],
)
def test_tables_and_columns_are_those_that_sqlite_resolves(sql, tables, columns):
    setup = SETUP + "CREATE TABLE u(id INTEGER, b TEXT); CREATE VIEW v AS SELECT name AS shown, n FROM t;"
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


def test_results_that_are_kept_have_a_bound(monkeypatch):
    monkeypatch.setattr(pool, "KEPT_CELLS", 250)
    [path] = databases(task())
    one = pool.Pool(1)
    count = "WITH RECURSIVE r(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM r LIMIT 100) SELECT x FROM r"
    for i in range(5):
        [result] = one.run([Query(path, f"{count} -- {i}")])
        assert len(result.rows) == 100
    assert sum(r.cells for r in one._kept.values()) == one._cells == 200
    one.close()


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
