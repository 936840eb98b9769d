"""Groups whose handler is a function of DataFrames: a real broker, real Spark, real Delta.

Contract: each message has the verdict of its row, and one row in the ledger for each attempt, whatever the
function's frame is; a message that makes the function fail takes no other along; what cannot be a group's
function is refused before a message is handled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakemq.spark
from delta_tables.ledger_reader import LedgerReader
from jobs.frames.evaluation import CANNOT_RETURN, ISOLATED, FrameEvaluation
from jobs.frames.frame_handler import FrameHandler, sql_handler
from jobs.frames.frame_verdicts import NO_ROW
from jobs.group.message_frame import message_schema
from jobs.redelivery.retry_policy import RetryPolicy
from lakemq import Message
from store_native.errors import InvalidRequest
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

EMPTY = ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters")


def rows(ledger: Path, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in LedgerReader(ledger).sql(text).to_pylist()]


def send(broker: BrokerProcess, topic: str, *texts: str) -> None:
    with broker.client() as client:
        client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
        client.send_many(topic, [Message(text, keys=[text]) for text in texts])
        await_dispatch(client)


def run(broker: BrokerProcess, topic: str, ledger: Path, function: Any, **options: object) -> None:
    """Runs the topic's group until there is nothing left to do."""
    values: dict[str, object] = {
        "topic": topic,
        "endpoint": broker.endpoint,
        "ledger": ledger,
        "from_": "earliest",
        "max_reconsume_times": 1,
        "retry_delays": "1s",
        "trigger": "100ms",
        "until_idle": "500ms",
    }
    lakemq.spark.group(f"group-of-{topic}", **(values | options)).run(function)


@contextmanager
def customers(spark: SparkSession, *names: str) -> Iterator[None]:
    spark.createDataFrame([(name,) for name in names], "customer string").write.format("delta").mode(
        "append"
    ).saveAsTable("frame_customers")
    yield
    spark.sql("DROP TABLE frame_customers")


