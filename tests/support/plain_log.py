"""Reads a store's commitlog and consume queues with plain Python, as an oracle for the Rust code.

Owns a second, independent reading of the on-disk format: it imports nothing of LakeMQ. What it returns is
what the bytes say; it repairs nothing and skips nothing silently. Works on a store of RocketMQ too.
"""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194
CRC_NAME: Final = "__CRC32#"
CRC_SIZE: Final = 20
_CRC_PREFIX: Final = CRC_NAME.encode() + b"\x01"
ENTRY: Final = struct.Struct(">qiq")
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

_HEAD: Final = struct.Struct(">IIIiiqqiq")
_COMPRESSED: Final = 0x1
_BORN_HOST_V6: Final = 0x10
_STORE_HOST_V6: Final = 0x20


class Damaged(ValueError):
    """A record's bytes contradict the format; the text says where and how."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the commit log."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    body: bytes
    properties: dict[str, str]

    @property
    def tags_code(self) -> int:
        """Returns what its consume queue entry must hold, delayed records excepted."""
        return java_hash(self.properties["TAGS"]) if self.properties.get("TAGS") else 0


@dataclass(slots=True)
class Log:
    """What a commit log holds.

    Attributes:
        records: in log order.
        end_offset: behind the last record.
        damage: (physical offset, reason) of what could not be read; reading goes on with the next file.
    """

    records: list[Record] = field(default_factory=list)
    end_offset: int = 0
    damage: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entry:
    """One consume queue entry."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


def java_hash(text: str) -> int:
    """Returns Java's String.hashCode()."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def read_log(store: Path) -> Log:
    """Reads every record below `<store>/commitlog`, file by file."""
    log = Log()
    files = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    for position, path in enumerate(files):
        data = path.read_bytes()
        base = int(path.name)
        log.end_offset = max(log.end_offset, base) if log.records else base
        ended = _read_file(data, base, log)
        if not ended and position + 1 < len(files) and any(files[position + 1].read_bytes()[:8]):
            log.damage.append((log.end_offset, "the file ends without a blank record, yet another follows"))
    return log


def read_record(data: bytes | memoryview, start: int, physical_offset: int) -> Record:
    """Decodes the record at `start` of a buffer that holds all of it.

    Raises:
        Damaged: A length, the physical offset or a checksum is wrong.
    """
    view = memoryview(data)
    size, magic, body_crc, queue_id, flag, queue_offset, offset, sys_flag, born = _HEAD.unpack_from(
        view, start
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise Damaged(f"magic {magic:#x}")
    if offset != physical_offset:
        raise Damaged(f"says it lies at {offset}")
    if size < 91 or start + size > len(view):
        raise Damaged(f"size {size}")
    record = view[start : start + size]
    try:
        at = _HEAD.size + (20 if sys_flag & _BORN_HOST_V6 else 8)
        (store_timestamp,) = struct.unpack_from(">q", record, at)
        host = 20 if sys_flag & _STORE_HOST_V6 else 8
        store_host = bytes(record[at + 8 : at + 8 + host])
        at += 8 + host
        reconsume_times, _prepared, body_size = struct.unpack_from(">iqi", record, at)
        at += 16
        body = bytes(record[at : at + body_size])
        at += body_size
        topic_size, topic_head = (
            (record[at], 1) if magic == MAGIC_V1 else (*struct.unpack_from(">H", record, at), 2)
        )
        at += topic_head
        topic = bytes(record[at : at + topic_size]).decode()
        at += topic_size
        (properties_size,) = struct.unpack_from(">H", record, at)
        properties = _properties(bytes(record[at + 2 : at + 2 + properties_size]))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Damaged(f"fields do not decode: {error}") from error
    if at + 2 + properties_size != size:
        raise Damaged(f"fields take {at + 2 + properties_size} bytes of {size}")
    _check_crc(record, body, body_crc, properties)
    if sys_flag & _COMPRESSED and (sys_flag >> 8) & 7 in (0, 3):
        body = zlib.decompress(body)
    return Record(
        physical_offset,
        size,
        topic,
        queue_id,
        queue_offset,
        flag,
        sys_flag,
        born,
        store_timestamp,
        store_host,
        reconsume_times,
        body,
        properties,
    )


def read_queue(store: Path, topic: str, queue_id: int) -> list[Entry]:
    """Reads the entries of one consume queue up to its first empty one."""
    folder = store / "consumequeue" / topic / str(queue_id)
    entries: list[Entry] = []
    for path in sorted(folder.iterdir()):
        first = int(path.name) // ENTRY.size
        for index, (offset, size, tags_code) in enumerate(ENTRY.iter_unpack(path.read_bytes())):
            if size == 0:
                return entries
            if size == 0x7FFFFFFF and offset == 0:
                continue  # RocketMQ's filler before a queue's first real entry
            entries.append(Entry(first + index, offset, size, tags_code))
    return entries


def queues(store: Path) -> Iterator[tuple[str, int]]:
    """Yields (topic, queue id) of every consume queue folder."""
    root = store / "consumequeue"
    for topic in sorted(root.iterdir()) if root.exists() else []:
        for queue in sorted(topic.iterdir(), key=lambda path: int(path.name)):
            yield topic.name, int(queue.name)


def queue_problems(store: Path, log: Log) -> list[str]:
    """Compares the consume queues with the log, both ways, and each queue's offsets for holes and repeats."""
    problems: list[str] = []
    expected: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in log.records:
        expected[record.topic, record.queue_id].append(record)
    for (topic, queue_id), records in expected.items():
        name = f"{topic}/{queue_id}"
        offsets = [record.queue_offset for record in records]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            problems.append(f"{name}: the log's queue offsets have a hole or a repeat")
        if not (store / "consumequeue" / topic / str(queue_id)).exists():
            problems.append(f"{name}: no consume queue")
            continue
        found = {entry.queue_offset: entry for entry in read_queue(store, topic, queue_id)}
        for record in records:
            entry = found.pop(record.queue_offset, None)
            if entry is None:
                problems.append(f"{name}: no entry {record.queue_offset}")
            elif (entry.physical_offset, entry.size) != (record.physical_offset, record.size):
                problems.append(f"{name}: entry {record.queue_offset} points elsewhere")
            elif topic != SCHEDULE_TOPIC and entry.tags_code != record.tags_code:
                problems.append(f"{name}: entry {record.queue_offset} has tags code {entry.tags_code}")
        first = offsets[0]
        problems += [f"{name}: entry {offset} without a record" for offset in found if offset >= first]
    problems += [
        f"{topic}/{queue_id}: entries without a record"
        for topic, queue_id in queues(store)
        if (topic, queue_id) not in expected and read_queue(store, topic, queue_id)
    ]
    return problems


