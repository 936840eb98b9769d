"""Frames survive any cut of the stream, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha_replicator.wire.frames import HEADER_BYTES, Frame, FrameError, FrameKind, FrameReader
from ha_replicator.wire.handshake import (
    MAX_EPOCHS,
    MAX_OFFSET,
    Challenge,
    Hello,
    Proof,
    Refusal,
    Welcome,
    decode,
    frame_of,
)

NUMBERS = st.integers(min_value=0, max_value=(1 << 63) - 1)
FRAMES = st.one_of(
    st.builds(
        Frame, st.just(FrameKind.DATA), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.binary(max_size=300)
    ),
    st.builds(
        Frame, st.sampled_from([FrameKind.HEARTBEAT, FrameKind.REPORT]), NUMBERS, NUMBERS, NUMBERS, NUMBERS
    ),
)
WRONG: list[Any] = [None, [], {}, -1, 1.5, "\x00", True, 1 << 63]
MESSAGES: list[Any] = [
    Hello("c", "a", 1, 7, "log files of 1 byte", "0" * 32),
    Challenge("c", "a", 8, "sync", True, "f" * 32),
    Proof("a" * 64, [(1, 0), (3, 900)], 0, 1000, snapshot=True),
    Welcome("", 1000, 500, 12345, []),
    Welcome("", 1000, 500, 12345, [(1, 0)], 2000, 77, "b" * 64),
    Refusal("NO_PERMISSION", "who are you", 8),
]


def read(reader: FrameReader) -> list[Frame]:
    """Returns all frames that have arrived."""
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    return found


def wire(*frames: Frame) -> bytes:
    return b"".join(piece for frame in frames for piece in frame.pieces())


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(min_value=1, max_value=400), min_size=1))
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[Frame], cuts: list[int]) -> None:
    data, reader, found, at = wire(*frames), FrameReader(300), [], 0
    while data:
        length = cuts[at % len(cuts)]
        reader.feed(data[:length])
        found += read(reader)
        data, at = data[length:], at + 1
    assert found == frames


@given(FRAMES, st.data())
def test_every_flipped_bit_is_noticed(frame: Frame, data: st.DataObject) -> None:
    whole = bytearray(wire(frame))
    at = data.draw(st.integers(min_value=0, max_value=len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << at % 8
    reader = FrameReader(1 << 20)
    reader.feed(bytes(whole))
    try:
        assert read(reader) == [], "a length that grew waits for more"
    except FrameError:
        return
    # What it waits for never makes a frame of it either.
    reader.feed(wire(frame) * 3)
    try:
        found = read(reader)
    except FrameError:
        return
    assert found == []


@given(st.binary(min_size=1, max_size=200))
def test_stray_bytes_are_no_frame(stray: bytes) -> None:
    reader = FrameReader(1 << 20)
    reader.feed(stray)
    try:
        assert read(reader) == []
    except FrameError:
        return
    assert stray.startswith(b"LMHA"[: len(stray)])


def test_report_of_a_rocketmq_slave_is_refused_by_its_first_byte() -> None:
    reader = FrameReader(1 << 20)
    reader.feed((1 << 40).to_bytes(8, "big"))
    with pytest.raises(FrameError, match="begins with"):
        reader.next()


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        (FrameKind.DATA, 1001),
        (FrameKind.REPORT, 1),
        (FrameKind.HELLO, (1 << 20) + 1),
        (FrameKind.DATA, 1 << 31),
    ],
)
def test_body_that_is_too_long_is_refused_before_it_arrives(kind: FrameKind, length: int) -> None:
    header = bytearray(Frame(kind).header())
    header[8:12] = length.to_bytes(4, "big")
    reader = FrameReader(1000)
    reader.feed(bytes(header))
    with pytest.raises(FrameError, match="at most"):
        reader.next()


def test_frame_that_may_not_come_now_is_refused() -> None:
    reader = FrameReader(1000)
    reader.allow(FrameKind.HELLO)
    reader.feed(Frame(FrameKind.REPORT, 5).header())
    with pytest.raises(FrameError, match="HELLO"):
        reader.next()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_comes_out_as_it_went_in(message: Any) -> None:
    assert decode(type(message), frame_of(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_with_a_field_missing_or_of_another_kind_is_refused(message: Any) -> None:
    frame = frame_of(message)
    fields = json.loads(frame.body)
    for name in fields:
        others = {other: value for other, value in fields.items() if other != name}
        for changed in (others, *({**fields, name: wrong} for wrong in WRONG)):
            if (name, changed.get(name)) in (("authenticated", True), ("snapshot", True), ("epochs", [])):
                continue
            with pytest.raises(FrameError, match=name):
                decode(type(message), Frame(frame.kind, body=json.dumps(changed).encode()))
    with pytest.raises(FrameError):
        decode(type(message), Frame(frame.kind, body=b"[" * 100_000))


def test_what_a_later_version_says_more_is_passed_over() -> None:
    hello = MESSAGES[0]
    fields = json.loads(frame_of(hello).body) | {"snapshots": True}
    assert decode(Hello, Frame(FrameKind.HELLO, body=json.dumps(fields).encode())) == hello


def test_header_is_as_long_as_it_says() -> None:
    assert len(Frame(FrameKind.DATA, body=b"x").header()) == HEADER_BYTES == 56


@pytest.mark.parametrize(("at", "value"), [(4, 2), (4, 0), (6, 1), (7, 1)])
def test_frame_of_another_version_is_refused_whatever_else_it_says(at: int, value: int) -> None:
    header = bytearray(Frame(FrameKind.REPORT).header())
    header[at] = value
    reader = FrameReader(1000)
    reader.feed(bytes(header))
    with pytest.raises(FrameError, match="this broker speaks 1"):
        reader.next()


def test_frame_without_a_body_is_one_piece() -> None:
    frame = Frame(FrameKind.HEARTBEAT, 1, 2, 3, 4, 5)
    assert frame.pieces() == [frame.header()]


@pytest.mark.parametrize("found", ["[]", "7", "null", '"digest"'])
def test_message_that_is_no_object_is_refused(found: str) -> None:
    with pytest.raises(FrameError, match="Proof: its body is no object"):
        decode(Proof, Frame(FrameKind.PROOF, body=found.encode()))


def said(message: Any, **change: Any) -> Frame:
    """The frame of a message with other fields."""
    frame = frame_of(message)
    return Frame(frame.kind, body=json.dumps(json.loads(frame.body) | change).encode())


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("broker_id", 1, (1 << 31) - 1), ("seen_epoch", 0, MAX_OFFSET)],
)
def test_number_is_taken_up_to_its_bounds(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert getattr(decode(Hello, said(MESSAGES[0], **{name: value})), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(FrameError, match=name):
            decode(Hello, said(MESSAGES[0], **{name: value}))


@pytest.mark.parametrize("name", ["", "a" * 128, "a b", "ä", "a\n"])
def test_name_of_another_form_is_refused(name: str) -> None:
    assert decode(Hello, said(MESSAGES[0], cluster="a" * 127)).cluster == "a" * 127
    with pytest.raises(FrameError, match="cluster"):
        decode(Hello, said(MESSAGES[0], cluster=name))


@pytest.mark.parametrize("pair", [[1], [1, 2, 3], [], [1, -1], [-1, 1], ["1", 2], "12", {"1": 2, "2": 3}, 7])
def test_epoch_that_is_no_pair_of_numbers_is_refused(pair: Any) -> None:
    with pytest.raises(FrameError, match="epochs"):
        decode(Proof, said(MESSAGES[2], epochs=[[1, 0], pair]))


def test_epochs_are_taken_up_to_their_number() -> None:
    assert len(decode(Proof, said(MESSAGES[2], epochs=[[1, 0]] * MAX_EPOCHS)).epochs) == MAX_EPOCHS
    with pytest.raises(FrameError, match="epochs"):
        decode(Proof, said(MESSAGES[2], epochs=[[1, 0]] * (MAX_EPOCHS + 1)))


def test_each_message_has_a_frame_of_its_own_kind() -> None:
    kinds = [frame_of(message).kind.name for message in MESSAGES]
    assert kinds == ["HELLO", "CHALLENGE", "PROOF", "WELCOME", "WELCOME", "REFUSAL"]