def test_each_message_has_the_verdict_of_its_row_over_a_join_and_a_restart(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    def judge(messages: DataFrame) -> DataFrame:
        text = F.col("body").cast("string")
        known = spark.table("frame_customers")
        joined = messages.withColumn("customer", text).join(
            known.withColumn("known", F.lit(1)), "customer", "left"
        )
        judged = (
            joined.where(text != "missing")
            .withColumn(
                "verdict",
                F.when(text == "late", F.when(F.col("attempt") == 1, "RETRY"))
                .when(text == "twice", "ACK")
                .when(text == "wrong", F.when(F.col("attempt") == 1, "ack"))
                .when(F.col("known").isNull(), "DEAD"),
            )
            .withColumn("delay", F.lit("500ms"))
            .withColumn("reason", F.concat(F.lit("not a customer: "), text))
        )
        return judged.union(judged.where(text == "twice"))

    ledger = tmp_path / "ledger"
    with customers(spark, "ada", "bob"):
        send(shared_broker, "judged", "ada", "bob", "eve", "late", "twice", "missing", "wrong")
        run(shared_broker, "judged", ledger, judge)
        spark.sql("INSERT INTO frame_customers VALUES ('carl')")
        send(shared_broker, "judged", "carl")
        run(shared_broker, "judged", ledger, judge)

    twice = "the frame has 2 rows for this message, not one"
    wrong = "'ack' is not a verdict: ACK, RETRY or DEAD"
    assert rows(
        ledger,
        "SELECT keys[1], attempt, verdict, CASE WHEN verdict <> 'ACK' THEN reason END FROM deliveries "
        "ORDER BY 1, 2",
    ) == [
        ("ada", 1, "ACK", None),
        ("bob", 1, "ACK", None),
        ("carl", 1, "ACK", None),
        ("eve", 1, "DEAD", "not a customer: eve"),
        ("late", 1, "RETRY", "not a customer: late"),
        ("late", 2, "ACK", None),
        ("missing", 1, "RETRY", NO_ROW),
        ("missing", 2, "DEAD", NO_ROW),
        ("twice", 1, "RETRY", twice),
        ("twice", 2, "DEAD", twice),
        ("wrong", 1, "RETRY", wrong),
        ("wrong", 2, "ACK", None),
    ]
    for view in EMPTY:
        assert rows(ledger, f"SELECT * FROM {view}") == [], view
    assert sorted(rows(ledger, "SELECT keys[1] FROM dead_letters")) == [("eve",), ("missing",), ("twice",)]
    cached = spark._jsparkSession.sharedState().cacheManager()  # noqa: SLF001 - Python has no name for it
    assert cached.isEmpty(), "the messages of each batch are let go"


@pytest.mark.nightly
def test_a_message_that_a_udf_raises_for_takes_no_other_along(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    def charge(amount: str) -> str:
        if int(amount) == 13:
            raise ValueError("no thirteen")
        if int(amount) == 29:
            os._exit(7)
        return "ACK"

    charged = F.udf(charge, "string", useArrow=False)
    ledger = tmp_path / "ledger"
    send(shared_broker, "charged", *map(str, range(40)))
    run(
        shared_broker,
        "charged",
        ledger,
        lambda messages: messages.withColumn("verdict", charged(F.col("body").cast("string"))),
    )
    assert rows(ledger, "SELECT verdict, attempt, count(*) FROM deliveries GROUP BY 1, 2 ORDER BY 1, 2") == [
        ("ACK", 1, 38),
        ("DEAD", 2, 2),
        ("RETRY", 1, 2),
    ]
    failed = "SELECT error_type, error_text FROM deliveries WHERE verdict <> 'ACK' AND keys[1] = '13'"
    assert rows(ledger, failed) == [("ValueError", "no thirteen")] * 2
    ended = rows(ledger, "SELECT error_text FROM deliveries WHERE verdict <> 'ACK' AND keys[1] = '29'")
    assert len(ended) == 2
    assert all(text.startswith("Python worker exited unexpectedly") for (text,) in ended), ended
    for view in EMPTY:
        assert rows(ledger, f"SELECT * FROM {view}") == [], view


def test_a_message_that_cannot_come_again_has_a_call_of_its_own_before_it_is_given_up(
    spark: SparkSession,
) -> None:
    """Among so many that fail that the search for others ends before it is found."""
    names = [f"bad-{number}" for number in range(64)]
    names[40] = "good"
    stays = [(name, 0, at, name == "good") for at, name in enumerate(names)]
    messages = spark.createDataFrame(
        stays, f"topic string, queue_id int, queue_offset bigint, {CANNOT_RETURN} boolean"
    )
    messages = messages.selectExpr("*", "'b' AS broker_name", "1 AS attempt", f"false AS {ISOLATED}")

    def judge(batch: DataFrame) -> DataFrame:
        fails = F.raise_error(F.concat(F.lit("no use: "), F.col("topic"))).cast("string")
        return batch.withColumn("verdict", F.when(F.col("topic") != "good", fails).otherwise("ACK"))

    policy = RetryPolicy.of("1s", [1_000], 5)
    decided = FrameEvaluation(FrameHandler("judge", judge), policy).decide(messages)
    assert decided.results.verdict is not None
    said = dict(
        zip(decided.messages.column("topic").to_pylist(), decided.results.verdict.to_pylist(), strict=True)
    )
    assert said.pop("good") == "ACK"
    assert set(said.values()) == {"RETRY"}


def test_a_row_of_no_message_refuses_the_frame_and_the_messages_come_again(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    def judge(messages: DataFrame) -> DataFrame:
        judged = messages.withColumn("verdict", F.lit("ACK"))
        stranger = judged.where("attempt = 1").withColumn("queue_offset", F.col("queue_offset") + 1_000_000)
        return judged.union(stranger)

    ledger = tmp_path / "ledger"
    send(shared_broker, "stranger", "a", "b", "c")
    run(shared_broker, "stranger", ledger, judge)
    found = rows(ledger, "SELECT keys[1], attempt, verdict, error_text FROM deliveries ORDER BY 1, 2")
    assert [row[:3] for row in found] == [
        (key, attempt, verdict) for key in "abc" for attempt, verdict in ((1, "RETRY"), (2, "ACK"))
    ]
    assert all("a row of no message of the batch" in row[3] for row in found if row[2] == "RETRY")
    assert rows(ledger, "SELECT * FROM duplicate_deliveries") == []


def test_a_function_whose_frame_cannot_be_a_groups_is_refused_before_a_message_is_handled(
    spark: SparkSession, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    send(shared_broker, "refused", "a")
    for function, reason in [
        (lambda messages: messages, "<lambda>: its frame has no column 'verdict', but topic, broker_name"),
        (lambda messages: messages.selectExpr("*", "colour AS verdict"), "colour"),
        (
            lambda messages: messages.selectExpr("*", "1 AS verdict"),
            "verdict is int in its frame, not string",
        ),
        (lambda messages: messages.selectExpr("*", "'ACK' AS verdict", "1.5 AS delay"), "delay is decimal"),
        (lambda messages: messages.selectExpr("'x' AS topic", "* ", "'ACK' AS verdict"), "more than once"),
        (
            lambda messages: messages.selectExpr("* EXCEPT (attempt)", "'ACK' AS verdict"),
            "no column 'attempt'",
        ),
        (lambda messages: messages.count(), "returned no DataFrame but int"),
        (lambda messages: spark.table("not_there"), "not_there"),
    ]:
        with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL") as refused:
            run(shared_broker, "refused", ledger, function)
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)
    run(shared_broker, "refused", ledger, lambda messages: messages.selectExpr("*", "'ACK' AS verdict"))
    assert rows(ledger, "SELECT verdict, attempt FROM deliveries") == [("ACK", 1)]


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE frame_kept",
        "INSERT INTO frame_kept VALUES (2)",
        "CREATE TABLE frame_made AS SELECT * FROM batch",
        "BEGIN DROP TABLE frame_kept; END",
        "SELECT 1; DROP TABLE frame_kept",
    ],
)
def test_a_text_that_is_no_query_is_refused_and_not_carried_out(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    (tmp_path / "verdicts.sql").write_text(text)
    spark.sql("CREATE TABLE frame_kept (one INT) USING delta")
    try:
        nothing = spark.createDataFrame([], "topic string")
        with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
            sql_handler(tmp_path / "verdicts.sql").check(nothing)
        assert spark.table("frame_kept").count() == 0
        assert not spark.catalog.tableExists("frame_made")
    finally:
        spark.sql("DROP TABLE IF EXISTS frame_kept")
        spark.sql("DROP TABLE IF EXISTS frame_made")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT *, 'ACK' AS verdict FROM batch",
        "\ufeffSELECT *, 'ACK' AS verdict FROM batch;\n",
        "WITH own AS (SELECT * FROM batch) SELECT *, 'ACK' AS verdict FROM own -- all of them",
        "FROM batch SELECT *, 'ACK' AS verdict",
    ],
)
def test_every_form_of_a_query_is_taken(spark: SparkSession, tmp_path: Path, text: str) -> None:
    (tmp_path / "verdicts.sql").write_text(text, encoding="utf-8")
    sql_handler(tmp_path / "verdicts.sql").check(spark.createDataFrame([], message_schema()))


