"""Which broker gets the next send of a topic that several brokers hold.

Owns the turn, the avoidance of brokers that failed or were slow, and what an Idempotency-Key means; whose a
sharding key is, is in store_native/sharding.py.

Invariants: every broker gets a share in proportion to its writable queues; where all are to be avoided, none
is; two brokers change places in the order of an Idempotency-Key for no third one that comes or goes.

Threads: any.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Set

from store_native.errors import Unavailable
from store_native.sharding import in_order

LATENCY_MS = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
"""The table of RocketMQ 5 (that of 4.x avoids for up to ten minutes): an answer that took so long ..."""
NOT_AVAILABLE_MS = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
"""... has its broker avoided for so long."""
FAILED_LATENCY_MS = 30_000
"""What a send that failed counts as."""

FAILED_S = 5.0
"""How long a broker that failed is avoided where slow ones are not; then a send looks whether it is back."""


class BrokerChoice:
    """Chooses brokers in turn.

    Args:
        avoid_slow: Also avoids brokers that answered slowly, as LATENCY_MS says. Without it only brokers that
            failed are avoided, for FAILED_S.
        clock: Monotonic seconds.
    """

    def __init__(self, *, avoid_slow: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._avoid_slow = avoid_slow
        self._clock = clock
        self._turn = itertools.count(random.SystemRandom().randrange(1 << 16))
        self._lock = threading.Lock()
        self._avoided_until: dict[str, float] = {}

    def choose(self, queues: Mapping[str, int], without: Set[str] = frozenset()) -> str:
        """Returns the next broker.

        Args:
            queues: Writable queues by broker name.
            without: Brokers that were tried for this send already; taken only when there is no other.

        Raises:
            Unavailable: There is no writable queue.
        """
        names = in_order(queues)
        if not names:
            raise Unavailable("SERVICE_NOT_AVAILABLE", "no broker that is known takes messages of the topic")
        at = next(self._turn)
        turn = [names[(at + step) % len(names)] for step in range(len(names))]
        for refused in (lambda name: name in without or self._is_avoided(name), without.__contains__):
            for name in turn:
                if not refused(name):
                    return name
        return turn[0]

    def went_well(self, name: str, seconds: float) -> None:
        """Notes how long a send took."""
        with self._lock:
            self._avoided_until[name] = self._clock() + (
                avoided_ms(seconds * 1000) / 1000 if self._avoid_slow else 0
            )

    def failed(self, name: str) -> None:
        """Notes that a send got no answer, or a refusal for now."""
        with self._lock:
            avoided_s = avoided_ms(FAILED_LATENCY_MS) / 1000 if self._avoid_slow else FAILED_S
            self._avoided_until[name] = self._clock() + avoided_s

    def _is_avoided(self, name: str) -> bool:
        return self._avoided_until.get(name, 0.0) > self._clock()


def avoided_ms(latency_ms: float) -> int:
    """Returns for how long a broker is avoided that took so long.

    >>> avoided_ms(60), avoided_ms(600), avoided_ms(30_000)
    (0, 2000, 30000)
    """
    for least, avoided in zip(reversed(LATENCY_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= least:
            return avoided
    return 0


def in_order_of_key(idempotency_key: str, brokers: Iterable[str]) -> list[str]:
    """Returns the brokers in the order in which they are tried for an Idempotency-Key.

    It is the same for every client that knows the same brokers, so that who sends again finds what is stored.
    """

    def weight(name: str) -> bytes:
        return hashlib.blake2b(f"{name}/{idempotency_key}".encode(), digest_size=8).digest()

    return sorted(brokers, key=weight)
