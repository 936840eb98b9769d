"""Fills a small disk through the store, frees space, and writes again; any signal or refusal ends it badly.

    python -m tests.support.full_disk_writer DIR        (DIR on a file system of a few MiB)

Runs as a process of its own, because a store into a mapped hole of a full disk would kill it with SIGBUS.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from store_native import Store
from store_native.errors import Unavailable
from tests.support.stores import open_store
from tests.support.waiting import wait_until

TOPIC: Final = "full"
BALLAST: Final = 4 << 20
RECOVERY_S: Final = 10.0
BODY: Final = b"b" * 1000


def main(folder: Path) -> None:
    """Writes until the disk is full, checks reads, frees space, writes on, reopens."""
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(BALLAST))
    path = folder / "store"
    sizes = {"commitlog_file_size": 1 << 20, "consumequeue_file_entries": 2000}
    sizes |= {"index_slots": 500, "index_entries": 2000, "default_queue_nums": 1, "retention_hours": 1000}
    with closing(open_store(path, **sizes)) as store:
        stored = end = 0
        try:
            while True:
                end = store.append_message(TOPIC, BODY, keys=[f"k{stored}"]).end_offset
                stored += 1
                assert store.wait_flushed(end, 5000), "a stored message was not flushed"
                assert stored < 100_000, "the disk does not get full"
        except Unavailable as error:
            refusal = error
        assert refusal.code == "DISK_FULL", str(refusal)
        assert stored > 100
        assert store.wait_dispatched(end, 5000), "what was stored is not in its queue"
        assert _count(store) == stored, (_count(store), stored)
        assert store.poisoned is None, store.poisoned

        ballast.unlink()
        ends: list[int] = []

        def stores_again() -> bool:
            with suppress(Unavailable):
                ends.append(store.append_message(TOPIC, BODY, keys=["after"]).end_offset)
            return bool(ends)

        wait_until(stores_again, RECOVERY_S, "no service after space was freed")
        (end,) = ends
        assert store.wait_flushed(end, 5000)
        assert store.wait_dispatched(end, 5000)
        assert _count(store) == stored + 1
        assert len(json.loads(store.query_json(TOPIC, "after"))) == 1
    with closing(open_store(path, **sizes)) as store:
        assert _count(store) == stored + 1
    print(f"stored {stored}")


def _count(store: Store) -> int:
    rows = store.queues(TOPIC)
    offset, high = rows[0][1], rows[0][2]
    count = 0
    while offset < high:
        piece = store.read_json(TOPIC, 0, offset, max_messages=1000)
        count += piece.count
        offset = piece.next_offset
    return count


if __name__ == "__main__":
    main(Path(sys.argv[1]))
