"""The bounds of every number in the settings, and what the values must be together.

Owns the numbers; settings.py has the names and defaults.

Invariants: a value the store's files cannot hold, or that would make the broker wait for ever or never, is
refused by its name before a socket or a file is opened - wherever it came from.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from store_native.errors import InvalidRequest

_HOURS_OF_100_YEARS = 100 * 366 * 24
_DAY_MS = 86_400_000
_GIB = 1 << 30

BOUNDS: Mapping[str, tuple[float, float]] = {
    "http.port": (0, 65_535),
    "http.keep_alive_s": (1, 3_600),
    "http.stop_timeout_s": (1, 3_600),
    "http.max_connections": (1, 1_000_000),
    "http.max_pipelined": (1, 10_000),
    "http.max_target_bytes": (256, 64 << 10),
    "http.max_header_bytes": (1 << 10, 1 << 20),
    "http.max_headers": (8, 10_000),
    "http.head_timeout_s": (0.05, 3_600),
    "http.write_timeout_s": (0.05, 3_600),
    "store.flush_interval_ms": (1, 60_000),
    "store.commitlog_file_size": (64 << 10, _GIB),
    "store.consumequeue_file_entries": (1, 100_000_000),
    "store.index_slots": (1, 100_000_000),
    "store.index_entries": (2, 100_000_000),
    "store.default_queue_nums": (1, 1_024),
    "store.retention_hours": (1, _HOURS_OF_100_YEARS),
    "store.delete_when_hour": (0, 23),
    "store.checkpoint_interval_ms": (10, 3_600_000),
    "store.idempotence_max_keys": (1, 100_000_000),
    "store.idempotence_hours": (1, _HOURS_OF_100_YEARS),
    "limits.max_request_bytes": (1, _GIB),
    "limits.max_message_bytes": (1, _GIB - (64 << 10)),  # a record fits a log file
    "limits.inline_bytes": (0, 16 << 20),
    "limits.bulk_threads": (1, 256),
    "limits.body_timeout_s": (0.01, 3_600),
    "limits.sync_flush_timeout_s": (0.01, 3_600),
    "limits.max_inflight_sends": (1, 10_000_000),
    "limits.max_parsing_bytes": (1, 1 << 40),
    "limits.max_query_bytes": (1, _GIB),
    "limits.max_unsent_bytes": (1, 1 << 40),
    "limits.send_queue_wait_s": (0, 3_600),
    "limits.disk_full_ratio": (1e-6, 1),
    "limits.max_wait_ms": (0, 3_600_000),
    "log.slow_request_ms": (0, 3_600_000),
}
"""Smallest and largest value of each number, both allowed."""

MAX_INDEX_FILE_BYTES = (1 << 31) - 1
"""RocketMQ maps an index file with a 32-bit length: a header of 40 bytes, 4 a slot, 20 an entry."""

RECORD_OVERHEAD = 33 << 10
"""What stands around a message's body in a log file: the record's fields, its topic, 32,767 bytes of
properties at most, and the end of the file."""

MAX_DELAY_LEVELS = 64
MAX_DELAY_MS = 366 * _DAY_MS
_DELAY = re.compile(r"([0-9]{1,9})([smhd])")
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}|\[?[0-9A-Fa-f:.]{2,45}\]?")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9_.:\[\]-]{1,261}")
_FORMS = {
    "allowed_hosts": "a name or an address, without a port",
    "allowed_origins": "scheme and host, with a port if it is not the scheme's: https://console.example.com",
}
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": _DAY_MS}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,127}")


def check(settings: Any) -> None:
    """Refuses the first value that cannot work.

    Args:
        settings: An ``ingest_api.settings.Settings``.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL; its context names the setting.
    """
    for name, value in numbers(settings):
        low, high = BOUNDS.get(name, (0, math.inf))
        if not low <= value <= high:  # also false for a float that is no number
            raise illegal(name, f"is {value}, it lies between {low} and {high}")
    for name in ("broker_name", "cluster"):
        if not _NAME.fullmatch(getattr(settings, name)):
            raise illegal(name, "has 1 to 127 letters, digits, hyphens and underscores")
    store = settings.store
    if not store.path:
        raise illegal("store.path", "is empty")
    if store.commitlog_file_size % 4096:
        raise illegal("store.commitlog_file_size", "must be a multiple of 4096")
    if 40 + 4 * store.index_slots + 20 * store.index_entries > MAX_INDEX_FILE_BYTES:
        raise illegal(
            "store.index_entries",
            f"40 + 4 x index_slots + 20 x index_entries bytes are a file's, at most {MAX_INDEX_FILE_BYTES}",
        )
    _check_message_size(settings)
    _check_delay_levels(store.delay_levels)
    for name, form in (("allowed_hosts", _HOST_NAME), ("allowed_origins", _ORIGIN)):
        for value in getattr(settings.http, name):
            if value != "*" and not form.fullmatch(value):
                raise illegal(f"http.{name}", f"{value!r} is none; {_FORMS[name]}")


def illegal(name: str, reason: str) -> InvalidRequest:
    """Builds the refusal of a setting."""
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name}: {reason}", setting=name)


def numbers(section: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields every number of the settings by its dotted name."""
    for entry in fields(section):
        value = getattr(section, entry.name)
        if is_dataclass(value):
            yield from numbers(value, f"{prefix}{entry.name}.")
        elif type(value) in (int, float):
            yield f"{prefix}{entry.name}", value


def _check_message_size(settings: Any) -> None:
    """A message that is allowed fits a log file with what stands around it, and a request."""
    name, limits = "limits.max_message_bytes", settings.limits
    fits = settings.store.commitlog_file_size - RECORD_OVERHEAD
    if limits.max_message_bytes > fits:
        raise illegal(
            name,
            f"is {limits.max_message_bytes}, a log file of store.commitlog_file_size bytes takes {fits}",
        )
    if limits.max_message_bytes > limits.max_request_bytes:
        raise illegal(name, f"is more than limits.max_request_bytes, {limits.max_request_bytes}")


def _check_delay_levels(text: str) -> None:
    levels = text.split()
    if len(levels) > MAX_DELAY_LEVELS:
        raise illegal("store.delay_levels", f"has {len(levels)} levels, at most {MAX_DELAY_LEVELS}")
    for level in levels:
        found = _DELAY.fullmatch(level)
        if not found or not 0 < int(found[1]) * _UNITS_MS[found[2]] <= MAX_DELAY_MS:
            raise illegal(
                "store.delay_levels", f"{level!r} is no delay such as 10s, 5m, 2h or 1d, up to 366d"
            )
