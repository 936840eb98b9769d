"""The two ways to read a store: mapped files on this host, Arrow over HTTP.

    base.py      what the source needs of a store
    local.py     mapped files
    http.py      Arrow
    retrying.py  waits for a broker that is away, in front of either

Owns the choice between them, and that a read waits for a broker that is away.
"""

from __future__ import annotations

from structured_streaming.offsets import illegal
from structured_streaming.readers.base import Chunk, StoreReader
from structured_streaming.readers.http import http_reader
from structured_streaming.readers.local import is_here, local_reader
from structured_streaming.readers.retrying import RetryingReader

__all__ = ["Chunk", "StoreReader", "open_reader"]


def open_reader(
    path: str | None,
    endpoint: str | None,
    store_id: str = "",
    *,
    retry_timeout_s: float,
    broker_name: str = "",
    ca_file: str | None = None,
) -> StoreReader:
    """Returns a reader: over the files when the store is on this host, else over HTTP.

    Opening does not wait: a query that starts where nobody answers says so at once.

    Args:
        path: The store's directory, if the query named one.
        endpoint: The broker, if the query named one.
        store_id: The store the driver planned for. A directory of the same path on an executor's
            host that holds another store is not read.
        broker_name: Whose store, where there are several brokers behind the endpoint.
        ca_file: The authorities that are believed of an https endpoint; None: the system's.
        retry_timeout_s: How long each of the reader's calls waits for a broker that is away.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL when the store is not here and there is no endpoint.
    """
    if path is not None and is_here(path):
        reader = local_reader(path)
        if not store_id or reader.store_id == store_id:
            return RetryingReader(reader, retry_timeout_s)
    if endpoint is not None:
        return RetryingReader(http_reader(endpoint, ca_file, broker_name), retry_timeout_s)
    raise illegal(
        f"there is no store at {path} on this host: give endpoint too, and hosts without the store "
        "read through the broker"
    )
