"""``lakemq topic``, ``lakemq group`` and ``lakemq message`` against a real broker."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from delta_tables.deliveries import DELIVERIES
from lakemq import Message
from lakemq.cli import app
from tests.support.broker_process import BrokerProcess
from tests.support.dispatch_barrier import await_dispatch
from tests.support.ledger_rows import append, delivery, path_ledger

Lakemq = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lakemq(shared_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Lakemq:
    """Runs a command against the broker; returns exit code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = app.main([*words, "--endpoint", shared_broker.endpoint])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def name() -> str:
    return f"cli-{uuid4().hex[:12]}"


def as_json(lakemq: Lakemq, *words: str) -> Any:
    code, out, err = lakemq(*words, "--format", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_topic_is_created_shown_changed_and_deleted(lakemq: Lakemq, name: str) -> None:
    created = as_json(lakemq, "topic", "create", name, "--queues", "2")
    assert (created["read_queue_nums"], created["write_queue_nums"], len(created["queues"])) == (2, 2, 2)
    assert name in {topic["topic"] for topic in as_json(lakemq, "topic", "list")}
    assert as_json(lakemq, "topic", "update", name, "--perm", "r")["perm"] & 2 == 0
    code, out, _ = lakemq("topic", "show", name)
    assert code == 0
    assert "read_queue_nums   2" in out
    assert lakemq("topic", "delete", name, "--yes") == (0, f"topic {name} is deleted\n", "")
    code, _, err = lakemq("topic", "show", name)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("lakemq: TOPIC_NOT_EXIST: ")


def test_the_error_of_an_unknown_topic_or_group_names_the_nearest_and_those_there_are(
    lakemq: Lakemq, name: str
) -> None:
    lakemq("topic", "create", name)
    lakemq("group", "create", name)
    for words, kind in ((("topic", "show"), "topic"), (("tail",), "topic"), (("group", "show"), "group")):
        code, _, err = lakemq(*words, f"{name}x")
        assert (code, err.count("\n")) == (1, 1)
        assert f" did you mean {name}? the broker has " in err
        assert err.endswith(f"; lakemq {kind} create {name}x makes it\n")
        assert "!;" not in err
        assert "%RETRY%" not in err


def test_create_does_not_change_a_topic_that_is_there(lakemq: Lakemq, name: str) -> None:
    lakemq("topic", "create", name, "--queues", "2")
    code, _, err = lakemq("topic", "create", name, "--queues", "8")
    assert code == 1
    assert "lakemq topic update" in err
    assert as_json(lakemq, "topic", "show", name)["read_queue_nums"] == 2


def test_topics_nobody_made_by_name_are_listed_only_when_asked_for(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    lakemq("topic", "create", name)
    lakemq("group", "create", name)
    shared_broker.client().put_topic(f"%DLQ%{name}", read_queue_nums=1, write_queue_nums=1)
    shown = {topic["topic"] for topic in as_json(lakemq, "topic", "list")}
    every = {topic["topic"] for topic in as_json(lakemq, "topic", "list", "--all")}
    hidden = {"SCHEDULE_TOPIC_XXXX", f"%RETRY%{name}", f"%DLQ%{name}"}
    assert name in shown
    assert not hidden & shown
    assert hidden | shown <= every


def test_delete_without_a_terminal_needs_yes(
    lakemq: Lakemq, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakemq("topic", "create", name)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = lakemq("topic", "delete", name)
    assert code == 2
    assert "--yes" in err
    assert as_json(lakemq, "topic", "show", name)["topic"] == name


@pytest.mark.parametrize(
    ("offsets", "said"), [(["0=1_0"], "both whole numbers"), (["0=1", "0=3"], "names a queue twice")]
)
def test_offsets_that_may_mean_two_things_are_refused(
    lakemq: Lakemq, name: str, offsets: list[str], said: str
) -> None:
    lakemq("topic", "create", name)
    lakemq("group", "create", name)
    given = [word for offset in offsets for word in ("--offset", offset)]
    code, _, err = lakemq("group", "reset", name, "--topic", name, *given, "--execute")
    assert code == 2
    assert said in err


def test_a_group_that_goes_on_where_its_ledger_has_it_is_not_said_to_be_moved(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    client = shared_broker.client()
    client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
    client.send_many(name, [Message(str(i)) for i in range(10)])
    await_dispatch(client)
    client.put_group(name)
    client.put_topic(f"%RETRY%{name}", read_queue_nums=1, write_queue_nums=1)
    client.commit_offsets(name, {(name, 0): 8, (f"%RETRY%{name}", 0): 0})
    broker_name = str(client.cluster()["broker_name"])
    at: dict[str, Any] = {"topic": name, "consumer_group": name, "broker_name": broker_name}
    ledger = path_ledger(tmp_path / "ledger")
    append(ledger, DELIVERIES, [delivery(n, verdict="DEAD" if n == 3 else "ACK", **at) for n in range(8)])

    reset = ("group", "reset", name, "--topic", name, "--to", "earliest")
    with_ledger = (*reset, "--ledger", str(tmp_path / "ledger"))
    code, out, err = lakemq(*with_ledger)
    assert (code, err) == (0, "")
    assert "from there 8 messages that the ledger has come again, 7 of which went well; 0 that the" in out
    how = f"lakemq group clone {name} NEW --execute; lakemq group reset NEW --topic {name} --to earliest"
    assert how in out
    code, _, err = lakemq(*with_ledger, "--execute")
    assert (code, err.count("\n")) == (1, 1)
    assert f"nothing was moved: group {name} goes on where the ledger {tmp_path}/ledger has it" in err
    assert how in err
    assert client.group_offsets(name)[name, 0] == 8

    words = ("group", "reset", name, "--topic", name, "--offset", "0=9", "--ledger", str(tmp_path / "ledger"))
    ahead = as_json(lakemq, *words)
    assert (ahead["executed"], f"--topic {name} --offset 0=9 --execute" in ahead["not_moved"]) == (
        False,
        True,
    )
    place = {"broker_name": broker_name, "topic": name, "queue_id": 0, "to_offset": 9}
    counted = {"reached": 8, "handled": 0, "acknowledged": 0, "given_up": 0, "unread": 1}
    assert ahead["queues"] == [{**place, **counted}]

    code, out, _ = lakemq(*reset, "--execute")
    assert code == 0
    assert f"lakemq consume has run group {name}: it goes on where its checkpoint and its ledger say" in out
    assert how in out
    assert client.group_offsets(name)[name, 0] == 0, "a ledger that is lost is made again so"


def test_a_ledger_that_does_not_know_the_group_and_settings_without_a_ledger_are_refused(
    lakemq: Lakemq, name: str, tmp_path: Path
) -> None:
    lakemq("topic", "create", name)
    lakemq("group", "create", name)
    append(path_ledger(tmp_path / "ledger"), DELIVERIES, [delivery(0, consumer_group=f"{name}s")])
    reset = ("group", "reset", name, "--topic", name, "--to", "earliest")
    code, _, err = lakemq(*reset, "--ledger", str(tmp_path / "ledger"), "--execute")
    assert (code, f"there is no group {name}: did you mean {name}s?" in err) == (1, True)
    assert lakemq(*reset, "--ledger", str(tmp_path / "none"))[0] == 1
    assert lakemq(*reset, "--conf", "spark.x=y")[0] == 2


def test_group_is_moved_only_with_execute(lakemq: Lakemq, name: str, shared_broker: BrokerProcess) -> None:
    client = shared_broker.client()
    client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
    client.send_many(name, [Message(str(i)) for i in range(10)])
    await_dispatch(client)
    assert as_json(lakemq, "group", "create", name, "--retry-max-times", "3")["retry_max_times"] == 3
    client.commit_offsets(name, {(name, 0): 8})

    rows = as_json(lakemq, "group", "offsets", name)
    assert rows == [{"topic": name, "queue_id": 0, "offset": 8, "max_offset": 10, "lag": 2}]
    code, out, _ = lakemq("group", "reset", name, "--topic", name, "--to", "earliest")
    assert (code, client.group_offsets(name)) == (0, {(name, 0): 8})
    assert "preview: from the broker's offsets 8 messages would come again, 0 be skipped" in out
    assert "where its checkpoint and its ledger say: it is not moved by this" in out
    moved = as_json(lakemq, "group", "reset", name, "--topic", name, "--offset", "0=5", "--execute")
    assert moved["queues"][0]["redelivered"] == 3
    assert (moved["executed"], moved["moves"]) == (True, "offsets at the broker")
    assert "checkpoint" in moved["not_moved"]
    assert client.group_offsets(name) == {(name, 0): 5}
    out = lakemq("group", "reset", name, "--topic", name, "--to", "2020-01-01", "--execute")[1]
    assert "done: the broker's offsets are moved; from them 5 messages come again, 0 are skipped" in out
    assert "not moved by this" in out
    assert client.group_offsets(name) == {(name, 0): 0}

    assert name in lakemq("group", "list")[1]
    assert "retry_max_times" in lakemq("group", "show", name)[1]
    assert lakemq("group", "delete", name, "--yes")[0] == 0
    assert lakemq("group", "show", name)[2].startswith("lakemq: GROUP_NOT_EXIST: ")


def test_reset_says_who_holds_the_group_and_creates_none(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    client = shared_broker.client()
    client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
    client.put_group(name)
    client.send(name, "x")
    await_dispatch(client)
    client.commit_offsets(name, {(name, 0): 1})
    words = ("--topic", name, "--to", "earliest", "--execute")
    assert lakemq("group", "reset", f"{name}-mistyped", *words)[0] == 1
    assert f"{name}-mistyped" not in {group.group for group in client.groups()}

    lease = client.acquire_lease(name, "spark/here/17", 60_000)
    code, _, err = lakemq("group", "reset", name, *words)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"lakemq: LEASE_CONFLICT: {name} is held by spark/here/17 until ")
    assert client.group_offsets(name) == {(name, 0): 1}
    assert lakemq("group", "reset", name, *words, "--lease-epoch", str(lease.epoch))[0] == 0
    assert client.group_offsets(name) == {(name, 0): 0}


def test_delete_says_who_holds_the_group_and_leaves_it(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    client = shared_broker.client()
    client.put_group(name)
    lease = client.acquire_lease(name, "spark/here/17", 60_000)
    code, out, err = lakemq("group", "delete", name, "--yes")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"lakemq: LEASE_CONFLICT: {name} is held by spark/here/17 until ")
    assert client.acquire_lease(name, "spark/here/17", 60_000).epoch == lease.epoch
    words = ("group", "delete", name, "--yes", "--lease-epoch", str(lease.epoch))
    assert lakemq(*words) == (0, f"group {name} is deleted\n", "")
    assert name not in {group.group for group in client.groups()}


def test_reset_of_a_group_without_an_offset_says_where_it_begins(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    client = shared_broker.client()
    client.put_topic(name, read_queue_nums=2, write_queue_nums=2)
    client.put_group(name)
    for queue in (0, 0, 1):
        client.send(name, "x", queue_id=queue)
    await_dispatch(client)
    words = ("group", "reset", name, "--topic", name, "--to", "latest")
    out = lakemq(*words)[1]
    assert "on 2 of these queues the group has no offset: a group that never ran would begin there" in out
    assert client.group_offsets(name) == {}
    out = lakemq(*words, "--execute")[1]
    assert "on 2 of these queues the group had no offset: a group that never ran begins there" in out
    assert client.group_offsets(name) == {(name, 0): 2, (name, 1): 1}
    assert "no offset" not in lakemq(*words)[1]


def test_a_clone_begins_where_the_other_group_stands(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    client, clone = shared_broker.client(), f"{name}-clone"
    client.put_topic(name, read_queue_nums=2, write_queue_nums=2)
    client.put_group(name, retry_max_times=3, attributes={"team": "billing"})
    for queue in (0, 0, 0, 1):
        client.send(name, "x", queue_id=queue)
    await_dispatch(client)
    client.commit_offsets(name, {(name, 0): 1, (name, 1): 1, (f"%RETRY%{name}", 0): 0})
    stands = {(name, 0): 1, (name, 1): 1}

    code, out, _ = lakemq("group", "clone", name, clone)
    assert code == 0
    assert f"preview: group {clone} would begin where {name} stands, and 2 messages come to it" in out
    assert clone not in {group.group for group in client.groups()}, "a preview changes nothing"
    code, _, err = lakemq("group", "clone", name, f"%RETRY%{name}", "--execute")
    assert (code, "is a topic that a group has, and no name of one" in err) == (1, True)

    done = as_json(lakemq, "group", "clone", name, clone, "--execute")
    assert (done["executed"], done["created"]) == (True, True)
    assert [(row["from_offset"], row["to_offset"], row["lag"]) for row in done["queues"]] == [
        (None, 1, 2),
        (None, 1, 0),
    ]
    assert client.group_offsets(clone) == stands, "retries are the other group's own"
    made = client.group(clone)
    assert (made.retry_max_times, made.attributes) == (3, {"team": "billing"})
    assert (name, 0) in client.group_offsets(name), "it is only read"


def test_a_clone_takes_no_offsets_away_unless_it_is_told_to(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    client, other = shared_broker.client(), f"{name}-other"
    client.put_topic(name, read_queue_nums=1, write_queue_nums=1)
    for group in (name, other):
        client.put_group(group)
    for _ in range(3):
        client.send(name, "x")
    await_dispatch(client)
    assert lakemq("group", "clone", name, other)[2] == (
        f"lakemq: ARGUMENT_ILLEGAL: group {name} has committed no offset: it stands nowhere\n"
    )
    client.commit_offsets(name, {(name, 0): 1})
    client.commit_offsets(other, {(name, 0): 3})
    code, _, err = lakemq("group", "clone", name, other, "--execute")
    assert (code, client.group_offsets(other)) == (1, {(name, 0): 3})
    assert f"group {other} has offsets already, of {name}: --overwrite replaces them" in err

    client.acquire_lease(other, "spark/here/17", 60_000)
    code, _, err = lakemq("group", "clone", name, other, "--overwrite", "--execute")
    assert (code, client.group_offsets(other)) == (1, {(name, 0): 3})
    assert "LEASE_CONFLICT" in err
    client.release_lease(other, "spark/here/17")

    assert lakemq("group", "clone", name, name)[0] == 1
    assert lakemq("group", "clone", f"{name}-mistyped", other)[2].startswith("lakemq: GROUP_NOT_EXIST: ")
    out = lakemq("group", "clone", name, other, "--overwrite", "--execute")[1]
    assert f"done: group {other} begins where {name} stands; 2 messages come to it" in out
    assert client.group_offsets(other) == {(name, 0): 1}


def test_message_is_shown_by_id_and_found_by_key(
    lakemq: Lakemq, name: str, shared_broker: BrokerProcess
) -> None:
    sent = shared_broker.client().send(name, {"id": 17}, tags="created", keys=["17"])
    await_dispatch(shared_broker.client())
    code, out, _ = lakemq("message", "show", sent.message_id)
    assert code == 0
    assert out.endswith('\n\n{"id":17}\n')
    assert as_json(lakemq, "message", "show", sent.offset_message_id)["message_id"] == sent.message_id
    assert sent.message_id in lakemq("message", "find", "--topic", name, "--key", "17")[1]
    found = as_json(lakemq, "message", "find", "--topic", name, "--key", "17", "--begin", "1h")
    assert [message["tags"] for message in found] == ["created"]


def test_finding_nothing_says_so_and_is_code_1(lakemq: Lakemq, name: str) -> None:
    lakemq("topic", "create", name)
    code, out, _ = lakemq("message", "find", "--topic", name, "--key", "nowhere")
    assert (code, out) == (1, f"no message of {name} has the key nowhere\n")
    code, out, _ = lakemq("message", "find", "--topic", name, "--key", "nowhere", "--begin", "1h")
    assert (code, out) == (1, f"no message of {name} that was stored in that time has the key nowhere\n")
    turned = ("--begin", "1h", "--end", "2h")
    code, out, err = lakemq("message", "find", "--topic", name, "--key", "nowhere", *turned)
    assert (code, out) == (1, "")
    assert err == "lakemq: --begin is behind --end: no message is stored between them\n"
    assert lakemq("message", "show", "00" * 16)[2].startswith("lakemq: MESSAGE_NOT_EXIST: ")


def test_a_group_without_offsets_says_so(lakemq: Lakemq, name: str) -> None:
    lakemq("group", "create", name)
    code, out, err = lakemq("group", "offsets", name)
    assert (code, len(out.splitlines())) == (0, 1)
    assert err == f"lakemq: group {name} has committed no offset yet\n"
