"""Dead letters sent again: chosen by SQL, sent to their group alone, written down.

Owns what a replayed message carries, its key and its row in `replays`.

Invariants: the next attempt continues the message's own history, with as many retries as a first delivery
has; a dead letter is sent again once for each time it was given up, also when the command is killed and run
again, for as long as the broker remembers its key; other groups of the topic see nothing of it.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Sequence
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
from store_native.errors import InvalidRequest, from_code
from store_native.names import retry_topic

ROWS_A_COMMIT = 500
"""Messages sent before their rows are written; so many at most are sent again, under their keys."""

_ALL = 2**62
_KEY = ("topic", "broker_name", "queue_id", "queue_offset", "attempts")
_CONDITION = re.compile(
    r"""
    [^'"()/;-] | '(?:[^']|'')*' | "(?:[^"]|"")*"
    | --[^\n]* | /\*.*?\*/ | -(?!-) | /(?!\*) | (?P<open>\() | (?P<close>\))
    """,
    re.VERBOSE | re.DOTALL,
)
"""One piece of a condition: what is quoted or a comment is one piece, and no parenthesis."""
_CHOSEN = """\
WITH mine AS (SELECT * FROM dead_letters WHERE consumer_group = '{group}'),
chosen AS (SELECT * FROM mine WHERE (
{predicate}
))
SELECT {columns} FROM chosen LEFT JOIN replays AS sent
  ON sent.consumer_group = chosen.consumer_group AND {same}
WHERE sent.replay_id IS NULL
ORDER BY chosen.topic, chosen.broker_name, chosen.queue_id, chosen.queue_offset, chosen.attempts
LIMIT {most} OFFSET {passed}"""


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
        self._reader = LedgerReader(ledger)
        assert isinstance(location, PathLedger), "the reader refuses a catalog"
        _check_condition(predicate)
        self._location = location
        self._group = group
        self._predicate = predicate
        self.letters = self._choose((*_KEY, "message_id", "last_attempt_at", "reason", "error_text"))

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

        They are chosen again once no other process writes: what another replay sent is not sent again.

        Args:
            client: The broker's.
            rate: Messages a second at most; None does not wait.
            sent: Called with the number of messages just dealt with.
            clock: Seconds that never go back.
            sleep: Waits so many seconds.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST or ARGUMENT_ILLEGAL: the broker is not that of the dead letters;
                nothing was sent.
            LakeMQError: The broker cannot be reached; what was sent is written down.
            Unavailable: STORE_LOCKED when another process writes the table.
        """
        brokers = self._brokers(client)
        replayed = Replayed(uuid.uuid4().hex)
        operator = _operator()
        self._location.create(REPLAYS)
        (lock,) = self._location.writer_locks((REPLAYS,))
        lock.acquire()
        waiting: list[dict[str, Any]] = []
        began = clock()
        number = 0
        try:
            # What was sent is not chosen again; what was refused comes first, and is passed over.
            while letters := self._choose(None, ROWS_A_COMMIT, len(replayed.refused)).to_pylist():
                for letter in letters:
                    if rate is not None and (early := began + number / rate - clock()) > 0:
                        sleep(early)
                    number += 1
                    try:
                        self._send(brokers[letter["broker_name"]], letter)
                    except InvalidRequest as error:
                        replayed.refused.append((letter["message_id"], str(error)))
                    else:
                        waiting.append(self._row(letter, replayed.replay_id, operator))
                        replayed.sent += 1
                    sent(1)
                self._write(waiting, replayed)
        finally:
            self._write(waiting, replayed)
            lock.release()
        return replayed

    def _choose(self, columns: Sequence[str] | None, most: int = _ALL, passed: int = 0) -> pa.Table:
        """The dead letters not replayed yet, by position; all columns without a choice.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL when the predicate is no SQL, or finds a row twice.
        """
        found = self._reader.sql(
            _CHOSEN.format(
                group=self._group,
                predicate=self._predicate,
                same=" AND ".join(f"sent.{name} = chosen.{name}" for name in _KEY),
                columns="chosen.*" if columns is None else ", ".join(f"chosen.{name}" for name in columns),
                most=most,
                passed=passed,
            )
        )
        keys = list(zip(*(found.column(name).to_pylist() for name in _KEY), strict=True))
        if len(keys) != len(set(keys)):
            raise from_code(
                "ARGUMENT_ILLEGAL", "--where is a condition over dead_letters; it finds rows twice"
            )
        return found

    def _brokers(self, client: Client) -> dict[str, Client]:
        """The brokers of the dead letters, by name: a message goes back where it came from.

        There its key is known when it is sent again, and its group.
        """
        names = set(self.letters.column("broker_name").to_pylist())
        if client.is_cluster():
            found = {name: client.broker(name) for name in names}
        else:
            here = str(client.cluster()["broker_name"])
            if others := sorted(names - {here}):
                raise from_code(
                    "ARGUMENT_ILLEGAL",
                    f"{client.endpoint} is broker {here}; there are dead letters of {', '.join(others)}",
                )
            found = dict.fromkeys(names, client)
        for broker in found.values():
            broker.group(self._group)  # a broker of that name in another place has no such group
        return found

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
        # Of this death: a ledger built again, or a topic made anew, has others at the same positions.
        death = (self._group, *(letter[name] for name in _KEY), letter["query_id"], letter["batch_id"])
        key = "replay/" + hashlib.sha256(repr(death).encode("utf-8", "backslashreplace")).hexdigest()
        client.send_arrow(retry_topic(self._group), pa.table(row), idempotency_key=key)

    def _row(self, letter: dict[str, Any], replay_id: str, operator: str) -> dict[str, Any]:
        return {
            "consumer_group": self._group,
            **{name: letter[name] for name in (*_KEY, "message_id")},
            "replay_id": replay_id,
            "predicate": self._predicate,
            "operator": operator,
            "replayed_at": datetime.now(UTC),
        }

    def _write(self, rows: list[dict[str, Any]], replayed: Replayed) -> None:
        if rows:
            table = pa.Table.from_pylist(rows, schema=REPLAYS.arrow_schema)
            app_id = f"lakemq/replay/{replayed.replay_id}"
            self._location.append_arrow(table, REPLAYS, app_id=app_id, version=replayed.sent)
            rows.clear()


def _check_condition(predicate: str) -> None:
    """Refuses what would end the parentheses that it stands in.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL.
    """
    depth = at = 0
    while depth >= 0 and (piece := _CONDITION.match(predicate, at)):
        depth += bool(piece["open"]) - bool(piece["close"])
        at = piece.end()
    if depth != 0 or at != len(predicate) or not predicate.strip():
        raise from_code(
            "ARGUMENT_ILLEGAL", f"--where is one condition such as reason = 'timeout', not {predicate!r}"
        )


def _operator() -> str:
    """Who runs this: a user may have no name, as in a container."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
