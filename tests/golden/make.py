"""Makes the golden files of a version: `python -m tests.golden.make VERSION`, once, when it is released.

Owns what is in them. `VERSION/store.tar.gz` holds the same store twice, after a clean stop and as kill -9
leaves it; `VERSION/store.json` says what both have to show for ever. `VERSION/group.tar.gz` holds a broker's
store and a group's ledger with its checkpoints, `VERSION/group.json` the ledger's rows.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from jobs.consume import consume
from lakemq.spark import session
from store_native import Store
from tests.support.broker_process import BrokerProcess
from tests.support.golden import GOLDEN, OPTIONS, look
from tests.support.golden_group import BROKER_ARGUMENTS, FIRST, TOPIC, deliveries, group_settings, post

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


def make_store(home: Path) -> None:
    """Writes the store's two files."""
    with tempfile.TemporaryDirectory() as scratch:
        clean, killed = Path(scratch, "clean"), Path(scratch, "killed")
        store = Store(clean, **OPTIONS)
        try:
            fill(store)
            shutil.copytree(clean, killed)
            shown = {"made_at": int(time.time() * 1000), **look(store)}
        finally:
            store.close()
        _pack(home / "store.tar.gz", clean, killed)
    _write(home / "store.json", shown)


def make_group(home: Path) -> None:
    """Runs a group until it is idle, and writes its two files."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch, "group")
        broker = BrokerProcess(directory, arguments=BROKER_ARGUMENTS)
        spark = session("golden", directory / "warehouse", master="local[2]")
        try:
            client = broker.client()
            client.put_topic(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
            post(client, range(FIRST))
            consume(group_settings(directory, broker.endpoint), lambda: spark)
        finally:
            spark.stop()
            broker.close()
        for name in ("warehouse", "broker.log", "broker.toml"):
            path = directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        _pack(home / "group.tar.gz", directory)
        _write(home / "group.json", {"deliveries": deliveries(directory)})


def _pack(path: Path, *directories: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for directory in directories:
            archive.add(directory, directory.name)


def _write(path: Path, shown: dict[str, Any]) -> None:
    path.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(version: str) -> None:
    """Writes the files of a version that are not there."""
    home = GOLDEN / version
    home.mkdir(exist_ok=True)
    for name, make in (("store", make_store), ("group", make_group)):
        if not (home / f"{name}.json").exists():
            make(home)


if __name__ == "__main__":
    main(sys.argv[1])
