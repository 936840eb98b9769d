"""``lakemq store``: a store's files, looked at beside the broker and put in order without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakemq import Message
from lakemq.cli import app
from store_native import Bootstrap
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.linked_brokers import open_store


def output_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = app.main([*words])
    return code, capsys.readouterr()


def test_dump_prints_each_record_as_json(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    broker.client().send_many("t", [Message(f"body-{i}") for i in range(20)])
    code, shown = output_of(capsys, "store", "dump", str(broker.store_path))
    records = [json.loads(line) for line in shown.out.splitlines()]
    bodies = {record.get("body") for record in records}
    assert code == 0
    assert {f"body-{i}" for i in range(20)} <= bodies
    code, shown = output_of(capsys, "store", "dump", str(broker.store_path), "--limit", "3")
    assert len(shown.out.splitlines()) == 3


def test_verify_finds_nothing_wrong_with_a_good_store(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.client().send_many("t", [Message(f"body-{i}") for i in range(20)])
    broker.stop()
    code, shown = output_of(capsys, "store", "verify", str(broker.store_path), "--format", "json")
    assert (code, shown.err) == (0, "")
    assert json.loads(shown.out)


def test_verify_finds_a_flipped_byte(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    broker.client().send_many("t", [Message(f"body-{i}") for i in range(20)])
    broker.stop()
    log = next((broker.store_path / "commitlog").iterdir())
    with log.open("r+b") as file:
        place = file.read(1 << 20).index(b"body-7")
        file.seek(place)
        file.write(b"B")
    assert output_of(capsys, "store", "verify", str(broker.store_path))[0] == 1


def test_recover_refuses_a_store_that_is_in_use(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    code, shown = output_of(capsys, "store", "recover", str(broker.store_path))
    assert code == 1
    assert shown.err.startswith("lakemq: STORE_LOCKED: ")
    assert f"process {broker.pid} has it: end that first (kill {broker.pid}), or give another" in shown.err


def test_recover_makes_a_killed_store_whole(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.client().send_many("t", [Message(f"body-{i}") for i in range(20)])
    broker.kill()
    code, _ = output_of(capsys, "store", "recover", str(broker.store_path))
    assert code == 0
    broker.start()
    await_dispatch(broker.client())
    assert sum(queue.max_offset for queue in broker.client().queues("t")) == 20


@pytest.mark.parametrize("verb", ["verify", "dump", "recover"])
def test_directory_that_holds_no_store_is_refused_and_left_as_it_is(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"")
    code, shown = output_of(capsys, "store", verb, str(tmp_path))
    complaint = f"lakemq: ARGUMENT_ILLEGAL: {tmp_path} is no store: it has no commitlog\n"
    assert (code, shown.out, shown.err) == (1, "", complaint)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_directory_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = output_of(capsys, "store", "verify", "no-such-store")
    assert (code, shown.err) == (1, "lakemq: no-such-store: there is no such directory\n")


def test_verify_says_that_a_store_is_still_being_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Bootstrap(tmp_path, 1 << 20, 0).close()
    code, shown = output_of(capsys, "store", "verify", str(tmp_path))
    assert (code, shown.out) == (1, "")
    assert "DATA_CORRUPT" in shown.err
    assert "was being made from its master's store" in shown.err


def test_recover_puts_a_slaves_store_in_order_and_it_stays_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(tmp_path, "slave").close()
    code, shown = output_of(capsys, "store", "recover", str(tmp_path))
    assert (code, shown.err) == (0, "")
    slave = open_store(tmp_path, "slave")
    assert slave.replicated_log().role() == ("slave", 1)
    slave.close()
