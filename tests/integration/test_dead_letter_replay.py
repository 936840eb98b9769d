"""Dead letters handled again: chosen by SQL, by their group alone, once for each time they were given up."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delta_tables.ledger import ledger_at
from delta_tables.ledger_reader import LedgerReader
from jobs.consume import consume
from jobs.dlq.choice import DeadLetterChoice
from jobs.dlq.replay import Replay
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.cli.app import main
from lakemq.client import Client
from lakemq.client.errors import OutcomeUnknown
from store_native.errors import InvalidRequest
from tests.support.broker_process import BrokerProcess
from tests.support.spark_streams import TRIGGER

HANDLERS = """
from lakemq.handler import Verdict

def refuse(message):
    if message.json()["amount"] < 0:
        return Verdict.dead("negative amount")
    if message.json()["amount"] > 8:
        return Verdict.dead("too much")

def relent(message):
    assert (message.tags, message.keys) == ("red", (f"K{message.json()['amount']}",))
    assert message.topic.startswith("paid-"), message.topic
    assert message.properties.get("colour") == "blue", message.properties
    if message.json()["amount"] == -2:
        raise ValueError("still no")

def take(message):
    assert message.json()["amount"] == 2
"""
STILL_DEAD = "amount -2 is given up a second time, after as many retries as a first delivery has"


@pytest.fixture
def settings(tmp_path: Path, shared_broker: BrokerProcess) -> ConsumeSettings:
    (tmp_path / "replay_handlers.py").write_text(HANDLERS)
    client = shared_broker.client()
    group, topic = f"payers-{tmp_path.name}", f"paid-{tmp_path.name}"
    client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    lines = (
        {
            "body": json.dumps({"amount": n}),
            "keys": [f"K{n}"],
            "tags": "red",
            "properties": {"colour": "blue"},
        }
        for n in range(-3, 11)
    )
    client.send_ndjson(topic, "\n".join(json.dumps(line) for line in lines).encode())
    return ConsumeSettings(
        group=group,
        topics=(topic,),
        handler=HandlerTarget("replay_handlers:refuse", "auto", (str(tmp_path),)),
        ledger=ledger_at(str(tmp_path / "ledger")),
        endpoint=shared_broker.endpoint,
        start="earliest",
        max_reconsume_times=1,
        retry_delays="1s",
        trigger=TRIGGER,
        until_idle_s=0.5,
    )


def rows(settings: ConsumeSettings, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in LedgerReader(str(settings.ledger)).sql(text).to_pylist()]


def relenting(settings: ConsumeSettings, directory: Path) -> ConsumeSettings:
    target = HandlerTarget("replay_handlers:relent", "auto", (str(directory),))
    return ConsumeSettings(**{**vars(settings), "handler": target})


def test_dead_letters_chosen_by_sql_are_handled_again_by_their_group_and_once(
    spark: SparkSession,
    shared_broker: BrokerProcess,
    broker: BrokerProcess,
    settings: ConsumeSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    consume(settings, lambda: spark)
    assert rows(settings, "SELECT reason, count(*) FROM dead_letters GROUP BY reason ORDER BY reason") == [
        ("negative amount", 3),
        ("too much", 2),
    ]
    ledger, where = str(settings.ledger), "reason = 'negative amount'"
    group = settings.group
    command = ["dlq", "replay", "--group", group, "--ledger", ledger, "--where", where]
    command += ["--endpoint", shared_broker.endpoint]
    capsys.readouterr()
    assert main(command) == 0
    assert f"3 dead letters of group {group} would be handled again; --execute" in capsys.readouterr().out
    assert rows(settings, "SELECT count(*) FROM replays") == [(0,)]

    with broker.client() as elsewhere, pytest.raises(InvalidRequest, match="GROUP_NOT_EXIST"):
        Replay(DeadLetterChoice(ledger, group, where)).send(elsewhere)
    assert main([*command, "--execute"]) == 0
    assert f"3 dead letters of group {group} are sent again" in capsys.readouterr().out
    assert main([*command, "--execute"]) == 0
    assert f"0 dead letters of group {group} are sent again" in capsys.readouterr().out
    assert Replay(DeadLetterChoice(ledger, "nobody", f"consumer_group = '{group}'")).letters.num_rows == 0

    of_group = ["--group", group, "--ledger", ledger]
    discard = ["dlq", "discard", *of_group, "--where", "reason = 'too much'", "--reason", "paid by hand"]
    assert main(discard) == 0
    assert f"2 dead letters of group {group} would be discarded" in capsys.readouterr().out
    assert main([*discard, "--execute"]) == 0
    everything = ["dlq", "replay", *of_group, "--endpoint", shared_broker.endpoint, "--execute"]
    capsys.readouterr()
    assert main(everything) == 0
    assert f"0 dead letters of group {group} are sent again" in capsys.readouterr().out
    assert main(["dlq", "export", *of_group, "--discarded", "--to", str(tmp_path / "put-aside.ndjson")]) == 0
    lines = (tmp_path / "put-aside.ndjson").read_text().splitlines()
    assert sorted(json.loads(json.loads(line)["body"])["amount"] for line in lines) == [9, 10]

    consume(relenting(settings, tmp_path), lambda: spark)
    history = "SELECT attempt, verdict, count(*) FROM deliveries GROUP BY 1, 2 ORDER BY 1, 2"
    assert rows(settings, history) == [
        (1, "ACK", 9),
        (1, "DEAD", 5),
        (2, "ACK", 2),
        (2, "RETRY", 1),
        (3, "DEAD", 1),
    ], STILL_DEAD
    assert rows(settings, "SELECT attempts, reason, error_text FROM dead_letters WHERE attempts > 1") == [
        (3, "attempts used up (max reconsume times 1)", "still no")
    ]
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters"):
        assert rows(settings, f"SELECT * FROM {view}") == [], view
    again = Replay(DeadLetterChoice(ledger, settings.group, where))
    assert again.letters.num_rows == 0
    assert Replay(DeadLetterChoice(ledger, settings.group, "attempts = 3")).letters.num_rows == 1, (
        "given up since, it may be replayed"
    )


class _AnswersLost(Client):
    """Loses the answer of every other send."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self.sends = 0

    def send_arrow(self, *args: Any, **kwargs: Any) -> Any:
        self.sends += 1
        result = super().send_arrow(*args, **kwargs)
        if self.sends == 2:
            raise OutcomeUnknown.of("the answer was lost", kwargs["idempotency_key"])
        return result


