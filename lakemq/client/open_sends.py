"""Sends whose outcome is open: which brokers may have stored what got no answer.

Owns what a client remembers of them, so that who sends the same again under the same Idempotency-Key finds
what is stored, also where a topic's list of brokers, or a route, has changed since.

Invariants: of more than `MOST_OPEN` sends the one that was heard of least recently is forgotten.

Threads: any.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from lakemq.client.recent import Recent
from store_native.order_conf import OrderConf

MOST_OPEN = 10_000


@dataclass(frozen=True, slots=True)
class OpenSend:
    """One send that got no answer.

    Attributes:
        broker_names: The brokers that may have stored it, the one that was asked last before the others.
        order_conf: The list by which it was sent to that one; None where its topic is not ordered.
    """

    broker_names: tuple[str, ...]
    order_conf: OrderConf | None

    def broker_names_of(self, brokers: Container[str]) -> list[str]:
        """Returns those that are among others, in their order."""
        return [name for name in self.broker_names if name in brokers]


class OpenSends:
    """What one client remembers, by topic and Idempotency-Key."""

    def __init__(self) -> None:
        self._sends: Recent[tuple[str, str], OpenSend] = Recent(MOST_OPEN)

    def get(self, topic: str, key: str | None) -> OpenSend:
        """Returns what is open of a request; without brokers where nothing is, or it has no key."""
        return (None if key is None else self._sends.get((topic, key))) or _NOTHING

    def unanswered(self, topic: str, key: str | None, name: str, conf: OrderConf | None) -> None:
        """Remembers that a broker gave no answer, and by which list it was asked."""
        if key is not None:
            others = (other for other in self.get(topic, key).broker_names if other != name)
            self._sends.put((topic, key), OpenSend((name, *others), conf))

    def refused(self, topic: str, key: str | None, name: str) -> None:
        """Notes that a broker has not stored it."""
        before = self.get(topic, key)
        left = tuple(other for other in before.broker_names if other != name)
        if key is not None and left:
            self._sends.put((topic, key), OpenSend(left, before.order_conf))
        else:
            self.ended(topic, key)

    def ended(self, topic: str, key: str | None) -> None:
        """Forgets a request: it is known where it is stored."""
        if key is not None:
            self._sends.forget((topic, key))


_NOTHING = OpenSend((), None)
