"""The process: `lakemq serve` starts, says so, and tells about itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakemq.cli.app import main
from tests.support.broker_process import BrokerProcess
from tests.support.faulty_disk import FaultyDisk
from tests.support.http import Http
from tests.support.metrics import Samples
from tests.support.waiting import wait_until
from tests.support.wire import Answer, RawConnection, post

REPOSITORY = Path(__file__).resolve().parents[2]


def lakemq(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakemq.cli", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def test_health_and_readiness(broker: BrokerProcess) -> None:
    http = Http(broker.endpoint)
    assert http.get("//healthz").json == {"status": "alive"}
    ready = http.get("//readyz").json
    assert ready["status"] == "ready"
    assert ready["recovery"]["clean"] is True
    broker.kill()
    broker.start()
    assert http.get("//readyz").json["recovery"]["clean"] is False


def test_a_second_broker_on_the_same_store_is_refused(broker: BrokerProcess) -> None:
    second = lakemq("serve", "--store", str(broker.store_path), "--port", "0")
    assert second.returncode == 1
    assert "STORE_LOCKED" in second.stderr
    assert f"process {broker.pid} has it" in second.stderr
    assert "Traceback" not in second.stderr
    assert Http(broker.endpoint).get("//readyz").status == 200


def test_a_taken_port_is_refused_before_the_store_is_touched(broker: BrokerProcess, tmp_path: Path) -> None:
    other = tmp_path / "other"
    second = lakemq("serve", "--store", str(other), "--port", str(broker.port))
    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {broker.port}: Address already in use" in second.stderr
    assert "--port gives it another, 0 a free one" in second.stderr
    assert not other.exists()


def test_a_taken_port_for_slaves_is_named_with_its_option(broker: BrokerProcess, tmp_path: Path) -> None:
    arguments = ("--port", "0", "--role", "async-master", "--ha-port", str(broker.port))
    refused = lakemq("serve", "--store", str(tmp_path / "s"), *arguments)
    assert refused.returncode == 1
    said = refused.stderr.splitlines()[-1]
    assert f"cannot listen for slaves on 127.0.0.1 port {broker.port}: " in said
    assert said.endswith("--ha-port gives this broker another, 0 a free one")


def test_an_address_others_reach_needs_insecure(tmp_path: Path) -> None:
    refused = lakemq("serve", "--store", str(tmp_path / "s"), "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr
    assert not (tmp_path / "s").exists()


def test_insecure_listens_elsewhere(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(arguments=("--host", "0.0.0.0", "--insecure"))
    assert Http(broker.endpoint).get("//healthz").status == 200


def test_logs_are_json_when_asked(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(arguments=("--log-format", "json"))
    Http(broker.endpoint).get("/topics/none").problem(404, "TOPIC_NOT_EXIST")
    broker.stop()
    lines = [json.loads(line) for line in broker.log().splitlines()]
    assert {"store open", "stopping", "store closed"} <= {line["message"] for line in lines}
    (request,) = [line for line in lines if line["message"] == "request"]
    assert (request["status"], request["path"]) == (404, "/api/v1/topics/none")


def test_the_log_names_code_and_id_of_every_refusal(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(arguments=("--log-format", "json"))
    http = Http(broker.endpoint)
    answers = [
        http.get("/topics/none"),
        http.get("/topics?limit=0"),
        http.get("/nothing/here"),
        http.call("POST", "/cluster"),
        http.put("/topics/t", {"colour": "red"}),
        http.call("PUT", "/topics/t", b"{", {"Content-Type": "application/json"}),
        http.call("GET", "/topics/a%2fb"),
        http.post("/topics/t/messages", {"bad": 1}),
        http.send("t", b"x", headers={"X-LakeMQ-Colour": "red"}),
        http.get("/topics/t/queues/0/messages"),
    ]
    broker.stop()
    lines = [json.loads(line) for line in broker.log().splitlines()]
    logged = {line["request_id"]: line["code"] for line in lines if line["message"] == "request"}
    codes_sent = {answer.json["request_id"]: answer.json["code"] for answer in answers}
    assert len(codes_sent) == len(answers)
    assert logged == codes_sent
    assert [answer.headers["x-request-id"] for answer in answers] == list(codes_sent)


def test_labels_exist_only_for_topics_and_groups_that_do_and_go_with_them(broker: BrokerProcess) -> None:
    http = Http(broker.endpoint)

    def labelled(*words: str) -> list[str]:
        lines = http.get("//metrics").body.decode().splitlines()
        return [line for line in lines if all(word in line for word in words)]

    http.put("/groups/known", {})
    http.post("/topics/seen/messages", {"body": "x", "queue_id": 0})
    http.settle()
    for n in range(30):
        http.get("/topics/seen/queues/0/messages", offset=0, group=f"invented-{n}")
    for _ in range(2):
        http.get("/topics/seen/queues/0/messages", offset=0, group="known")
    http.get("/topics/unseen/queues/0/messages", offset=0, group="known").problem(404, "TOPIC_NOT_EXIST")
    assert not labelled("invented-")
    assert not labelled("unseen")
    (unknown,) = labelled("messages_out_total", 'topic="seen"', 'consumer_group=""')
    (known,) = labelled("messages_out_total", 'topic="seen"', 'consumer_group="known"')
    assert (float(unknown.split()[-1]), float(known.split()[-1])) == (30, 2)

    http.put("/groups/known/offsets", {"offsets": [{"topic": "seen", "queue_id": 0, "offset": 0}]})
    assert labelled("consumer_lag_messages", '"known"')
    assert http.call("DELETE", "/groups/known").status == 204
    assert not labelled('"known"')
    assert labelled("messages_in_total", '"seen"')
    assert http.call("DELETE", "/topics/seen").status == 204
    assert not labelled('topic="seen"')
    http.post("/topics/seen/messages", {"body": "x"})
    (counted,) = labelled("messages_in_total", '"seen"')
    assert float(counted.split()[-1]) == 1


def test_what_goes_well_and_quickly_leaves_no_line(broker: BrokerProcess) -> None:
    http = Http(broker.endpoint)
    for _ in range(20):
        http.post("/topics/t/messages", {"body": "x"})
    assert "/messages" not in broker.log()


def test_metrics_have_rocketmqs_names_and_labels(broker: BrokerProcess) -> None:
    http = Http(broker.endpoint)
    http.post("/topics/m/messages", {"messages": [{"body": "x" * 100, "queue_id": 0}] * 3})
    http.settle()
    http.put("/groups/g", {})
    http.get("/topics/m/queues/0/messages", offset=0, group="g")
    http.put("/groups/g/offsets", {"offsets": [{"topic": "m", "queue_id": 0, "offset": 1}]})
    http.post("/topics/m/messages", {"bad": 1})
    page = http.get("//metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = Samples(page.body.decode())
    node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
    out = {**node, "topic": "m", "consumer_group": "g", "is_retry": "false", "is_system": "false"}
    assert samples.value("lakemq_messages_in_total", **node, topic="m", message_type="normal") == 3
    assert samples.value("lakemq_messages_out_total", **out) == 3
    lag = samples.value(
        "lakemq_consumer_lag_messages", **node, consumer_group="g", topic="m", is_retry="false"
    )
    assert lag == 2
    assert samples.value("lakemq_errors_total", **node, code="MESSAGE_ILLEGAL") == 1
    assert samples.named("lakemq_storage_flush_behind_bytes")
    assert samples.named("lakemq_message_size_bucket")
    lines = page.body.decode().splitlines()
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared)), "each metric is declared once"


def test_too_many_sends_at_once_are_turned_away_unstored(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    disk = FaultyDisk(tmp_path)
    broker = start_broker(
        config="[limits]\nmax_inflight_sends = 1\nsync_flush_timeout_s = 60.0\n", environment=disk.environment
    )
    http = Http(broker.endpoint)
    assert http.put("/topics/u", {}).status in (200, 201)
    disk.slow_down()
    # The first to come is inside as long as its flush takes, a second; the other is turned away.
    deadline = time.monotonic() + 60
    with RawConnection(broker.port, timeout_s=60) as one, RawConnection(broker.port, timeout_s=60) as other:
        found: list[Answer] = []
        stored = 0
        while sorted(answer.status for answer in found) != [200, 503]:
            assert time.monotonic() < deadline
            one.send(post("u", b'{"body":"x"}'))
            other.send(post("u", b'{"body":"x"}'))
            found = [one.answer(), other.answer()]
            stored += sum(answer.status == 200 for answer in found)
    disk.recover()
    refused = next(answer for answer in found if answer.status == 503)
    problem = refused.problem(503, "SYSTEM_BUSY")
    assert problem["retryable"] is True
    assert problem["retry_after_ms"] > 0
    assert "retry-after" in refused.headers
    assert http.post("/topics/u/messages", {"body": "last"}).status == 200
    assert len(http.messages("u")) == stored + 1, "what was turned away was not stored"
    assert 'reason="send_queue_full"' in http.get("//metrics").body.decode()


def test_a_full_disk_makes_the_broker_read_only(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "x", "queue_id": 0}).status == 200
    broker.stop()
    # Any disk is fuller than this.
    http = Http(start_broker(arguments=("--limits.disk_full_ratio", "0.000001")).endpoint)
    problem = http.post("/topics/t/messages", {"body": "x"}).problem(507, "DISK_FULL")
    assert problem["retryable"] is True
    page = http.get("/topics/t/queues/0/messages", offset=0).json
    assert [m["body"] for m in page["messages"]] == ["x"]


def test_a_failed_flush_is_final_and_said(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """The send that waits, and every later one, gets 503 STORE_POISONED; reading goes on."""
    disk = FaultyDisk(tmp_path)
    broker = start_broker(environment=disk.environment)
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "safe", "queue_id": 0}).status == 200
    http.settle()
    disk.fail()
    for _ in range(3):
        problem = http.post("/topics/t/messages", {"body": "lost", "queue_id": 0}).problem(
            503, "STORE_POISONED"
        )
        assert problem["retryable"] is False
    http.put("/topics/u", {}).problem(503, "STORE_POISONED")
    http.get("//readyz").problem(503, "STORE_POISONED")
    assert http.get("//healthz").status == 200
    page = http.get("/topics/t/queues/0/messages", offset=0).json
    assert [m["body"] for m in page["messages"]] == ["safe"]


def test_nothing_is_acknowledged_into_a_store_that_was_removed(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """With sync flush from the first send on, whenever it comes; readiness, the log and the end say why."""
    broker = start_broker()
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "before", "queue_id": 0}).status == 200
    http.settle()
    shutil.rmtree(broker.store_path / "commitlog")
    for _ in range(3):
        problem = http.post("/topics/t/messages", {"body": "lost"}).problem(503, "STORE_POISONED")
        assert problem["retryable"] is False
    said = f"{broker.store_path / 'commitlog' / ('0' * 20)} was removed, moved, replaced or shortened"
    assert said in http.get("//readyz").problem(503, "STORE_POISONED")["detail"]
    wait_until(lambda: f"store: read-only until reopened: {said}" in broker.log(), 30)
    page = http.get("/topics/t/queues/0/messages", offset=0).json
    assert [m["body"] for m in page["messages"]] == ["before"], "what was there can be read until the end"
    assert broker.stop() == 1
    assert said in broker.log().splitlines()[-1]


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_an_idle_broker_whose_store_was_removed_is_not_ready(
    start_broker: Callable[..., BrokerProcess], flush: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(flush=flush, store="flush_interval_ms = 60000\n")
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "x"}).status == 200
    broker.store_path.rename(broker.store_path.with_name("elsewhere"))
    wait_until(lambda: http.get("//readyz").status == 503, 30)
    http.get("//readyz").problem(503, "STORE_POISONED")
    http.post("/topics/t/messages", {"body": "lost"}).problem(503, "STORE_POISONED")
    assert main(["ha", "status", "--endpoint", broker.endpoint]) == 0
    assert "TAKES NO MORE MESSAGES: " in capsys.readouterr().out


def test_a_thread_of_the_store_that_panics_is_said(start_broker: Callable[..., BrokerProcess]) -> None:
    """Nobody would deliver delayed messages any more: the store takes none, readiness and the log say why."""
    broker = start_broker(store='faults = "deliver.before:1:panic"\n', arguments=("--log.format", "json"))
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "safe", "queue_id": 0}).status == 200
    assert http.get("//readyz").status == 200
    assert http.post("/topics/t/messages", {"body": "later", "delay_level": 1}).status == 200
    deadline = time.monotonic() + 30
    while http.get("//readyz").status == 200:
        assert time.monotonic() < deadline, "the panic went unnoticed"
    problem = http.get("//readyz").problem(503, "STORE_POISONED")
    said = "lakemq-scheduler ended in a panic: injected at DeliverBefore"
    assert said in problem["detail"]
    wait_until(lambda: said in broker.log(), 30)
    poisoned = [line for line in broker.log().splitlines() if said in line]
    lines = [json.loads(line) for line in poisoned]  # each is one of the log's, none a panic's raw ones
    assert [line["level"] for line in lines] == ["error"]
    assert lines[0]["message"].startswith(f"store: read-only until reopened: {said} (")
    http.post("/topics/t/messages", {"body": "refused"}).problem(503, "STORE_POISONED")
    page = http.get("/topics/t/queues/0/messages", offset=0).json
    assert [m["body"] for m in page["messages"]] == ["safe"]
    assert broker.stop() == 1
    *logged, at_the_end = broker.log().splitlines()
    assert at_the_end.startswith(f"lakemq: STORE_POISONED: {said} (")
    for line in logged:
        assert json.loads(line)["level"] in {"info", "warning", "error"}, "raw lines in a JSON log"


def test_a_failed_write_to_the_log_is_final_and_said(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """Half a request is stored behind the log's end: it is recognised, and gone when the broker is back."""
    disk = FaultyDisk(tmp_path)
    broker = start_broker(environment=disk.environment)
    http = Http(broker.endpoint)
    assert http.post("/topics/t/messages", {"body": "safe", "queue_id": 0}).status == 200
    disk.fail_writes()
    problem = http.post("/topics/t/messages", {"body": "torn", "queue_id": 0}).problem(503, "STORE_POISONED")
    assert "writing the commit log" in problem["detail"]
    disk.recover()
    http.post("/topics/t/messages", {"body": "refused", "queue_id": 0}).problem(503, "STORE_POISONED")
    broker.kill()
    broker.start()
    http = Http(broker.endpoint)
    assert http.get("//readyz").json["recovery"]["truncated_bytes"] > 0
    assert http.post("/topics/t/messages", {"body": "later", "queue_id": 0}).status == 200
    page = http.get("/topics/t/queues/0/messages", offset=0).json
    assert [m["body"] for m in page["messages"]] == ["safe", "later"]
