"""Dead letters sent again: chosen by SQL, sent to their group alone, written down.

Owns what a replayed message carries, its key and its row in `replays`.

Invariants: the next attempt continues the message's own history, with as many retries as a first delivery
has; a dead letter is sent again once for each time it was given up, also when the command is killed and run
again, for as long as the broker remembers its key; other groups of the topic see nothing of it.
"""

from __future__ import annotations

import getpass
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY
from delta_tables.ledger import ledger_at
from delta_tables.ledger.path_ledger import PathLedger
from delta_tables.ledger_reader import LedgerReader
from delta_tables.replays import REPLAYS
from jobs.redelivery.counted_attempts import ALONE, UNCOUNTED
from jobs.redelivery.original_position import ORIGIN, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from jobs.redelivery.property_limit import RETRY_PROPERTIES
from lakemq.client import Client
from store_native import validate_group
from store_native.errors import InvalidRequest
from store_native.names import retry_topic

ROWS_A_COMMIT = 500
"""Messages sent before their rows are written; so many at most are sent again, under their keys."""

_KEY = ("topic", "broker_name", "queue_id", "queue_offset", "attempts")
_CHOSEN = """\
WITH mine AS (SELECT * FROM dead_letters WHERE consumer_group = '{group}'),
chosen AS (SELECT * FROM mine WHERE (
{predicate}
))
SELECT chosen.* FROM chosen LEFT JOIN replays AS sent
  ON sent.consumer_group = chosen.consumer_group AND {same}
WHERE sent.replay_id IS NULL
ORDER BY chosen.topic, chosen.broker_name, chosen.queue_id, chosen.queue_offset, chosen.attempts"""


@dataclass
class Replayed:
    """What became of a replay.

    Attributes:
        replay_id: In the rows of `replays`.
        sent: How many messages were stored.
        refused: (message id, reason) of those that the broker did not take.
    """

    replay_id: str
    sent: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)


class Replay:
    """The dead letters of a group that fit a predicate.

    Args:
        ledger: A ledger's directory.
        group: The group.
        predicate: SQL over the columns of `dead_letters`.

    Raises:
        InvalidRequest: GROUP_ILLEGAL; ARGUMENT_ILLEGAL when there is no ledger, it is a catalog's, or the
            predicate is no SQL.
    """

    def __init__(self, ledger: str, group: str, predicate: str) -> None:
        validate_group(group)
        location = ledger_at(ledger)
        reader = LedgerReader(ledger)
        assert isinstance(location, PathLedger), "the reader refuses a catalog"
        self._location = location
        self._group = group
        self._predicate = predicate
        same = " AND ".join(f"sent.{name} = chosen.{name}" for name in _KEY)
        self.letters = reader.sql(_CHOSEN.format(group=group, predicate=predicate, same=same))

    def send(
        self,
        client: Client,
        *,
        rate: float | None = None,
        sent: Callable[[int], None] = lambda messages: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Replayed:
        """Sends them to the group's retry topic and writes down that they were sent.

        Args:
            client: The broker's.
            rate: Messages a second at most; None does not wait.
            sent: Called with the number of messages just dealt with.
            clock: Seconds that never go back.
            sleep: Waits so many seconds.

        Raises:
            LakeMQError: The broker cannot be reached; what was sent is written down.
            Unavailable: STORE_LOCKED when another process writes the table.
        """
        replayed = Replayed(uuid.uuid4().hex)
        self._location.create(REPLAYS)
        (lock,) = self._location.writer_locks((REPLAYS,))
        lock.acquire()
        waiting: list[dict[str, Any]] = []
        began = clock()
        try:
            for number, letter in enumerate(self.letters.to_pylist()):
                if rate is not None and (early := began + number / rate - clock()) > 0:
                    sleep(early)
                try:
                    self._send(client, letter)
                except InvalidRequest as error:
                    replayed.refused.append((letter["message_id"], str(error)))
                else:
                    waiting.append(self._row(letter, replayed.replay_id))
                    replayed.sent += 1
                if len(waiting) == ROWS_A_COMMIT:
                    self._write(waiting, replayed)
                sent(1)
        finally:
            self._write(waiting, replayed)
            lock.release()
        return replayed

    def _send(self, client: Client, letter: dict[str, Any]) -> None:
        position = f"{letter['broker_name']}/{letter['queue_id']}/{letter['queue_offset']}"
        attempts = letter["attempts"]
        carried = dict(letter["properties"] or ())
        properties = {name: value for name, value in carried.items() if name not in RETRY_PROPERTIES}
        properties |= {
            RETRY_TOPIC: letter["topic"],
            ORIGIN_MESSAGE_ID: letter["message_id"],
            ORIGIN: position,
            FIRST_ATTEMPT_PROPERTY: str(round(letter["first_attempt_at"].timestamp() * 1000)),
            UNCOUNTED: str(attempts),  # as many retries as a first delivery has
        }
        if ALONE in carried:
            properties[ALONE] = carried[ALONE]
        row = {
            "body": pa.array([letter["body"]], pa.binary()),
            "keys": pa.array([letter["keys"]], pa.list_(pa.string())),
            "tags": pa.array([letter["tags"]], pa.string()),
            "properties": pa.array([list(properties.items())], pa.map_(pa.string(), pa.string())),
            "flag": pa.array([letter["flag"]], pa.int32()),
            "message_id": pa.array([letter["message_id"]], pa.string()),
            "reconsume_times": pa.array([attempts], pa.int32()),
        }
        key = f"replay/{self._group}/{letter['topic']}/{position}/{attempts}"
        client.send_arrow(retry_topic(self._group), pa.table(row), idempotency_key=key)

    def _row(self, letter: dict[str, Any], replay_id: str) -> dict[str, Any]:
        return {
            "consumer_group": self._group,
            **{name: letter[name] for name in (*_KEY, "message_id")},
            "replay_id": replay_id,
            "predicate": self._predicate,
            "operator": f"{getpass.getuser()}@{socket.gethostname()}",
            "replayed_at": datetime.now(UTC),
        }

    def _write(self, rows: list[dict[str, Any]], replayed: Replayed) -> None:
        if rows:
            table = pa.Table.from_pylist(rows, schema=REPLAYS.arrow_schema)
            app_id = f"lakemq/replay/{replayed.replay_id}"
            self._location.append_arrow(table, REPLAYS, app_id=app_id, version=replayed.sent)
            rows.clear()
