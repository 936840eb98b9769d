"""LakeMQ's store for Python: a thin layer over the Rust core.

`Store` owns a store directory, `Reader` reads one beside its owner; errors are in `store_native.errors`.
"""

from __future__ import annotations

from store_native import errors
from store_native._store import (
    SYSTEM_TOPICS,
    Appended,
    Batch,
    Dump,
    Reader,
    Slice,
    Store,
    dump,
    java_hash,
    recover,
    validate_group,
    validate_topic,
    verify,
)

__all__ = [
    "SYSTEM_TOPICS",
    "Appended",
    "Batch",
    "Dump",
    "Reader",
    "Slice",
    "Store",
    "dump",
    "errors",
    "java_hash",
    "recover",
    "validate_group",
    "validate_topic",
    "verify",
]
