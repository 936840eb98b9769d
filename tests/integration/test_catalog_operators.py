"""What an operator asks and does of a ledger in a catalog comes to what it comes to on a path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from delta_tables.consumer_offsets import CONSUMER_OFFSETS
from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.group_status import ledger_status
from delta_tables.idempotent import append_arrow_once
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.opened_ledger import OpenedLedger
from delta_tables.replays import REPLAYS
from delta_tables.skipped_messages import SKIPPED_MESSAGES
from delta_tables.sql_literal import literal
from delta_tables.table import Table
from delta_tables.views import TABLES, VIEWS
from jobs.dlq.choice import KEY, DeadLetterChoice
from jobs.dlq.replay import Replay
from jobs.skip.message_state import GroupLedger, Place
from jobs.skip.skip import skip
from lakemq.cli import task
from lakemq.cli.app import main
from lakemq.client import Client
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import (
    START,
    append,
    dead_letter,
    delivery,
    path_ledger,
    query,
    replayed,
    report,
)
from tests.unit.jobs.dlq.test_replay import _Sends

SCHEMA = "spark_catalog.lakemq_operated"
NOW = START + timedelta(minutes=10)
NOBODY = Client("http://127.0.0.1:9", retries=0)
QUOTE = r"it's a \ and \n"


@pytest.fixture(scope="module")
def on_path(tmp_path_factory: pytest.TempPathFactory) -> PathLedger:
    """A group with each kind of verdict."""
    ledger = path_ledger(tmp_path_factory.mktemp("ledger"))
    ledger.create(*TABLES)
    sent = {"topic": "invoices", "message_id": "S", "keys": None, "tags": None, "body": b"x"}
    kept = {"table_name": "ledger_rows", "row_json": '{"a": 1}'}
    rows = [
        *(delivery(offset) for offset in range(4)),
        delivery(4, sends=2, outbox=[sent, sent | {"topic": "audit"}], writes=1, table_rows=[kept]),
        delivery(5, verdict="RETRY", reason=QUOTE, body=b"\x00\xff", properties={"a": "b"}),
        *(delivery(offset, verdict="DEAD", reason=QUOTE, body=b"x") for offset in (6, 7, 8)),
    ]
    append(ledger, DELIVERIES, rows)
    letters = [
        dead_letter(offset, 1, reason=QUOTE, body=b"\x00\xff", properties={"a": "b"}, first_attempt_at=START)
        for offset in (6, 7, 8)
    ]
    append(ledger, DEAD_LETTERS, letters)
    report(ledger, 0, 9)
    return ledger


@pytest.fixture(scope="module")
def in_catalog(spark: SparkSession, on_path: PathLedger) -> Iterator[CatalogLedger]:
    """The same rows; tables that nobody has written yet are not there."""
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    ledger = CatalogLedger(SCHEMA)
    filled = (DELIVERIES, DEAD_LETTERS, CONSUMER_OFFSETS)
    ledger.create(*filled, spark=spark)
    for table in filled:
        found = pa.Table.from_pylist(query(on_path, f"SELECT * FROM {table.name}"), table.arrow_schema)
        assert append_arrow_once(found, ledger, table, app_id="test", version=1, spark=spark)
    yield ledger
    for table in TABLES:
        spark.sql(f"DROP TABLE IF EXISTS {ledger.qualified(table)}")
    spark.sql(f"DROP SCHEMA {SCHEMA}")


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a command prints about the catalog, as JSON."""
    assert main([*words, "--ledger", SCHEMA, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_table_and_a_view_have_the_same_rows(
    spark: SparkSession, on_path: PathLedger, in_catalog: CatalogLedger
) -> None:
    reader, path = OpenedLedger(SCHEMA, spark).reader.snapshot(), LedgerReader(on_path.directory)
    for name in (*(table.name for table in TABLES), *VIEWS):
        text = f"SELECT * FROM {name}"
        found, wanted = (each.sql(text) for each in (reader, path))
        assert found.column_names == wanted.column_names, name
        assert _rows(found) == _rows(wanted), name


@pytest.mark.parametrize(
    "text",
    [
        "SELECT verdict, count(*) AS n FROM deliveries GROUP BY verdict ORDER BY n DESC, verdict",
        "SELECT queue_offset FROM deliveries ORDER BY queue_offset DESC;",
        'SELECT "verdict" AS v FROM deliveries WHERE queue_offset = 5 -- a remark',
        f"SELECT count(*) AS n FROM deliveries WHERE reason = {literal(QUOTE)}",
        "WITH a AS (SELECT max(queue_offset) AS m FROM deliveries) SELECT m FROM a",
        "VALUES (1, 'x')",
        "SELECT '${spark.app.name}' AS text",
    ],
)
def test_a_statement_has_the_result_that_it_has_without_spark(
    in_catalog: CatalogLedger, on_path: PathLedger, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert main(["sql", text, "--ledger", str(on_path), "--format", "json"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    found = asked(capsys, "sql", text)
    assert [list(row.values()) for row in found] == [list(row.values()) for row in wanted]
    assert wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"WITH a AS (SELECT 1 AS x) INSERT INTO {SCHEMA}.deliveries SELECT * FROM a", "INSERT"),
        (f"FROM deliveries INSERT INTO {SCHEMA}.deliveries SELECT *", "INSERT"),
        (f"DROP TABLE {SCHEMA}.deliveries", "the statement begins with 'DROP'"),
        (f"SELECT 1) ; DROP TABLE {SCHEMA}.deliveries; (", "Syntax error"),
        (
            "SELECT java_method('java.lang.System', 'getProperty', 'x') AS x",
            "java_method calls what",
        ),
        ("SELECT nothing FROM deliveries", "`nothing` cannot be resolved"),
        ("SELECT 1 AS a, 2 AS a", "several columns are called a"),
        ("SELECT CAST('x' AS INT) AS n", "cannot be cast"),
    ],
)
def test_what_is_no_question_is_refused_in_one_line(
    spark: SparkSession,
    in_catalog: CatalogLedger,
    capsys: pytest.CaptureFixture[str],
    text: str,
    said: str,
) -> None:
    assert main(["sql", text, "--ledger", SCHEMA]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert spark.sql(f"SELECT * FROM {in_catalog.qualified(DELIVERIES)}").count() == 9


def test_spark_answers_about_a_ledger_on_a_path_when_it_is_asked_to(
    spark: SparkSession, on_path: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "SELECT percentile(queue_offset, 0.5) AS middle FROM deliveries"  # one of Spark's own functions
    assert main(["sql", text, "--ledger", str(on_path), "--engine", "spark", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"middle": 4.0}]
    assert main(["sql", text, "--ledger", str(on_path)]) == 1
    assert "there is no function percentile" in capsys.readouterr().err


def test_a_catalog_that_is_not_known_is_named(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", "SELECT 1 AS n", "--ledger", "nowhere.lakemq"]) == 1
    said = capsys.readouterr().err
    assert "nowhere.lakemq cannot be read" in said
    assert "the session knows no catalog nowhere: --conf spark.sql.catalog.nowhere=CLASS" in said
    assert main(["sql", "SELECT 1 AS n", "--ledger", "spark_catalog.nothing"]) == 1
    assert "no ledger at spark_catalog.nothing: a group's first run makes it" in capsys.readouterr().err


def test_a_group_fares_the_same(spark: SparkSession, on_path: PathLedger, in_catalog: CatalogLedger) -> None:
    wanted = ledger_status(LedgerReader(on_path.directory), "g", NOW)
    assert ledger_status(OpenedLedger(SCHEMA, spark).reader, "g", NOW) == wanted
    assert wanted.handling
    assert (wanted.pending_sends, wanted.pending_retries) == (2, 1)


def test_dead_letters_are_listed_shown_exported_and_discarded(
    in_catalog: CatalogLedger, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of_group = ("--group", "g")
    assert [each["queue_offset"] for each in asked(capsys, "dlq", "list", *of_group)] == [6, 7, 8]
    (shown,) = asked(capsys, "dlq", "show", "ID7", *of_group)
    assert [each["verdict"] for each in shown["history"]] == ["DEAD"]
    file = tmp_path / "letters.parquet"
    assert asked(capsys, "dlq", "export", *of_group, "--to", str(file))["exported"] == 3
    exported = pq.read_table(file).to_pylist()
    assert {row["body"] for row in exported} == {b"\x00\xff"}
    assert {tuple(row["properties"]) for row in exported} == {(("a", "b"),)}
    one = ("--where", "queue_offset = 6", "--reason", "no use")
    assert asked(capsys, "dlq", "discard", *of_group, *one)["would_discard"] == 1
    assert asked(capsys, "dlq", "discard", *of_group, *one, "--execute")["discarded"] == 1
    assert [each["queue_offset"] for each in asked(capsys, "dlq", "list", *of_group)] == [7, 8]
    assert asked(capsys, "dlq", "discard", *of_group, *one, "--execute")["discarded"] == 0
    assert main(["dlq", "list", "--group", "h", "--ledger", SCHEMA]) == 1
    assert f"there is no group h: the ledger {SCHEMA} has g" in capsys.readouterr().err


def test_dead_letters_are_replayed_once(spark: SparkSession, in_catalog: CatalogLedger) -> None:
    broker = _Sends()

    def replayed() -> int:
        return Replay(DeadLetterChoice(SCHEMA, "g", "queue_offset > 6", spark=spark)).send(broker).sent

    assert (replayed(), replayed()) == (2, 0)
    assert len(set(broker.keys)) == 2
    rows = spark.sql(f"SELECT operator FROM {SCHEMA}.replays WHERE action = 'REPLAY'").collect()
    assert len(rows) == 2


def test_what_waits_to_be_sent_or_written_is_listed_and_given_up(
    in_catalog: CatalogLedger, on_path: PathLedger, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = ("outbox", "list", "--group", "g")
    assert main([*listed, "--ledger", str(on_path), "--format", "json"]) == 0
    wanted = json.loads(capsys.readouterr().out)
    assert asked(capsys, *listed) == wanted
    assert [(each["number"], each["sent_topic"], each["sent_table"]) for each in wanted] == [
        (1, "invoices", None),
        (2, "audit", None),
        (3, None, "ledger_rows"),
    ]
    one = ("outbox", "discard", "--group", "g", "--where", "number = 2", "--reason", "no use", "--execute")
    assert asked(capsys, *one)["discarded"] == 1
    assert [each["number"] for each in asked(capsys, *listed)] == [1, 3]


def test_a_message_is_given_up_once(spark: SparkSession, in_catalog: CatalogLedger) -> None:
    group, at = GroupLedger(SCHEMA, "g", spark=spark), Place("orders", "broker-a", 0, 5)
    _, state = skip(group, NOBODY, at, "no use")
    assert (state.state, state.attempts) == ("RETRY", 1)
    with pytest.raises(InvalidRequest, match="is given up already, since"):
        skip(group, NOBODY, at, "no use")
    assert _count(spark, in_catalog, SKIPPED_MESSAGES) == 1
    with pytest.raises(InvalidRequest, match="is done: acknowledged"):
        skip(group, NOBODY, Place("orders", "broker-a", 0, 1), "no use")


def test_two_commands_at_one_time_leave_each_row_once(spark: SparkSession, in_catalog: CatalogLedger) -> None:
    """No lock keeps them apart in a catalog: both have chosen before either writes."""
    letters = [row | {"operator": name} for name in ("anna", "bert") for row in [replayed(7, 1, "DISCARD")]]
    ledgers = [OpenedLedger(SCHEMA, spark) for _ in letters]
    chosen = threading.Barrier(len(letters))

    def write(number: int) -> None:
        with ledgers[number].only_writer(REPLAYS):
            chosen.wait()
            rows = pa.Table.from_pylist([letters[number]], REPLAYS.arrow_schema)
            once = ("consumer_group", *KEY, "action")
            ledgers[number].append(rows, REPLAYS, once=once, app_id=str(number), version=1)

    with ThreadPoolExecutor(len(letters)) as threads:
        for done in [threads.submit(write, number) for number in range(len(letters))]:
            done.result()
    found = spark.sql(f"SELECT operator FROM {SCHEMA}.replays WHERE queue_offset = 7 AND action = 'DISCARD'")
    assert found.count() == 1


def test_a_task_of_a_cluster_runs_the_command(
    in_catalog: CatalogLedger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["lakemq-operator-task", "dlq", "list", "--ledger", SCHEMA, "--group"]
    monkeypatch.setattr(sys, "argv", [*words, "g"])
    task.main()
    assert capsys.readouterr().out.startswith("topic  broker_name")
    monkeypatch.setattr(sys, "argv", [*words, "nobody"])
    with pytest.raises(SystemExit) as ended:
        task.main()
    assert ended.value.code == 1


def test_a_snapshot_stays_what_it_was(spark: SparkSession, in_catalog: CatalogLedger) -> None:
    before = OpenedLedger(SCHEMA, spark).reader.snapshot()
    more = pa.Table.from_pylist([delivery(99)], schema=DELIVERIES.arrow_schema)
    append_arrow_once(more, in_catalog, DELIVERIES, app_id="test", version=2, spark=spark)
    text = "SELECT count(*) AS n FROM deliveries"
    assert before.sql(text).to_pylist() == [{"n": 9}]
    assert OpenedLedger(SCHEMA, spark).reader.sql(text).to_pylist() == [{"n": 10}]


def _rows(table: pa.Table) -> list[str]:
    """In one order, without what depends on the time of the question."""
    return sorted(
        repr({name: value for name, value in row.items() if name != "age"}) for row in table.to_pylist()
    )


def _count(spark: SparkSession, ledger: CatalogLedger, table: Table) -> int:
    return spark.sql(f"SELECT * FROM {ledger.qualified(table)}").count()


def test_a_command_that_starts_spark_leaves_nothing_behind(tmp_path: Path) -> None:
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "lakemq.cli", "sql", "SELECT 1", "--ledger", "spark_catalog.nothing"],
        cwd=here,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert "no ledger at spark_catalog.nothing" in ended.stderr
    assert [*here.iterdir()] == []
    assert [found.name for found in scratch.glob("lakemq-*")] == []
