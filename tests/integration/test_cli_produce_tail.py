"""``lakemq produce`` and ``lakemq tail``: what goes in comes out, by line, and errors name the line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from lakemq import Client
from tests.support.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
READ_S = 60


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[Client]:
    with shared_broker.client() as client:
        yield client


@pytest.fixture
def topic(client: Client) -> str:
    name = f"pt-{uuid4().hex[:12]}"
    client.put_topic(name, read_queue_nums=2, write_queue_nums=2)
    return name


def started(client: Client, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "lakemq.cli", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "LAKEMQ_ENDPOINT": client.endpoint},
    )


def run(client: Client, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
    process = started(client, *words)
    out, err = process.communicate(stdin, READ_S)
    return process.returncode, out.decode(), err.decode()


def stored(client: Client, topic: str) -> int:
    return sum(queue.max_offset for queue in client.queues(topic))


def test_file_goes_in_and_tail_prints_it_in_the_order_stored(
    client: Client, topic: str, tmp_path: Path
) -> None:
    rows = [{"id": i, "state": "odd" if i % 2 else "even"} for i in range(2500)]
    source = tmp_path / "orders.ndjson"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = run(
        client, "produce", topic, "--input", str(source), "--key-field", "id", "--tag-field", "state"
    )
    assert (code, err) == (0, "")
    assert out.startswith(f"2,500 of 2,500 messages stored in {topic}")

    code, out, err = run(client, "tail", topic, "--format", "json")
    assert (code, err) == (0, "")
    shown = [json.loads(line) for line in out.splitlines()]
    assert sorted(json.loads(message["body"])["id"] for message in shown) == list(range(2500))
    assert [m["store_timestamp"] for m in shown] == sorted(m["store_timestamp"] for m in shown)
    assert client.query(topic, "1234")[0].json()["id"] == 1234

    code, out, _ = run(client, "tail", topic, "--tags", "odd", "--max", "7")
    assert (code, len(out.splitlines())) == (0, 7)
    assert all("  odd  " in line for line in out.splitlines())


@pytest.mark.parametrize("expression", ["A | B", "A && B"])
@pytest.mark.parametrize("place", [(), ("--from", "latest"), ("--lines", "0"), ("--follow",)])
def test_a_tag_expression_that_lets_nothing_pass_is_refused_whether_there_are_messages_or_not(
    client: Client, topic: str, expression: str, place: tuple[str, ...]
) -> None:
    code, out, err = run(client, "tail", topic, "--tags", expression, *place)
    assert (code, out) == (1, "")
    assert err.startswith("lakemq: FILTER_ILLEGAL: --tags: ")
    assert err.count("\n") == 1


def test_message_objects_and_text_come_from_standard_input(client: Client, topic: str) -> None:
    line = {"body": "hello", "keys": ["k"], "tags": "greeting", "properties": {"a": "b"}}
    assert run(client, "produce", topic, stdin=json.dumps(line).encode())[0] == 0
    assert client.query(topic, "k")[0].properties["a"] == "b"
    code, out, _ = run(client, "produce", topic, "--as", "text", "--format", "json", stdin=b"one\ntwo\n")
    assert code == 0
    assert json.loads(out)["acknowledged"] == 2


def test_refused_line_is_named_and_its_batch_is_not_stored(client: Client, topic: str) -> None:
    lines = ['{"body": "x"}'] * 25
    lines[16] = '{"body": "x", "colour": "red"}'
    code, out, err = run(client, "produce", topic, "--batch", "10", stdin="\n".join(lines).encode())
    assert (code, out) == (1, "")
    assert err.startswith("lakemq: line 17: MESSAGE_ILLEGAL: no such field (at /colour) (")
    assert err.count("\n") == 1
    assert stored(client, topic) == 10


def test_line_that_is_not_json_is_named(client: Client, topic: str) -> None:
    code, _, err = run(client, "produce", topic, stdin=b'{"body": "x"}\n{broken\n')
    assert code == 1
    assert err.startswith("lakemq: line 2 is not JSON: ")


def test_an_input_that_ends_with_a_wrong_line_says_how_many_were_stored_before_it(
    client: Client, topic: str
) -> None:
    code, _, err = run(client, "produce", topic, "--batch", "2", stdin=b"1\n2\n3\n4\n5\n{\n")
    assert code == 1
    assert "line 6 is not JSON" in err
    assert "(4 messages before it were stored)" in err
    assert stored(client, topic) == 4


def test_a_key_field_that_no_line_has_stores_nothing(client: Client, topic: str) -> None:
    for option, count, lines in (
        ("--key-field", 613, "no line"),
        ("--tag-field", 2_000, "none of the first 1,000 lines"),
    ):
        words = ("produce", topic, option, "nohash", "--batch", "100")
        code, out, err = run(client, *words, stdin=b'{"hash": "a"}\n' * count)
        assert (code, out, stored(client, topic)) == (1, "", 0)
        assert f"{lines} has a field nohash in its body; did you mean hash?" in err


@pytest.mark.parametrize("option", [("--key-field", "id"), ("--as", "message"), ("--input", "nothing")])
def test_what_is_for_lines_is_refused_beside_a_body(
    client: Client, topic: str, option: tuple[str, str]
) -> None:
    code, _, err = run(client, "produce", topic, "--body", '{"id": 17}', *option)
    assert code == 2
    assert "are for lines" in err
    assert stored(client, topic) == 0


def test_one_message_comes_from_the_command_line(client: Client, topic: str) -> None:
    code, out, _ = run(client, "produce", topic, "--body", "hello", "--key", "k", "--tag", "t")
    assert (code, out.split()[0]) == (0, "SEND_OK")
    assert client.query(topic, "k")[0].text == "hello"


def test_follow_shows_what_arrives_and_ctrl_c_ends_it_without_a_stack(client: Client, topic: str) -> None:
    client.send(topic, "before")
    process = started(client, "tail", topic, "--from", "earliest", "--follow")
    assert process.stdout is not None
    assert process.stdout.readline().endswith(b"  before\n")
    for body in ("one", "two", "three"):
        client.send(topic, body)
        assert process.stdout.readline().decode().rstrip().endswith(f"  {body}")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=READ_S)
    assert (process.returncode, err) == (130, b"")


def bodies(out: str) -> list[str]:
    return [line.split()[-1] for line in out.splitlines()]


def test_follow_begins_with_the_last_ten_messages_over_all_queues(client: Client, topic: str) -> None:
    for i in range(25):
        client.send(topic, f"m{i}", queue_id=i % 2, tags="rare" if i == 3 else "common")
    process = started(client, "tail", topic, "--follow")
    assert process.stdout is not None
    first = [process.stdout.readline().decode() for _ in range(10)]
    assert bodies("".join(first)) == [f"m{i}" for i in range(15, 25)]
    client.send(topic, "news")
    assert process.stdout.readline().decode().rstrip().endswith("  news")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=READ_S)[1] == b""

    assert bodies(run(client, "tail", topic, "-n", "3")[1]) == ["m23", "m24", "news"]
    assert bodies(run(client, "tail", topic, "-n", "2", "--tags", "rare")[1]) == ["m3"]
    assert run(client, "tail", topic, "-n", "0")[1] == ""
    assert len(bodies(run(client, "tail", topic, "-n", "1000")[1])) == 26
    assert run(client, "tail", topic, "-n", "1", "--from", "latest")[0] == 2


def test_tail_ends_quietly_when_its_reader_goes_away(client: Client, topic: str) -> None:
    client.send_ndjson(topic, b'{"body":"%s"}\n' % (b"x" * 1000) * 500)
    with started(client, "tail", topic) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(READ_S) == 141


def test_tail_of_a_time_starts_there(client: Client, topic: str) -> None:
    client.send(topic, "old")
    assert run(client, "tail", topic, "--from", "1h")[1].endswith("  old\n")
    assert run(client, "tail", topic, "--from", "2099-01-01")[1] == ""


def test_topic_that_does_not_exist_is_one_line(client: Client) -> None:
    code, out, err = run(client, "tail", "no-such-topic")
    assert (code, out) == (1, "")
    assert err.startswith("lakemq: TOPIC_NOT_EXIST: ")


def test_lines_typed_slowly_are_sent_as_they_come(client: Client, topic: str) -> None:
    watching = started(client, "tail", topic, "--from", "earliest", "--follow", "--max", "2")
    typing = started(client, "produce", topic, "--as", "text")
    assert typing.stdin is not None
    assert watching.stdout is not None
    for line in (b"first", b"second"):
        typing.stdin.write(line + b"\n")
        typing.stdin.flush()
        assert watching.stdout.readline().endswith(line + b"\n")
    typing.communicate(timeout=READ_S)
    watching.communicate(timeout=READ_S)
    assert (typing.returncode, watching.returncode) == (0, 0)


def test_a_delayed_message_is_called_that(client: Client, topic: str) -> None:
    code, out, _ = run(client, "produce", topic, "--body", "x", "--delay-level", "18")
    assert (code, out.split()[2:]) == (0, [topic, "delayed"]), "it has no place in the topic yet"
