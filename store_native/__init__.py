"""LakeMQ's store for Python: a thin layer over the Rust core.

`Store` owns a store directory, `Reader` reads one beside its owner; errors.py has their errors, names.py the
names of system topics and the bits of a permission, order_conf.py the list of brokers of an ordered topic,
sharding.py whose a sharding key is, epoch_file.py which epoch a store at rest is the master of,
durable_files.py how small files beside it are written for good, places.py where no directory can be.
The native module is loaded when the first of its names is asked for: the client and the command line
over HTTP work where there is none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from store_native import errors

if TYPE_CHECKING:
    from store_native._store import (
        SYSTEM_TOPICS,
        Appended,
        Batch,
        Bootstrap,
        Dump,
        Reader,
        ReplicatedLog,
        Slice,
        Store,
        default_options,
        dump,
        java_hash,
        option_bounds,
        recover,
        validate_group,
        validate_tags,
        validate_topic,
        verify,
    )

__all__ = [
    "SYSTEM_TOPICS",
    "Appended",
    "Batch",
    "Bootstrap",
    "Dump",
    "Reader",
    "ReplicatedLog",
    "Slice",
    "Store",
    "default_options",
    "dump",
    "errors",
    "java_hash",
    "option_bounds",
    "recover",
    "validate_group",
    "validate_tags",
    "validate_topic",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Loads a name of the native module.

    Raises:
        ImportError: The module was not built for this system; a client of a broker does not need it.
    """
    if name not in __all__:
        raise AttributeError(f"module 'store_native' has no attribute {name!r}")
    try:
        native = import_module("store_native._store")
    except ImportError as error:
        raise ImportError(
            f"store_native.{name} needs LakeMQ's native module, which is built for Linux: {error}",
            name="store_native._store",
        ) from error
    found = globals()[name] = getattr(native, name)
    return found