def _read_file(data: bytes, base: int, log: Log) -> bool:
    """Appends the records of one file to the log; tells whether a blank record ended it."""
    start = 0
    while start + 8 <= len(data):
        size, magic = struct.unpack_from(">II", data, start)
        if magic == MAGIC_BLANK:
            log.end_offset = base + start + size
            return True
        if size == 0 and magic == 0:
            return False
        try:
            record = read_record(data, start, base + start)
        except (Damaged, struct.error) as error:
            log.damage.append((base + start, str(error)))
            return False
        log.records.append(record)
        start += record.size
        log.end_offset = base + start
    return True


def _properties(data: bytes) -> dict[str, str]:
    pairs = (pair.split(b"\x01", 1) for pair in data.split(b"\x02") if pair)
    return {pair[0].decode(): pair[1].decode() for pair in pairs if len(pair) == 2}


def _check_crc(record: memoryview, body: bytes, body_crc: int, properties: dict[str, str]) -> None:
    if body and zlib.crc32(body) & 0x7FFFFFFF != body_crc:
        raise Damaged("body CRC")
    tail = bytes(record[-CRC_SIZE:])
    distance = (
        sum((a ^ b).bit_count() for a, b in zip(tail, _CRC_PREFIX, strict=False)) + (tail[-1] ^ 2).bit_count()
    )
    if distance == 1:
        # One flipped bit in the name or a separator would else turn the whole-record check off.
        raise Damaged("record CRC property")
    if distance == 0 and not tail[9:19].isdigit():
        raise Damaged("record CRC digits")
    if distance == 0 and int(tail[9:19][::-1]) != zlib.crc32(record[:-CRC_SIZE]) & 0x7FFFFFFF:
        raise Damaged("record CRC")
    if distance > 1 and CRC_NAME in properties:
        raise Damaged("record CRC property is not the last")
