"""Small native stores for tests: opened with files of a few MiB, filled with known messages, copied sparsely.

Owns the sizes, so that a peer's configuration and the store's agree.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from store_native import Store

COMMITLOG_FILE_SIZE: Final = 8 << 20
INDEX_SLOTS: Final = 50_000
INDEX_ENTRIES: Final = 200_000


def open_store(path: Path, **options: Any) -> Store:
    """Opens a store with small files; options are those of Store."""
    sizes: dict[str, Any] = {
        "commitlog_file_size": COMMITLOG_FILE_SIZE,
        "index_slots": INDEX_SLOTS,
        "index_entries": INDEX_ENTRIES,
        **options,
    }
    return Store(str(path), **sizes)


def rocketmq_sizes(**options: Any) -> dict[str, str | int | bool]:
    """Returns the lines of broker.conf that make RocketMQ expect the sizes of `open_store`."""
    return {
        "maxHashSlotNum": options.get("index_slots", INDEX_SLOTS),
        "maxIndexNum": options.get("index_entries", INDEX_ENTRIES),
        "mappedFileSizeConsumeQueue": options.get("consumequeue_file_entries", 300_000) * 20,
    }


def copy_store(source: Path, target: Path) -> Path:
    """Copies a store nobody writes to, holes kept as holes."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
    return target
