"""The plain parser reads what the format says and refuses what it does not say."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from tests.support.plain_log import (
    ENTRY,
    MAGIC_BLANK,
    MAGIC_V1,
    Damaged,
    java_hash,
    queue_problems,
    read_log,
    read_queue,
    read_record,
)

FILE_SIZE = 4096
HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)


def _record(offset: int, queue_offset: int, body: bytes = b"hello", *, crc: bool = True) -> bytes:
    topic = b"orders"
    properties = b"TAGS\x01red\x02KEYS\x01k1 k2\x02"
    size = 91 + len(body) + len(topic) + len(properties) + (20 if crc else 0)
    head = struct.pack(
        ">IIIiiqqiq", size, MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF, 3, 0, queue_offset, offset, 0, 1000
    )
    middle = HOST + struct.pack(">q", 2000) + HOST + struct.pack(">iqi", 0, 0, len(body)) + body
    tail = bytes([len(topic)]) + topic + struct.pack(">H", len(properties) + (20 if crc else 0)) + properties
    record = head + middle + tail
    if crc:
        digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
        record += b"__CRC32#\x01" + digits.encode() + b"\x02"
    assert len(record) == size
    return record


def _store(folder: Path, *files: bytes) -> Path:
    (folder / "commitlog").mkdir()
    for index, data in enumerate(files):
        (folder / "commitlog" / f"{index * FILE_SIZE:020d}").write_bytes(data.ljust(FILE_SIZE, b"\0"))
    return folder


def test_reads_every_field_of_a_record() -> None:
    record = read_record(_record(64, 5), 0, 64)
    assert (record.topic, record.queue_id, record.queue_offset, record.body) == ("orders", 3, 5, b"hello")
    assert (record.born_timestamp, record.store_timestamp) == (1000, 2000)
    assert record.properties["KEYS"] == "k1 k2"
    assert record.tags_code == java_hash("red")


def test_any_flipped_bit_is_noticed() -> None:
    good = _record(0, 0)
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged):
            read_record(bytes(bad), 0, 0)


def test_record_without_its_own_crc_is_checked_by_body_crc() -> None:
    bad = _record(0, 0, crc=False).replace(b"hello", b"hallo")
    with pytest.raises(Damaged, match="body CRC"):
        read_record(bad, 0, 0)


def test_reading_goes_on_in_the_next_file_after_a_blank_record(tmp_path: Path) -> None:
    first = _record(0, 0)
    blank = struct.pack(">II", FILE_SIZE - len(first), MAGIC_BLANK)
    log = read_log(_store(tmp_path, first + blank, _record(FILE_SIZE, 1)))
    assert [record.queue_offset for record in log.records] == [0, 1]
    assert log.end_offset == FILE_SIZE + len(first)
    assert not log.damage


def test_garbage_behind_the_last_record_is_damage(tmp_path: Path) -> None:
    first = _record(0, 0)
    log = read_log(_store(tmp_path, first + b"\x00\x00\x00\x70garbage"))
    assert len(log.records) == 1
    assert log.damage[0][0] == len(first)


def test_file_without_blank_record_before_a_used_one_is_damage(tmp_path: Path) -> None:
    assert read_log(_store(tmp_path, _record(0, 0), _record(FILE_SIZE, 1))).damage


def test_queue_entries_are_compared_with_the_log_both_ways(tmp_path: Path) -> None:
    first = _record(0, 0)
    second = _record(len(first), 1)
    store = _store(tmp_path, first + second)
    log = read_log(store)
    queue = store / "consumequeue" / "orders" / "3" / "00000000000000000000"
    queue.parent.mkdir(parents=True)
    right = [
        ENTRY.pack(0, len(first), java_hash("red")),
        ENTRY.pack(len(first), len(second), java_hash("red")),
    ]

    queue.write_bytes(b"".join(right).ljust(200, b"\0"))
    assert queue_problems(store, log) == []
    assert [entry.queue_offset for entry in read_queue(store, "orders", 3)] == [0, 1]

    queue.write_bytes(right[0].ljust(200, b"\0"))
    assert queue_problems(store, log) == ["orders/3: no entry 1"]

    queue.write_bytes(b"".join([*right, ENTRY.pack(999, 100, 0)]).ljust(200, b"\0"))
    assert queue_problems(store, log) == ["orders/3: entry 2 without a record"]

    queue.write_bytes((right[0] + ENTRY.pack(7, len(second), 0)).ljust(200, b"\0"))
    assert queue_problems(store, log) == ["orders/3: entry 1 points elsewhere"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("TagA", 2598919), ("polygenelubricants", -2147483648), ("\U0001f600", 1772899)],
)
def test_java_hash_counts_utf16_units_and_wraps(text: str, value: int) -> None:
    assert java_hash(text) == value
