"""How a group fares, out of its ledger: what waits, what failed, how long handling takes.

Owns the queries and their answers; what only the broker knows (how far behind the group is) is not here.

Invariants: all answers are of the tables at one moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from delta_tables.ledger_reader import LedgerReader, LedgerSnapshot
from delta_tables.replays import DISCARD
from delta_tables.spark_reader import SparkReader, SparkSnapshot
from store_native import validate_group

RATE_WINDOW = timedelta(minutes=1)
WINDOW = timedelta(hours=1)

_TIME = "%Y-%m-%d %H:%M:%S.%f"
_PENDING = """\
SELECT count(*) AS pending, count(CASE WHEN next_attempt_at <= TIMESTAMP '{now}' THEN 1 END) AS due,
  min(next_attempt_at) AS next_due_at
FROM pending_retries WHERE consumer_group = '{group}'"""
_REPLAYS = f"""\
SELECT count(*) AS under_way FROM replays AS sent LEFT JOIN (
  SELECT topic, broker_name, queue_id, queue_offset, attempt FROM deliveries
  WHERE consumer_group = '{{group}}' AND attempt > 1
) AS followed
  ON followed.topic = sent.topic AND followed.broker_name = sent.broker_name
  AND followed.queue_id = sent.queue_id AND followed.queue_offset = sent.queue_offset
  AND followed.attempt - 1 = sent.attempts
WHERE sent.consumer_group = '{{group}}' AND coalesce(sent.action, '') <> '{DISCARD}'
  AND followed.attempt IS NULL"""
_PARKED = """\
SELECT count(*) AS parked, min(parked_at) AS oldest FROM parked_messages WHERE consumer_group = '{group}'"""
_SENDS = """\
SELECT coalesce(sum(waiting), 0) AS waiting, coalesce(sum(waiting_rows), 0) AS waiting_rows,
  min(decided_at) AS oldest
FROM pending_sends WHERE consumer_group = '{group}'"""
_REFUSED = """\
SELECT refused_at AS at, topic, message_id, code, error FROM pending_sends
WHERE consumer_group = '{group}' AND code IS NOT NULL ORDER BY refused_at DESC, queue_offset LIMIT 1"""
_DEAD = """\
SELECT count(*) AS dead FROM dead_letters
WHERE consumer_group = '{group}' AND last_attempt_at > TIMESTAMP '{since}'"""
_GIVEN_UP = """\
SELECT count(*) AS pending, min(given_up_at) AS oldest FROM pending_dead_letters
WHERE consumer_group = '{group}'"""
_HANDLING = """\
SELECT topic, count(*) AS attempts, count(CASE WHEN verdict <> 'ACK' THEN 1 END) AS failed,
  avg(took_us) / 1e3 AS mean_ms, {p95} / 1e3 AS p95_ms, max(took_us) / 1e3 AS max_ms
FROM (
  SELECT topic, verdict, {finished_us} - {started_us} AS took_us FROM deliveries
  WHERE consumer_group = '{group}' AND started_at IS NOT NULL AND finished_at > TIMESTAMP '{since}'
) AS calls
GROUP BY topic ORDER BY failed DESC, mean_ms DESC, topic"""
_ERROR = """\
SELECT finished_at AS at, topic, message_id, attempt, verdict, error_type,
  coalesce(error_text, reason) AS error
FROM deliveries WHERE consumer_group = '{group}' AND verdict <> 'ACK' AND started_at IS NOT NULL
ORDER BY finished_at DESC, queue_offset DESC LIMIT 1"""
_RATE = """\
SELECT coalesce(sum(next_offset - begin_offset), 0) AS messages FROM consumer_offsets
WHERE consumer_group = '{group}' AND recorded_at > TIMESTAMP '{rate_since}'"""
_REPORT = """\
SELECT query_id, batch_id, recorded_at, messages FROM (
  SELECT query_id, batch_id, max(recorded_at) AS recorded_at, sum(next_offset - begin_offset) AS messages
  FROM consumer_offsets
  WHERE consumer_group = '{group}' AND query_id <> 'retention' GROUP BY query_id, batch_id
) AS batches ORDER BY recorded_at DESC, batch_id DESC LIMIT 2"""
_BEGAN = """\
SELECT min(started_at) AS began FROM deliveries
WHERE consumer_group = '{group}' AND query_id = '{query_id}' AND batch_id = {batch_id}
  AND started_at > TIMESTAMP '{since}'"""
_ANY_TIME = "1970-01-01 00:00:00+00:00"
_REPORTED_LAG = """\
SELECT sum(lag) AS lag FROM group_progress
WHERE consumer_group = '{group}' AND topic <> '%RETRY%{group}'"""


@dataclass(frozen=True)
class TopicHandling:
    """The handler's work on one topic in the last hour, milliseconds for each message."""

    topic: str
    attempts: int
    failed: int
    mean_ms: float
    p95_ms: float
    max_ms: float


@dataclass(frozen=True)
class LastError:
    """The newest attempt that was not acknowledged."""

    at: datetime
    topic: str
    message_id: str
    attempt: int
    verdict: str
    error_type: str | None
    error: str | None