@pytest.mark.nightly
@pytest.mark.long
def test_the_command_takes_a_select_from_a_file(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "verdicts.sql").write_text(
        "SELECT *, CASE WHEN cast(body AS string) = 'late' AND attempt = 1 THEN 'RETRY'\n"
        "  WHEN keys[0] = 'never' THEN 'DEAD' END AS verdict, 1 AS delay, 'by SQL' AS reason FROM batch;\n"
    )
    send(shared_broker, "selected", "a", "b", "late", "never")
    arguments = ("--group", "selected", "--topic", "selected", "--from", "earliest", "--ledger", "ledger")
    more = ("--endpoint", shared_broker.endpoint, "--trigger", "100ms", "--until-idle", "500ms")
    with ConsumerProcess(tmp_path, *arguments, *more, "--sql", "verdicts.sql") as consumer:
        consumer.await_started()
        assert consumer.process.stdout is not None
        said = consumer.process.stdout.read().decode()
        assert consumer.wait() == 0, consumer.log()
    assert "5 handled: 3 acknowledged, 1 to come again, 1 given up" in said
    found = "SELECT keys[1], attempt, verdict FROM deliveries ORDER BY 1, 2"
    assert rows(tmp_path / "ledger", found) == [
        ("a", 1, "ACK"),
        ("b", 1, "ACK"),
        ("late", 1, "RETRY"),
        ("late", 2, "ACK"),
        ("never", 1, "DEAD"),
    ]
    (tmp_path / "verdicts.sql").write_text("SELECT *, colour AS verdict FROM batch")
    with ConsumerProcess(tmp_path, *arguments, *more, "--sql", "verdicts.sql") as consumer:
        assert consumer.wait() == 1
        assert "verdicts.sql: AnalysisException: " in consumer.log()
        assert "colour" in consumer.log()
        assert "Traceback" not in consumer.log()
