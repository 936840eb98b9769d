"""When a place of the log was written, by the log itself.

Owns where a record has its store time. Called for a broker's status.
"""

from __future__ import annotations

import struct

from ha_replicator.rocketmq.raw_log import RawLog
from store_native.errors import LakeMQError

_HEAD = struct.Struct(">ii28xi")
"""Length and magic; the flags, of which one says how long the sender's address is."""
_RECORDS = (-626_843_481, -626_843_477)
_END_MARKER = -875_286_124
_BORN_HOST_IS_IPV6 = 1 << 4
_STORE_TIME_AT = (56, 68)
_STORE_TIME = struct.Struct(">q")
_BYTES = 80


def stored_at_ms(log: RawLog, offset: int) -> int | None:
    """Returns when the record at an offset, or the next one of the log, was stored, in epoch milliseconds.

    None where there is none that is flushed, or no record begins there.
    """
    size = log.file_size()
    for at in (offset, offset - offset % size + size):
        try:
            head = log.read_raw(at, _BYTES)
        except LakeMQError:
            return None
        if len(head) < _BYTES:
            continue  # a file ends here, with or without its marker
        _, magic, flags = _HEAD.unpack_from(head)
        if magic in _RECORDS:
            place = _STORE_TIME_AT[bool(flags & _BORN_HOST_IS_IPV6)]
            return int(_STORE_TIME.unpack_from(head, place)[0])
        if magic != _END_MARKER:
            return None
    return None
