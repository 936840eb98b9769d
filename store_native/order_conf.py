"""The list of brokers that is kept with an ordered topic, RocketMQ's order configuration.

Owns its form: in a topic's attributes, where the store keeps it, and as the text that goes between brokers,
name servers and clients.

Invariants: two lists of the same brokers and queues have the same text; of two lists the one of the higher
version counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from store_native.errors import InvalidRequest

VERSION_ATTRIBUTE: Final = "order.version"
BROKERS_ATTRIBUTE: Final = "order.brokers"
ATTRIBUTES: Final = frozenset({VERSION_ATTRIBUTE, BROKERS_ATTRIBUTE})
MOST_QUEUES: Final = 1_024
"""Of one broker."""
MOST_CHARACTERS: Final = 1_024
"""Of the text, as of any attribute's value."""
_ENTRY = re.compile(r"([a-zA-Z0-9_-]{1,127}):([1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True)
class OrderConf:
    """Over which queues the sharding keys of a topic are spread, whoever is away.

    Attributes:
        version: Of two lists of one topic the higher counts.
        brokers: ``broker-a:4;broker-b:4``, each broker with its write queues, by name.
    """

    version: int
    brokers: str

    @classmethod
    def of(cls, version: int, write_queue_nums: Mapping[str, int]) -> Self:
        """Makes the list of these brokers.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL.
        """
        return cls.parse(version, ";".join(f"{name}:{nums}" for name, nums in write_queue_nums.items()))

    @classmethod
    def parse(cls, version: int, text: str) -> Self:
        """Reads the text of a list, in any order.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL.
        """
        found: dict[str, int] = {}
        for entry in text.split(";"):
            match = _ENTRY.fullmatch(entry)
            if match is None or int(match[2]) > MOST_QUEUES:
                raise _illegal(f"{entry!a:.150} is not NAME:QUEUES, with 1 to {MOST_QUEUES} queues")
            if match[1] in found:
                raise _illegal(f"broker {match[1]} is named twice")
            found[match[1]] = int(match[2])
        brokers = ";".join(f"{name}:{nums}" for name, nums in sorted(found.items()))
        if len(brokers) > MOST_CHARACTERS:
            raise _illegal(f"it has {len(brokers)} characters, at most {MOST_CHARACTERS} are kept")
        if version < 1:
            raise _illegal(f"its version is {version}, the least is 1")
        return cls(version, brokers)

    @classmethod
    def of_attributes(cls, attributes: Mapping[str, str] | None) -> Self | None:
        """Reads a topic's attributes; None where the topic is not ordered."""
        version, brokers = (
            (attributes or {}).get(VERSION_ATTRIBUTE),
            (attributes or {}).get(BROKERS_ATTRIBUTE),
        )
        if brokers is None or version is None or not (version.isascii() and version.isdigit()):
            return None
        return cls(int(version), brokers)

    @classmethod
    def of_json(cls, said: Mapping[str, Any] | None) -> Self | None:
        """Reads what a route says."""
        return None if said is None else cls(int(said["version"]), str(said["brokers"]))

    def attributes(self) -> dict[str, str]:
        """Returns what the topic's attributes say of it."""
        return {VERSION_ATTRIBUTE: str(self.version), BROKERS_ATTRIBUTE: self.brokers}

    @property
    def write_queue_nums(self) -> dict[str, int]:
        """Write queues by broker name."""
        entries = (entry.rpartition(":") for entry in self.brokers.split(";"))
        return {name: int(nums) for name, _, nums in entries}

    def __str__(self) -> str:
        return f"{self.brokers} (version {self.version})"


def newest(confs: Iterable[OrderConf | None]) -> OrderConf | None:
    """Returns the list that counts."""
    known = (conf for conf in confs if conf is not None)
    return max(known, key=lambda conf: (conf.version, conf.brokers), default=None)


def _illegal(what: str) -> InvalidRequest:
    return InvalidRequest("ARGUMENT_ILLEGAL", f"an ordered topic's list of brokers: {what}")
