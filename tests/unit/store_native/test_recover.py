"""What a recovery by command has to say to the operator, who has no broker's log.

Contract: ``recover`` gives it to Python's logging, under ``lakemq.store``; nothing is written past that.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

import pytest

from store_native import Store, recover

QUEUE_OFFSET_AT = 20
CRC_DIGITS = slice(-11, -1)


def _claim_to_be_message(number: int, log: Path, record: slice) -> None:
    """Gives a record of the log another queue offset, and the checksum of that."""
    content = bytearray(log.read_bytes())
    body = content[record]
    body[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8] = number.to_bytes(8, "big")
    body[CRC_DIGITS] = f"{zlib.crc32(body[:-20]) & 0x7FFFFFFF:010d}"[::-1].encode()
    content[record] = body
    log.write_bytes(content)


def test_what_a_recovery_has_to_say_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    store = Store(str(tmp_path), commitlog_file_size=1 << 20, index_slots=100, index_entries=400)
    try:
        store.put_topic("orders", read_queue_nums=1, write_queue_nums=1)
        start = store.append_message("orders", b"first").end_offset
        end = store.append_message("orders", b"second").end_offset
    finally:
        store.close()
    _claim_to_be_message(1 << 40, tmp_path / "commitlog" / f"{0:020}", slice(start, end))

    with caplog.at_level(logging.WARNING, logger="lakemq.store"):
        report = recover(str(tmp_path))

    assert report["rebuilt"]
    assert [(entry.name, entry.levelname) for entry in caplog.records] == [("lakemq.store", "ERROR")]
    said = f"the record at {start} says it is message {1 << 40} of topic[orders] queue 0, which cannot be"
    assert said in caplog.text
    assert capfd.readouterr().err == "", "what goes past logging has no level and no format"
