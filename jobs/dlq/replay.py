"""Dead letters sent again: to their group alone, and written down.

Owns what a replayed message carries, and its key.

Invariants: the next attempt continues the message's own history, with as many retries as a first delivery
has; a dead letter is sent again once for each time it was given up, also when the command is killed and run
again, for as long as the broker remembers its key; other groups of the topic see nothing of it. Another body
changes neither: it has a key of its own at the broker, and the position and attempt of the dead letter.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delta_tables.dead_letters import FIRST_ATTEMPT_PROPERTY
from delta_tables.replays import REPLAY
from jobs.dlq.audit import Audit
from jobs.dlq.choice import KEY, DeadLetterChoice
from jobs.dlq.edited_bodies import Edit, EditedBodies, Edits
from jobs.group.given_again import broker_of
from jobs.redelivery.counted_attempts import ALONE, UNCOUNTED
from jobs.redelivery.original_position import ORIGIN, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from jobs.redelivery.property_limit import RETRY_PROPERTIES
from lakemq.client import Client
from store_native.errors import InvalidRequest, from_code
from store_native.names import retry_topic

ROWS_A_COMMIT = 500
"""Messages sent before their rows are written; so many at most are sent again, under their keys."""


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
    """Sends chosen dead letters again.

    Args:
        choice: Which.
        bodies: Other bodies for some of them.
        only_named: Of the chosen only those that the bodies name.

    Attributes:
        letters: Their summaries, as they were when this was made.
        edits: What the bodies come to among them; None without.
        replayed: What became of it so far; None before :meth:`send` begins, which may be interrupted.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, the predicate is no SQL, or a line of the bodies is wrong.
    """

    def __init__(
        self, choice: DeadLetterChoice, bodies: EditedBodies | None = None, *, only_named: bool = False
    ) -> None:
        self._choice = choice
        self._bodies = bodies
        self._only_named = only_named and bodies is not None
        self._group = choice.group
        self.edits = None if bodies is None else bodies.among(choice)
        self.letters = self._wanted(choice.summaries(), self.edits)
        self.replayed: Replayed | None = None

    def check_sizes(self, client: Client) -> None:
        """Refuses a body that is larger than its broker takes one.

        Raises:
            InvalidRequest: MESSAGE_TOO_LARGE, or as :meth:`send`.
            LakeMQError: The broker cannot be reached.
        """
        if self.edits is not None:
            self.edits.check_sizes(_largest_bodies(self._brokers(client, self.letters)))

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

        They are chosen once, when no other process writes: what another replay sent is not sent again, and
        what is given up while this goes on is left to the next.

        Args:
            client: The broker's.
            rate: Messages a second at most; None does not wait.
            sent: Called with the number of messages just dealt with.
            clock: Seconds that never go back.
            sleep: Waits so many seconds.

        Raises:
            InvalidRequest: GROUP_NOT_EXIST or ARGUMENT_ILLEGAL: the broker is not that of the dead letters;
                MESSAGE_TOO_LARGE or ARGUMENT_ILLEGAL: another body is too large, or its line wrong by now;
                nothing was sent.
            LakeMQError: The broker cannot be reached; what was sent is written down.
            Unavailable: STORE_LOCKED when another process writes the table.
        """
        audit = Audit(self._choice, REPLAY)
        self.replayed = replayed = Replayed(audit.replay_id)
        waiting: list[dict[str, Any]] = []
        number = 0
        with audit.only_writer():
            edits = None if self._bodies is None else self._bodies.among(self._choice)
            chosen = self._wanted(self._choice.keys(), edits)
            brokers = self._brokers(client, chosen)
            if edits is not None:
                edits.check_sizes(_largest_bodies(brokers))
            changed = {} if edits is None else edits.changed
            began = clock()
            try:
                for first in range(0, chosen.num_rows, ROWS_A_COMMIT):
                    letters = self._choice.named(chosen.slice(first, ROWS_A_COMMIT)).to_pylist()
                    for letter in letters:
                        if rate is not None and (early := began + number / rate - clock()) > 0:
                            sleep(early)
                        number += 1
                        edit = changed.get(tuple(letter[name] for name in KEY))
                        try:
                            self._send(brokers[broker_of(letter["broker_name"])], letter, edit)
                        except InvalidRequest as error:
                            replayed.refused.append((letter["message_id"], str(error)))
                        else:
                            waiting.append(audit.row(letter, edit))
                            replayed.sent += 1
                        sent(1)
                    audit.write(waiting)
                    waiting.clear()
            finally:
                audit.write(waiting)
        return replayed

    def _wanted(self, letters: pa.Table, edits: Edits | None) -> pa.Table:
        if edits is None or not self._only_named:
            return letters
        keys = zip(*(letters.column(name).to_pylist() for name in KEY), strict=True)
        return letters.filter(pa.array([key in edits.named for key in keys], pa.bool_()))

    def _brokers(self, client: Client, letters: pa.Table) -> dict[str, Client]:
        """The brokers of the dead letters, by name: a message goes back where it came from.

        There its key is known when it is sent again, and its group.
        """
        names = {broker_of(name) for name in letters.column("broker_name").to_pylist()}
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

    def _send(self, client: Client, letter: dict[str, Any], edit: Edit | None) -> None:
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
            "body": pa.array([letter["body"] if edit is None else edit.body], pa.binary()),
            "keys": pa.array([letter["keys"]], pa.list_(pa.string())),
            "tags": pa.array([letter["tags"]], pa.string()),
            "properties": pa.array([list(properties.items())], pa.map_(pa.string(), pa.string())),
            "flag": pa.array([letter["flag"]], pa.int32()),
            "message_id": pa.array([letter["message_id"]], pa.string()),
            "reconsume_times": pa.array([attempts], pa.int32()),
        }
        # Of this death: a ledger built again, or a topic made anew, has others at the same positions.
        death = (self._group, *(letter[name] for name in KEY), letter["query_id"], letter["batch_id"])
        if edit is not None:  # under the same key the broker would answer with what it has of the old body
            death += (edit.sha256,)
        key = "replay/" + hashlib.sha256(repr(death).encode("utf-8", "backslashreplace")).hexdigest()
        client.send_arrow(retry_topic(self._group), pa.table(row), idempotency_key=key)


def _largest_bodies(brokers: dict[str, Client]) -> dict[str, int | None]:
    """Bytes of a body that each takes; None of one of an earlier version, which does not say it."""
    return {name: broker.cluster().get("max_message_bytes") for name, broker in brokers.items()}
