"""A slave without a store takes a snapshot only whole, in order and as its digest says."""

from __future__ import annotations

import hashlib

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.slave.bootstrap_link import BootstrapLink
from ha_replicator.wire.credentials import Credentials, Transcript
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Challenge, Welcome, frame_of
from tests.support.linked_brokers import SECRET, opening

STATE = b"the state as of an offset"
FIRST = 100


class NotedStore:
    """Notes what is appended; its log begins, and ends, at an offset."""

    def __init__(self, first: int) -> None:
        self.appended: list[tuple[int, bytes]] = []
        self._end = first

    def append(self, offset: int, data: bytes, next_offset: int, /) -> None:
        """See :class:`ha_replicator.slave.bootstrap_link.StoreBeingMade`."""
        self.appended.append((offset, data))
        self._end = next_offset

    def end(self) -> int:
        """See :class:`ha_replicator.slave.bootstrap_link.StoreBeingMade`."""
        return self._end


def welcomed() -> tuple[BootstrapLink, NotedStore]:
    """Returns a link whose master has proved who it is, and promised the snapshot."""
    store = NotedStore(FIRST)
    link = BootstrapLink(opening(1), lambda first: store)
    _, hello = link.begin()
    challenge = frame_of(Challenge("c", "a", epoch=1, flush="sync", authenticated=True, nonce="9" * 32))
    said = Transcript()
    said.add(hello)
    said.add(challenge.body)
    link.receive(b"".join(challenge.pieces()), 0.0)
    welcome = Welcome(
        digest=Credentials(SECRET).prove("master", said),
        common=FIRST,
        log_digest_from=FIRST,
        log_digest=0,
        epochs=[(1, 0)],
        snapshot_offset=FIRST + 10,
        snapshot_bytes=len(STATE),
        snapshot_digest=hashlib.sha256(STATE).hexdigest(),
    )
    link.receive(b"".join(frame_of(welcome).pieces()), 0.0)
    assert link.following
    return link, store


def piece(at: int, body: bytes) -> bytes:
    return b"".join(Frame(FrameKind.SNAPSHOT, at, speaker_epoch=1, body=body).pieces())


def test_snapshot_counts_when_it_is_whole_and_the_log_has_reached_it() -> None:
    link, store = welcomed()
    link.receive(piece(0, STATE[:7]) + piece(7, STATE[7:]), 0.0)
    assert (bytes(link.snapshot), link.complete) == (STATE, False)
    data = Frame(FrameKind.DATA, FIRST, FIRST + 10, 1, 1, 0, b"ten bytes.")
    link.receive(b"".join(data.pieces()), 0.0)
    assert store.appended == [(FIRST, b"ten bytes.")]
    assert link.complete


def test_snapshot_that_is_not_what_its_digest_says_makes_no_store() -> None:
    link, store = welcomed()
    link.receive(piece(0, STATE[:7]), 0.0)
    with pytest.raises(LinkClosed, match=r"DATA_CORRUPT: the snapshot is not what its digest says"):
        link.receive(piece(7, STATE[7:-1] + b"!"), 0.0)
    assert not link.complete
    assert not store.appended


@pytest.mark.parametrize("wrong", [piece(7, STATE[7:]), piece(0, b""), piece(0, STATE[:7]) * 2])
def test_piece_that_is_not_the_next_one_ends_the_connection(wrong: bytes) -> None:
    link, _ = welcomed()
    with pytest.raises(LinkClosed, match="OFFSET_ILLEGAL: a piece of the snapshot"):
        link.receive(wrong, 0.0)
    assert not link.complete
