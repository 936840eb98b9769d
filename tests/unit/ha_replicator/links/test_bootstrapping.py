"""A slave without a store takes a snapshot only whole, in order and as its digest says."""

from __future__ import annotations

import hashlib
from typing import Literal

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.slave.bootstrap_link import BootstrapLink
from ha_replicator.wire.credentials import Credentials, Transcript
from ha_replicator.wire.frames import Frame, FrameKind, FrameReader
from ha_replicator.wire.handshake import Challenge, Proof, Welcome, decode, frame_of
from store_native.errors import LakeMQError, from_code
from tests.support.linked_brokers import SECRET, opening

STATE = b"the state as of an offset"
FIRST = 100


class NotedStore:
    """Notes what is appended; its log begins, and ends, at an offset."""

    def __init__(self, first: int) -> None:
        self.appended: list[tuple[int, bytes]] = []
        self.refuses: LakeMQError | None = None
        self._end = first

    def append(self, offset: int, data: bytes, next_offset: int, /) -> None:
        """See :class:`ha_replicator.slave.bootstrap_link.StoreBeingMade`."""
        if self.refuses is not None:
            raise self.refuses
        self.appended.append((offset, data))
        self._end = next_offset

    def end(self) -> int:
        """See :class:`ha_replicator.slave.bootstrap_link.StoreBeingMade`."""
        return self._end


class Opened:
    """A link whose master has proved who it is.

    Attributes:
        made_at: Where stores were begun.
        proof: What the slave answered the master's challenge with.
    """

    def __init__(self, flush: Literal["sync", "async"] = "sync") -> None:
        self.store = NotedStore(FIRST)
        self.made_at: list[int] = []
        self.link = BootstrapLink(opening(1), self._make)
        _, hello = self.link.begin()
        challenge = frame_of(Challenge("c", "a", epoch=1, flush=flush, authenticated=True, nonce="9" * 32))
        self._said = Transcript()
        self._said.add(hello)
        self._said.add(challenge.body)
        self.proof = decode(Proof, frames(self.link.receive(b"".join(challenge.pieces()), 0.0))[0])

    def _make(self, first: int) -> NotedStore:
        self.made_at.append(first)
        return self.store

    def welcome(self, snapshot: bytes = STATE) -> list[Frame]:
        """Has the master welcome the slave; returns what that answers."""
        welcome = Welcome(
            digest=Credentials(SECRET).prove("master", self._said),
            common=FIRST,
            log_digest_from=FIRST,
            log_digest=0,
            epochs=[(1, 0)],
            snapshot_offset=FIRST + 10,
            snapshot_bytes=len(snapshot),
            snapshot_digest=hashlib.sha256(snapshot).hexdigest(),
        )
        return frames(self.link.receive(b"".join(frame_of(welcome).pieces()), 0.0))


def frames(pieces: list[bytes]) -> list[Frame]:
    reader = FrameReader(1 << 20)
    reader.feed(b"".join(pieces))
    return list(iter(reader.next, None))


def welcomed() -> tuple[BootstrapLink, NotedStore]:
    """Returns a link whose master has promised the snapshot."""
    opened = Opened()
    opened.welcome()
    assert opened.link.following
    return opened.link, opened.store


def with_state() -> tuple[BootstrapLink, NotedStore]:
    """Returns a link that has the snapshot."""
    link, store = welcomed()
    link.receive(piece(0, STATE), 0.0)
    return link, store


def data(at: int, body: bytes, speaker: int = 1) -> bytes:
    return b"".join(Frame(FrameKind.DATA, at, at + len(body), 1, speaker, 0, body).pieces())


def heartbeat(speaker: int = 1) -> bytes:
    return b"".join(Frame(FrameKind.HEARTBEAT, FIRST, FIRST, 1, speaker, 0).pieces())


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


def test_slave_without_a_store_says_that_it_has_no_log_and_wants_a_snapshot() -> None:
    proof = Opened().proof
    assert (proof.first, proof.end, proof.epochs, proof.snapshot) == (0, 0, [], True)


def test_store_begins_where_the_log_of_the_master_does() -> None:
    opened = Opened()
    assert (opened.made_at, opened.link.epochs) == ([], [])
    opened.welcome()
    assert (opened.made_at, opened.link.epochs) == ([FIRST], [(1, 0)])


def test_master_whose_log_tells_everything_needs_no_bootstrap() -> None:
    opened = Opened()
    assert opened.link.unneeded is False
    with pytest.raises(LinkClosed, match="NO_SNAPSHOT: the master's log begins at 0") as closed:
        opened.welcome(b"")
    assert closed.value.code == "NO_SNAPSHOT"
    assert opened.link.unneeded is True
    assert (opened.made_at, opened.link.following) == ([], False)


def test_what_is_reported_is_of_no_epoch_and_never_counts() -> None:
    opened = Opened()
    assert opened.welcome() == [Frame(FrameKind.REPORT, FIRST, FIRST, 0, 1, 0)]
    opened.link.receive(piece(0, STATE), 0.0)
    (told,) = frames(opened.link.receive(data(FIRST, b"ten"), 0.0))
    assert told == Frame(FrameKind.REPORT, FIRST + 3, FIRST + 3, 0, 1, 0)


def test_log_follows_the_snapshot_between_heartbeats_up_to_its_offset() -> None:
    link, store = with_state()
    assert link.complete is False
    link.receive(heartbeat() + data(FIRST, b"four") + heartbeat() + data(FIRST + 4, b"some more"), 0.0)
    assert link.complete is True
    assert store.appended == [(FIRST, b"four"), (FIRST + 4, b"some more")]
    # What lies behind comes when the slave follows as any other.
    link.receive(data(FIRST + 13, b"later"), 0.0)
    assert len(store.appended) == 2
    assert link.complete is True


def test_log_before_the_snapshot_ends_the_connection() -> None:
    link, store = welcomed()
    with pytest.raises(LinkClosed):
        link.receive(data(FIRST, b"early"), 0.0)
    assert not store.appended


@pytest.mark.parametrize("said", [data(FIRST, b"x", speaker=2), heartbeat(speaker=2)])
def test_master_of_another_epoch_than_it_proved_adds_nothing(said: bytes) -> None:
    link, store = with_state()
    with pytest.raises(LinkClosed, match="EPOCH_OVER: the master of epoch 1 speaks for 2"):
        link.receive(said, 0.0)
    assert not store.appended


def test_full_disk_ends_the_bootstrap_and_not_only_its_connection() -> None:
    link, store = with_state()
    store.refuses = from_code("DISK_FULL", "no space is left")
    with pytest.raises(LakeMQError) as ended:
        link.receive(data(FIRST, b"x"), 0.0)
    assert ended.value is store.refuses
    assert not link.complete


def test_bytes_that_the_store_refuses_end_the_connection_with_its_reason() -> None:
    link, store = with_state()
    store.refuses = from_code("DATA_CORRUPT", "no record begins there")
    with pytest.raises(LinkClosed, match="DATA_CORRUPT: no record begins there") as ended:
        link.receive(data(FIRST, b"x"), 0.0)
    assert (ended.value.code, ended.value.__cause__) == ("DATA_CORRUPT", store.refuses)
    assert not link.complete
