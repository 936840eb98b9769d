"""The lists of brokers that deleted ordered topics had.

Owns the file that keeps them, `lakemq/deleted-lists.json` in the store's directory: clients and name servers
may go by such a list for as long as they live, and by no lower version of a topic that is made again.

Invariants: a list is on the disk before its topic is deleted; of more than `MOST_LISTS` the oldest goes.

Threads: any, one at a time.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from store_native.durable_files import DISK, FileDisk, replace_file
from store_native.errors import InvalidRequest, Unavailable
from store_native.order_conf import OrderConf

log = logging.getLogger("lakemq.broker")

FILE = Path("lakemq", "deleted-lists.json")
MOST_LISTS = 10_000


class DeletedLists:
    """What is remembered at one broker.

    Args:
        store_path: The store's directory.
        disk: Brings the file to the disk.
    """

    def __init__(self, store_path: str | os.PathLike[str], disk: FileDisk = DISK) -> None:
        self._file = Path(store_path) / FILE
        self._disk = disk
        self._lists = _load(self._file)

    def note(self, topic: str, conf: OrderConf) -> None:
        """Remembers the list of a topic that is to be deleted.

        Raises:
            Unavailable: SERVICE_NOT_AVAILABLE, the file cannot be written.
        """
        others = {name: had for name, had in self._lists.items() if name != topic}
        lists = dict([*others.items(), (topic, conf)][-MOST_LISTS:])
        try:
            _write(self._file, lists, self._disk)
        except OSError as error:
            detail = f"{self._file}: {error.strerror or error}: the topic's list cannot be remembered"
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{detail}; nothing was deleted") from error
        self._lists = lists

    def check(self, topic: str, given: OrderConf) -> None:
        """Refuses for a topic that is made again a list that clients would not go by.

        Raises:
            InvalidRequest: TOPIC_CONFLICT.
        """
        had = self._lists.get(topic)
        if had is not None and given != had and given.version <= had.version:
            raise InvalidRequest(
                "TOPIC_CONFLICT",
                f"topic[{topic}] had the list {had} before it was deleted, and {given} is not newer: clients "
                "that know the former would go on by it",
                topic=topic,
                order_conf={"version": had.version, "brokers": had.brokers},
            )


def _write(file: Path, lists: dict[str, OrderConf], disk: FileDisk) -> None:
    said = {topic: [conf.version, conf.brokers] for topic, conf in lists.items()}
    replace_file(file, json.dumps(said).encode(), disk)


def _load(file: Path) -> dict[str, OrderConf]:
    """Reads the file; one that is not readable is put aside, since a broker has to start without it."""
    try:
        said = json.loads(file.read_bytes())
        return {str(topic): OrderConf(int(conf[0]), str(conf[1])) for topic, conf in said.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        damaged = file.with_suffix(".damaged")
        file.replace(damaged)
        fields = {"file": str(damaged), "reason": str(error)}
        log.error("lists of deleted topics cannot be read and are put aside", extra={"fields": fields})
        return {}
