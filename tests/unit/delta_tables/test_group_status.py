"""How a group fares, out of a ledger's rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.group_status import LastBatch, LedgerStatus, TopicHandling, ledger_status
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.replays import DISCARD, REPLAY, REPLAYS
from delta_tables.sent_messages import SENT_MESSAGES
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import START, append, delivery, path_ledger, report

NOW = START + timedelta(minutes=10)


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    return path_ledger(tmp_path)


def status(ledger: PathLedger, group: str = "g") -> LedgerStatus:
    return ledger_status(LedgerReader(ledger.directory), group, NOW)


def handled(offset: int, took_ms: int, verdict: str = "ACK", **fields: Any) -> dict[str, Any]:
    began = NOW - timedelta(seconds=30)
    ended = began + timedelta(milliseconds=took_ms)
    return delivery(offset, 1, verdict, **{"started_at": began, "finished_at": ended, **fields})


def test_retries_are_counted_and_so_are_those_that_are_due(ledger: PathLedger) -> None:
    rows = [
        handled(0, 5, "RETRY", next_attempt_at=NOW),
        handled(1, 5, "RETRY", next_attempt_at=NOW + timedelta(seconds=1)),
        handled(2, 5, "RETRY", next_attempt_at=NOW - timedelta(seconds=20)),
        delivery(2, 2),
        handled(3, 5, "RETRY", consumer_group="other", next_attempt_at=NOW),
    ]
    append(ledger, DELIVERIES, rows)
    found = status(ledger)
    assert (found.pending_retries, found.due_retries, found.next_due_at) == (2, 1, NOW)


def test_a_replay_is_under_way_until_its_attempt_is_there(ledger: PathLedger) -> None:
    base = {"consumer_group": "g", "topic": "orders", "broker_name": "broker-a", "queue_id": 0}
    sent = base | {"attempts": 1, "replayed_at": NOW, "action": REPLAY}
    rows = [
        *(sent | {"queue_offset": offset} for offset in range(3)),
        sent | {"queue_offset": 3, "action": None},  # of an older release
        sent | {"queue_offset": 4, "action": DISCARD},
        sent | {"queue_offset": 5, "consumer_group": "other"},
        sent | {"queue_offset": 6, "attempts": 2},
    ]
    append(ledger, REPLAYS, rows)
    done = [delivery(1, 2), delivery(2, 2, consumer_group="other"), delivery(6, 2)]
    append(ledger, DELIVERIES, [delivery(0, 1, "DEAD"), *done])
    assert status(ledger).replays_under_way == 4, "0, 2, 3, and 6 whose third attempt is not there"


def test_what_verdicts_send_waits_until_it_is_recorded_as_sent(ledger: PathLedger) -> None:
    rows = [handled(0, 5, sends=2), handled(1, 7, sends=3), handled(2, 1), handled(3, 5, sends=4)]
    append(ledger, DELIVERIES, [*rows, handled(4, 5, sends=9, consumer_group="other")])
    key = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset", "attempt")
    append(ledger, SENT_MESSAGES, [{name: rows[0][name] for name in key} | {"number": n} for n in (1, 2)])
    found = status(ledger)
    assert (found.pending_sends, found.oldest_send_at) == (7, rows[3]["finished_at"])


def test_dead_letters_of_the_last_hour_count(ledger: PathLedger) -> None:
    ages = (timedelta(minutes=1), timedelta(minutes=59), timedelta(minutes=61))
    base = {"consumer_group": "g", "topic": "orders", "broker_name": "b", "queue_id": 0, "attempts": 1}
    rows = [base | {"queue_offset": n, "last_attempt_at": NOW - age} for n, age in enumerate(ages)]
    append(ledger, DEAD_LETTERS, [*rows, rows[0] | {"consumer_group": "other"}])
    assert status(ledger).dead_letters == 2


def test_what_is_given_up_waits_until_its_dead_letter_is_there(ledger: PathLedger) -> None:
    given_up = [handled(n, took, "DEAD") for n, took in enumerate((9, 7, 5))]
    append(ledger, DELIVERIES, [*given_up, handled(3, 1, "DEAD", consumer_group="other"), handled(4, 1)])
    found = status(ledger)
    assert (found.dead_letters, found.pending_dead_letters) == (0, 3)
    assert found.oldest_given_up_at == given_up[2]["finished_at"]
    key = ("consumer_group", "topic", "broker_name", "queue_id", "queue_offset")
    row = {name: given_up[2][name] for name in key} | {"attempts": 1, "last_attempt_at": NOW}
    append(ledger, DEAD_LETTERS, [row])
    found = status(ledger)
    assert (found.dead_letters, found.pending_dead_letters) == (1, 2)
    assert found.oldest_given_up_at == given_up[1]["finished_at"]


def test_handling_is_told_by_topic_and_what_fails_most_comes_first(ledger: PathLedger) -> None:
    slow = [handled(n, 1_000 * (n + 1), topic="slow") for n in range(3)]
    failing = [handled(0, 4, "RETRY", topic="failing"), handled(1, 2, topic="failing")]
    old = [handled(9, 90_000, topic="slow", finished_at=NOW - timedelta(minutes=61))]
    append(ledger, DELIVERIES, [*slow, *failing, *old])
    assert status(ledger).handling == (
        TopicHandling("failing", 2, 1, 3.0, 4.0, 4.0),
        TopicHandling("slow", 3, 0, 2_000.0, 3_000.0, 3_000.0),
    )


def test_the_newest_failure_is_the_last_error(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [handled(0, 1, "RETRY"), handled(1, 9, "DEAD", reason="no"), handled(2, 99)])
    error = status(ledger).last_error
    assert error is not None
    assert (error.message_id, error.verdict, error.attempt, error.error) == ("ID1", "DEAD", 1, "no")


def test_the_rate_and_the_last_batch_are_the_reports(ledger: PathLedger) -> None:
    report(ledger, 0, 500, batch_id=1)
    report(ledger, 500, 560, batch_id=56, max_offset=570)  # 9 min 20 s after the start
    report(ledger, 0, 60, batch_id=56, queue_id=1, max_offset=61)
    began = START + timedelta(seconds=556)
    append(ledger, DELIVERIES, [handled(500, 1, batch_id=56, started_at=began, finished_at=began)])
    earlier = START + timedelta(seconds=10)  # a call that went on behind the batch before
    append(ledger, DELIVERIES, [handled(501, 1, batch_id=56, started_at=earlier, finished_at=began)])
    found = status(ledger)
    assert found.rate_per_s == 2.0
    assert found.reported_lag == 11
    assert found.last_batch == LastBatch(START + timedelta(seconds=560), 120, 4.0)


def test_a_group_that_did_nothing_has_nothing(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [handled(0, 5)])
    assert status(ledger, "new") == LedgerStatus(
        *(NOW, 0, 0, None, 0, None, 0, 0, 0, None, None, 0, 0, None, 0.0, None, None, None, ())
    )


def test_a_name_that_is_no_groups_reaches_no_query(ledger: PathLedger) -> None:
    append(ledger, DELIVERIES, [handled(0, 5)])
    with pytest.raises(InvalidRequest, match="GROUP_ILLEGAL"):
        status(ledger, "g' OR '1'='1")
