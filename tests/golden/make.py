"""Makes the golden store of a version: `python -m tests.golden.make VERSION`, once, when it is released.

Owns what is in it. `VERSION/store.tar.gz` holds the same store twice, after a clean stop and as kill -9
leaves it; `VERSION/store.json` says what both have to show for ever.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from store_native import Store
from tests.support.golden import GOLDEN, OPTIONS, look

QUEUES = 2
KEYED = b'{"body": "once", "queue_id": 0}'


def fill(store: Store) -> None:
    """Writes what a version writes: messages of all forms, offsets, a key, a delay, a deleted topic."""
    store.put_topic("orders", read_queue_nums=QUEUES, write_queue_nums=QUEUES)
    store.put_topic("gone", read_queue_nums=1, write_queue_nums=1)
    store.append_message("gone", b"nobody reads it")
    for number in range(60):
        store.append_message(
            "orders",
            f"{number} ".encode() * (1 + number * 40),
            tags="even" if number % 2 == 0 else "odd",
            keys=[f"order-{number}", "all"],
            properties=[("region", "north"), ("text", "grüße ☃")],
            queue_id=number % QUEUES,
            flag=number,
        )
    lines = "".join(f'{{"body": "line {n}", "queue_id": 1}}\n' for n in range(10)).encode()
    store.append_ndjson("orders", lines)
    store.append_json("orders", KEYED, idempotency_key="golden")
    store.put_topic("later", read_queue_nums=1, write_queue_nums=1)
    store.append_message("later", b"in two hours", delay_level=18)
    store.put_group("shop")
    store.commit_offsets("shop", [("orders", 0, 7), ("orders", 1, 3)])
    store.delete_topic("gone")
    store.checkpoint()
    end = store.append_message("orders", b"behind the checkpoint", queue_id=0).end_offset
    assert store.wait_dispatched(end, 60_000)


def main(version: str) -> None:
    """Writes both files of a version."""
    home = GOLDEN / version
    with tempfile.TemporaryDirectory() as scratch:
        clean, killed = Path(scratch, "clean"), Path(scratch, "killed")
        store = Store(clean, **OPTIONS)
        try:
            fill(store)
            shutil.copytree(clean, killed)
            shown = {"made_at": int(time.time() * 1000), **look(store)}
        finally:
            store.close()
        home.mkdir()
        with tarfile.open(home / "store.tar.gz", "w:gz") as archive:
            for directory in (clean, killed):
                archive.add(directory, directory.name)
    (home / "store.json").write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