def test_a_replay_that_breaks_off_and_is_run_again_sends_each_dead_letter_once(
    spark: SparkSession, shared_broker: BrokerProcess, settings: ConsumeSettings, tmp_path: Path
) -> None:
    consume(settings, lambda: spark)
    ledger = str(settings.ledger)
    with _AnswersLost(shared_broker.endpoint) as client:
        with pytest.raises(OutcomeUnknown):
            Replay(DeadLetterChoice(ledger, settings.group, "true")).send(client)
        assert rows(settings, "SELECT count(*) FROM replays") == [(1,)], "what was sent is written down"
        replayed = Replay(DeadLetterChoice(ledger, settings.group, "true")).send(client)
    assert (replayed.sent, replayed.refused) == (4, [])
    with shared_broker.client() as client:
        (queue,) = client.queues(f"%RETRY%{settings.group}")
    consume(relenting(settings, tmp_path), lambda: spark)
    assert rows(settings, "SELECT count(*) FROM deliveries WHERE attempt = 2") == [(5,)]
    assert rows(settings, "SELECT * FROM duplicate_deliveries") == []
    assert queue.max_offset == 5


def test_an_edited_body_is_handled_in_the_place_of_the_one_that_was_given_up(
    spark: SparkSession,
    shared_broker: BrokerProcess,
    settings: ConsumeSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    consume(settings, lambda: spark)
    of_group = ["--group", settings.group, "--ledger", str(settings.ledger)]
    file = tmp_path / "letters.ndjson"
    negative = ["--where", "reason = 'negative amount'"]
    assert main(["dlq", "export", *of_group, *negative, "--to", str(file)]) == 0
    letters = [json.loads(line) for line in file.read_text().splitlines()]
    for letter in letters:
        letter["body"] = letter["body"].replace("-", "")
    file.write_text("\n".join(map(json.dumps, letters)))
    replay = ["dlq", "replay", *of_group, "--endpoint", shared_broker.endpoint, "--bodies", str(file)]
    capsys.readouterr()
    assert main(replay) == 0
    assert "would be handled again, 3 of them with another body; --execute" in capsys.readouterr().out
    assert main([*replay, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "group": settings.group,
        "would_replay": 3,
        "with_another_body": 3,
        "sent_before": 0,
        "executed": False,
    }
    assert rows(settings, "SELECT count(*) FROM replays") == [(0,)]
    assert main([*replay, "--execute"]) == 0
    assert f"3 dead letters of group {settings.group} are sent again" in capsys.readouterr().out
    assert main([*replay, "--execute"]) == 0, "the same command goes on with what is left"
    assert f"0 dead letters of group {settings.group} are sent again" in capsys.readouterr().out

    target = HandlerTarget("replay_handlers:take", "auto", (str(tmp_path),))
    consume(ConsumeSettings(**{**vars(settings), "handler": target, "max_reconsume_times": 0}), lambda: spark)
    place = "topic, broker_name, queue_id, queue_offset"
    given_up = f"SELECT {place} FROM dead_letters WHERE reason = 'negative amount' ORDER BY 1, 2, 3, 4"
    handled = f"SELECT {place} FROM deliveries WHERE attempt = 2 ORDER BY 1, 2, 3, 4"
    assert rows(settings, handled) == rows(settings, given_up), "at the position of the dead letter"
    assert rows(
        settings, "SELECT body FROM deliveries WHERE attempt = 2 AND verdict <> 'ACK' ORDER BY 1"
    ) == [
        (b'{"amount": 1}',),
        (b'{"amount": 3}',),
    ], "what the handler got"
    traced = rows(settings, "SELECT reason FROM message_trace WHERE event = 'REPLAY' ORDER BY 1")
    assert traced == sorted(
        (f"another body, sha256 {hashlib.sha256(letter['body'].encode()).hexdigest()}",) for letter in letters
    )
    for view in ("duplicate_deliveries", "delivery_gaps", "pending_retries", "pending_dead_letters"):
        assert rows(settings, f"SELECT * FROM {view}") == [], view