@dataclass(frozen=True)
class RefusedSend:
    """The newest refusal of a message that a verdict sends, or of a row, that waits still.

    Attributes:
        topic: Of the message whose verdict sends it; so is message_id.
    """

    at: datetime
    topic: str
    message_id: str
    code: str
    error: str


@dataclass(frozen=True)
class LastBatch:
    """The newest batch that was reported.

    Attributes:
        seconds: From the first call of the handler to the report; None when no call is in the ledger.
    """

    at: datetime
    messages: int
    seconds: float | None


@dataclass(frozen=True)
class LedgerStatus:
    """A group at one moment.

    Attributes:
        at: The moment.
        pending_retries: Messages that wait for their next attempt.
        due_retries: Of them, those whose time has come.
        next_due_at: When the first of them is due.
        parked: Messages that wait for an earlier one of their lane (orderly mode).
        oldest_parked_at: Since when the first of them waits.
        replays_under_way: Dead letters that were sent again, and have no attempt since.
        pending_sends: Messages that verdicts send and that are not recorded as sent.
        pending_rows: Rows that verdicts write and that are not recorded as written.
        oldest_send_at: When the first of these verdicts was given.
        refused_send: What a broker refuses of them.
        dead_letters: Landed, with a last attempt in the last hour.
        pending_dead_letters: Given up, and neither on the dead-letter topic for certain nor in the table yet.
        oldest_given_up_at: When the first of these was.
        rate_per_s: Messages a second over the last minute.
        reported_lag: How far behind the group was as its batches last reported; None before the first.
        handling: By topic, what fails most first.
    """

    at: datetime
    pending_retries: int
    due_retries: int
    next_due_at: datetime | None
    parked: int
    oldest_parked_at: datetime | None
    replays_under_way: int
    pending_sends: int
    pending_rows: int
    oldest_send_at: datetime | None
    refused_send: RefusedSend | None
    dead_letters: int
    pending_dead_letters: int
    oldest_given_up_at: datetime | None
    rate_per_s: float
    reported_lag: int | None
    last_batch: LastBatch | None
    last_error: LastError | None
    handling: tuple[TopicHandling, ...]


def ledger_status(ledger: LedgerReader | SparkReader, group: str, now: datetime) -> LedgerStatus:
    """Looks at a group.

    Args:
        ledger: Its ledger.
        group: The group.
        now: The time, in UTC.

    Raises:
        InvalidRequest: GROUP_ILLEGAL.
    """
    validate_group(group)
    names = {
        "group": group,
        "now": now.strftime(_TIME),
        "since": (now - WINDOW).strftime(_TIME),
        "rate_since": (now - RATE_WINDOW).strftime(_TIME),
    }
    tables = ledger.snapshot()
    names |= {
        "finished_us": tables.microseconds("finished_at"),
        "started_us": tables.microseconds("started_at"),
        "p95": tables.percentile(0.95, "took_us"),
    }

    def ask(query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = tables.sql(query.format(**names)).to_pylist()
        return rows

    single = (_PENDING, _PARKED, _REPLAYS, _SENDS, _DEAD, _GIVEN_UP, _RATE, _REPORTED_LAG)
    (pending,), (parked,), (replays,), (sends,), (dead,), (given_up,), (rate,), (reported,) = map(ask, single)
    return LedgerStatus(
        at=now,
        pending_retries=pending["pending"],
        due_retries=pending["due"],
        next_due_at=pending["next_due_at"],
        parked=parked["parked"],
        oldest_parked_at=parked["oldest"],
        replays_under_way=replays["under_way"],
        pending_sends=sends["waiting"],
        pending_rows=sends["waiting_rows"],
        oldest_send_at=sends["oldest"],
        refused_send=next((RefusedSend(**row) for row in ask(_REFUSED)), None),
        dead_letters=dead["dead"],
        pending_dead_letters=given_up["pending"],
        oldest_given_up_at=given_up["oldest"],
        rate_per_s=rate["messages"] / RATE_WINDOW.total_seconds(),
        reported_lag=reported["lag"],
        last_batch=_last_batch(tables, group, ask(_REPORT)),
        last_error=next((LastError(**row) for row in ask(_ERROR)), None),
        handling=tuple(TopicHandling(**row) for row in ask(_HANDLING)),
    )


def _last_batch(
    tables: LedgerSnapshot | SparkSnapshot, group: str, newest: list[dict[str, Any]]
) -> LastBatch | None:
    if not newest:
        return None
    report, *before = newest
    batch = {name: report[name] for name in ("query_id", "batch_id")}
    # Not of a call that began in a batch before and went on behind it.
    batch["since"] = before[0]["recorded_at"].isoformat(" ") if before else _ANY_TIME
    ((began,),) = (row.values() for row in tables.sql(_BEGAN.format(group=group, **batch)).to_pylist())
    seconds = None if began is None else (report["recorded_at"] - began).total_seconds()
    return LastBatch(report["recorded_at"], report["messages"], seconds)
