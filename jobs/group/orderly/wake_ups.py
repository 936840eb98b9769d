"""Wake-ups of one group: a batch for parked messages that wait for nothing else.

Owns when one is sent, and again where no broker took it, and the thread that does so.

Invariants: one at a time: while one is stored that no batch has read, no other is sent, also by a driver
that starts anew. One that is refused is sent again, after 1, 2, 4 ... 30 seconds, until a broker takes it or
nobody waits for it.

Threads: `begin`, `ask` and `end` are the group job's; a thread of its own, from the first refusal on, sends
again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from jobs.redelivery import wake_up
from jobs.runtime.group_brokers import GroupBrokers
from lakemq.client import Client
from store_native.errors import LakeMQError
from store_native.names import retry_topic
from structured_streaming.offsets import MessageQueue
from structured_streaming.subscription import Subscription

_log = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
_CLOSED_WITHIN_S = 5.0


class WakeUps:
    """Asks for batches of one group.

    Args:
        client: the broker.
        group: the group.
        first_pause_s: how long after the first refusal it is sent again.
    """

    def __init__(self, client: Client, group: str, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self._client = client
        self._group = group
        self._first_pause_s = first_pause_s
        self._changed = threading.Condition()
        self._asked = False
        self._refusal: LakeMQError | None = None
        self._turn = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def refusal(self) -> LakeMQError | None:
        """What the broker said last that did not take what is asked for."""
        return self._refusal

    def begin(self, reached: Mapping[MessageQueue, int]) -> None:
        """Ends what was asked for; a retry topic with messages that no batch has read makes one by itself.

        Args:
            reached: the offset that the batches have reached in each queue.
        """
        self.end()
        one_comes = self._holds_unread(reached)
        with self._changed:
            self._asked = one_comes

    def ask(self) -> None:
        """Asks for a batch; what is asked for already is not sent twice.

        Returns when a broker has taken the message, or has refused it for the first time.
        """
        with self._changed:
            if self._asked or self._closed:
                return
            self._asked = True
            turn = self._turn
        self._send(turn)
        with self._changed:
            if self._refusal is None or self._closed:
                return
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_again, name="wake-ups", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Takes note that a batch has come, or that none is waited for."""
        with self._changed:
            self._turn += 1
            self._asked = False
            self._refusal = None
            self._changed.notify_all()

    def close(self) -> None:
        """Sends nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSED_WITHIN_S)

    def _holds_unread(self, reached: Mapping[MessageQueue, int]) -> bool:
        """Whether a broker that answers has something on the retry topic that a batch will read."""
        retries = Subscription(frozenset({retry_topic(self._group)}))
        try:
            brokers = GroupBrokers(self._client)
            names = list(brokers.each())
        except LakeMQError:
            return False
        for name in names:
            try:
                held = brokers.held_at(name, retries)
            except LakeMQError:
                continue  # while it is away no batch reads it
            if any(b.confirmed_offset > max(b.min_offset, reached.get(q, 0)) for q, b in held.items()):
                return True
        return False

    def _send(self, turn: int) -> None:
        refusal: LakeMQError | None = None
        try:
            wake_up.send(self._client, self._group)
        except LakeMQError as error:
            refusal = error
        with self._changed:
            if turn != self._turn or self._closed:
                return  # a batch has come meanwhile: what is asked for by now is another one
            before, self._refusal = self._refusal, refusal
        if refusal is not None and str(refusal) != str(before):
            _log.warning(
                "parked messages of %s that could go on wait for a message to its retry topic, which is sent "
                "again until a broker takes it: %s",
                *(self._group, refusal),
            )
        elif refusal is None and before is not None:
            _log.warning("parked messages of %s go on", self._group)

    def _send_again(self) -> None:
        pause_s = self._first_pause_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._refusal is not None)
                if self._closed:
                    return
                turn = self._turn
                if self._changed.wait_for(lambda: self._closed or self._turn != turn, pause_s):  # noqa: B023
                    pause_s = self._first_pause_s
                    continue
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self._send(turn)
            if self._refusal is None:
                pause_s = self._first_pause_s
