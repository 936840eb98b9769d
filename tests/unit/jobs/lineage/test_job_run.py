"""The run of a job, told to a real receiver.

Contract: one START and one end with its reason, RUNNING once a minute at most, each with what is read and
written so far; a receiver that is away, that hangs or that nobody installed the package for changes nothing
for the job, and is said once.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from jobs.lineage.datasets import Dataset
from jobs.lineage.environment import ParentRun
from jobs.lineage.event import LineageJob, RunState
from jobs.lineage.event_sender import MOST_WAITING, EventSender, open_client
from jobs.lineage.job_run import RUNNING_S, JobRun, job_run
from tests.support.lineage_receiver import LineageReceiver, datasets, lineage_receiver
from tests.support.waiting import wait_until

ORDERS = Dataset("lakemq://broker:8090", "orders")
PAYMENTS = Dataset("lakemq://broker:8090", "payments")
DELIVERIES = Dataset("s3://bucket", "ledger/deliveries", "main.shop.deliveries")
SPARK = cast(SparkSession, SimpleNamespace(version="4.2.0"))
RUN = "0190a1b2-0000-7000-8000-00000000000f"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageReceiver]:
    with lineage_receiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.endpoint)
        yield receiver


def group(environment: dict[str, str]) -> Any:
    asked = {"OPENLINEAGE_URL": "http://set.for.the.client", **environment}
    return job_run("CONSUMER_GROUP", "consume.billing", True, [ORDERS], lambda: [DELIVERIES], SPARK, asked)


def test_a_run_is_told_from_its_start_to_its_end(receiver: LineageReceiver) -> None:
    with group({"OPENLINEAGE_NAMESPACE": "shop", "OPENLINEAGE_PARENT_ID": f"dags/load/{RUN}"}) as run:
        run.handled([ORDERS, PAYMENTS], 30)
        run.handled([ORDERS, PAYMENTS], 12)
    assert receiver.states == ["START", "RUNNING", "COMPLETE"]
    start, running, end = receiver.events
    assert len({event["run"]["runId"] for event in receiver.events}) == 1
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in receiver.events} == {
        ("shop", "consume.billing")
    }
    kind = start["job"]["facets"]["jobType"]
    assert (kind["processingType"], kind["integration"], kind["jobType"]) == (
        "STREAMING",
        "LAKEMQ",
        "CONSUMER_GROUP",
    )
    assert start["run"]["facets"]["processing_engine"]["version"] == "4.2.0"
    parent = start["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == RUN
    assert (parent["job"]["namespace"], parent["job"]["name"]) == ("dags", "load")
    assert datasets(start, "inputs") == [("lakemq://broker:8090", "orders")]
    assert datasets(end, "inputs") == [
        ("lakemq://broker:8090", "orders"),
        ("lakemq://broker:8090", "payments"),
    ]
    (written,) = start["outputs"]
    assert (written["namespace"], written["name"]) == ("s3://bucket", "ledger/deliveries")
    (alias,) = written["facets"]["symlinks"]["identifiers"]
    assert (alias["namespace"], alias["name"], alias["type"]) == ("main", "shop.deliveries", "TABLE")
    assert not written.get("outputFacets")
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in (running, end)]
    assert rows == [30, 42]
    for event in receiver.events:
        assert event["producer"].startswith("urn:lakemq:")
        assert event["eventTime"] <= datetime.now(UTC).isoformat()


def test_the_environment_stays_as_it_was(receiver: LineageReceiver) -> None:
    before = dict(os.environ)
    with group({}):
        pass
    assert receiver.states == ["START", "COMPLETE"]
    assert dict(os.environ) == before


def test_running_is_told_once_a_minute_at_most(receiver: LineageReceiver) -> None:
    times = iter((0.0, 1.0, RUNNING_S - 0.1, RUNNING_S, RUNNING_S + 1, 2 * RUNNING_S))
    sender = EventSender(open_client)
    job = LineageJob("shop", "consume.billing", "CONSUMER_GROUP", True)
    run = JobRun(job, [ORDERS], [DELIVERIES], "4.2.0", None, sender, clock=lambda: next(times))
    for _ in range(6):
        run.handled([ORDERS], 1)
    sender.close(30)
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in receiver.events]
    assert rows == [1, 4, 6]


def test_a_failure_is_told_with_its_reason_and_raised(receiver: LineageReceiver) -> None:
    failure = ValueError("the stream 'billing group' failed")
    with pytest.raises(ValueError, match="billing group") as raised, group({}):
        raise failure
    assert raised.value is failure
    assert receiver.states == ["START", "FAIL"]
    assert receiver.events[1]["run"]["facets"]["errorMessage"]["message"] == str(failure)


def test_an_interrupt_is_an_abort(receiver: LineageReceiver) -> None:
    with pytest.raises(KeyboardInterrupt), group({}):
        raise KeyboardInterrupt
    assert receiver.states == ["START", "ABORT"]


def test_a_run_whose_tables_or_parent_are_not_known_is_told_without(
    receiver: LineageReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    def unknown() -> list[Dataset]:
        raise RuntimeError("the catalog is away")

    asked = {"OPENLINEAGE_URL": receiver.endpoint, "OPENLINEAGE_PARENT_ID": "nightly"}
    with job_run("ARCHIVE", "archive.x", False, [ORDERS], unknown, SPARK, asked):
        pass
    assert receiver.states == ["START", "COMPLETE"]
    assert receiver.events[0]["outputs"] == []
    assert receiver.events[0]["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert "parent" not in receiver.events[0]["run"]["facets"]
    assert [entry.getMessage() for entry in caplog.records if entry.name == "jobs.lineage.job_run"] == [
        "the run is told without what it writes: the catalog is away",
        "the run is told without its parent: OPENLINEAGE_PARENT_ID is no namespace/job/run with a UUID: "
        "'nightly'",
    ]


def test_a_receiver_that_hangs_holds_up_no_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with lineage_receiver(answers=False) as held:
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", held.endpoint)
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TIMEOUT", "3600")  # whoever waited would wait for an hour
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
        with group({}) as run:
            run.handled([ORDERS], 1)
            assert held.asked.wait(30)
        assert held.events == []
    assert "the last events were not taken within 2 s" in caplog.text


STATE = RunState(
    *("RUNNING", datetime(2026, 1, 1, tzinfo=UTC), RUN, LineageJob("n", "j", "ARCHIVE", True), (), ()),
    *("4.2.0", "1.0", ParentRun("n", "p", RUN)),
)


class Client:
    """One whose events are what a test does with them."""

    def emit(self, event: object) -> None:
        raise NotImplementedError

    def close(self, timeout: float) -> bool:
        return True


def test_only_so_many_events_wait_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    entered, go_on = Event(), Event()
    taken: list[object] = []

    class Held(Client):
        def emit(self, event: object) -> None:
            entered.set()
            assert go_on.wait(30)
            taken.append(event)

    sender = EventSender(Held)
    sender.send(STATE)
    assert entered.wait(30)
    for _ in range(MOST_WAITING + 50):
        sender.send(STATE)
    sender.close(0)
    go_on.set()
    wait_until(lambda: not sender.is_running)
    assert len(taken) == MOST_WAITING, "the one under way, and those that the end left room for"
    assert [entry.getMessage() for entry in caplog.records] == [
        "lineage is asked for, and an event is lost: 100 events wait already"
    ]


def test_failures_are_said_once_until_an_event_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([OSError(5, "away"), OSError(5, "away"), None, OSError(5, "away again")])

    class Failing(Client):
        def emit(self, event: object) -> None:
            if (outcome := next(outcomes)) is not None:
                raise outcome

    sender = EventSender(Failing)
    for _ in range(4):
        sender.send(STATE)
    with caplog.at_level(logging.WARNING):
        sender.close(30)
    said = "lineage is asked for, and an event is lost: OSError: "
    assert [entry.getMessage() for entry in caplog.records] == [f"{said}away", f"{said}away again"]


SECRET = "s3cret"
NOWHERE = "lineage is asked for, and an event is lost: "


def test_a_receiver_that_is_away_is_said_once_without_its_address(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with lineage_receiver() as gone:
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
        url = gone.endpoint.replace("http://", f"http://user:{SECRET}@")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", url)
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 2}')
    sender = EventSender(open_client)
    for _ in range(2):
        sender.send(STATE)
    sender.close(30)
    said = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert said == [f"{NOWHERE}ConnectionError: Connection refused"]


def test_an_end_that_is_not_taken_says_what_the_last_try_met(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with lineage_receiver() as gone:
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", gone.endpoint)
        monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 2, "backoff_factor": 1}')
    sender = EventSender(open_client)
    sender.send(STATE)
    wait_until(lambda: "NewConnectionError" in sender.last_try)
    sender.close(0)
    (said,) = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert (
        said == f"{NOWHERE}the last events were not taken within 0 s (NewConnectionError: Connection refused)"
    )
    wait_until(lambda: not sender.is_running)


def test_an_answer_that_refuses_is_said_by_its_status_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with lineage_receiver(status=403) as refusing:
        monkeypatch.setenv("OPENLINEAGE_URL", refusing.endpoint.replace("http://", f"http://user:{SECRET}@"))
        sender = EventSender(open_client)
        sender.send(STATE)
        sender.close(30)
    assert [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING] == [
        f"{NOWHERE}HTTPError: 403"
    ]


@pytest.mark.parametrize("written", [": : [", "", "- a"])
def test_a_file_that_names_no_transport_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "openlineage.yml").write_text(written)
    sender = EventSender(open_client)
    for _ in range(2):
        sender.send(STATE)
    sender.close(30)
    (said,) = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert said.startswith(NOWHERE)


def test_a_transport_with_a_thread_of_its_own_sends_the_end_too(
    receiver: LineageReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "async_http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", receiver.endpoint)
    with group({}):
        pass
    assert receiver.states == ["START", "COMPLETE"]


def test_a_package_that_a_transport_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "kafka")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TOPIC", "lineage")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__CONFIG", '{"bootstrap.servers": "127.0.0.1:1"}')
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    sender = EventSender(open_client)
    sender.send(STATE)
    sender.close(30)
    (said,) = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert said == f"{NOWHERE}it needs: pip install confluent_kafka"


def test_without_the_extra_it_is_said_once_what_it_takes(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['openlineage'] = None\n"
        "from types import SimpleNamespace\n"
        "from jobs.lineage.job_run import job_run\n"
        "with job_run('ARCHIVE', 'a', True, [], list, SimpleNamespace(version='4.2.0')): print('runs')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[4],
        env={"OPENLINEAGE_URL": "http://127.0.0.1:1", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout == "runs\n"
    assert ended.stderr.count("\n") == 1
    assert "it needs: pip install 'lakemq[openlineage]'" in ended.stderr
