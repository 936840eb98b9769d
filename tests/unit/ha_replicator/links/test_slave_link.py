"""What a slave says to its master, frame by frame, over a log in memory.

Contract: nothing is cut or appended before the master has proved who it is, none of an epoch that is over and
nothing but the next range; what is reported is held; whoever is silent for too long is gone.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from ha_replicator.identity import LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.slave.link import SlaveLink
from ha_replicator.wire.credentials import Credentials, Transcript
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Challenge, Hello, Proof, Refusal, Welcome, decode, frame_of
from tests.support.linked_brokers import SECRET, opening
from tests.support.model_log import ModelLog, Request
from tests.support.slave_of_a_link import frames, wire

EPOCH = 3
TEN = b"ten bytes\n"
CHALLENGE = Challenge("c", "a", EPOCH, "sync", True, "1" * 32)


class LateLog(ModelLog):
    """A log in memory whose first bytes may be gone."""

    first = 0

    def marks(self) -> tuple[int, int, int, int]:
        return self.first, *super().marks()[1:]


def log_of(*requests: bytes, seen: int = 1) -> LateLog:
    """The log of a slave that holds requests of epoch 1, flushed."""
    log = LateLog(is_master=False, seen=seen)
    for data in requests:
        log.requests.append(Request(log.end, 1, data))
    log.flush()
    return log


def data(at: int, body: bytes, *, epoch: int = EPOCH, speaker: int = EPOCH, confirmed: int = 0) -> bytes:
    return wire(Frame(FrameKind.DATA, at, at + len(body), epoch, speaker, confirmed, body))


def heartbeat(at: int, *, epoch: int = 0, speaker: int = EPOCH, confirmed: int = 0) -> bytes:
    return wire(Frame(FrameKind.HEARTBEAT, at, at, epoch, speaker, confirmed))


def report(held: int, epoch: int) -> Frame:
    return Frame(FrameKind.REPORT, held, held, epoch, EPOCH, 0)


class Master:
    """The other end, which says what a test has it say."""

    def __init__(self, log: LateLog, now: float = 0.0, **other: Any) -> None:
        self.log = log
        self.link = SlaveLink(opening(1, now, **other), log)
        self.said = Transcript()
        (self.hello,) = frames(self.link.begin())
        self.said.add(self.hello.body)

    def challenge(self, now: float = 0.0, **change: Any) -> Proof:
        frame = frame_of(Challenge(**{**asdict(CHALLENGE), **change}))
        (answer,) = frames(self.link.receive(wire(frame), now))
        self.said.add(frame.body)
        return decode(Proof, answer)

    def welcome(self, common: int, secret: bytes = SECRET, **change: Any) -> bytes:
        fields: dict[str, Any] = {
            "digest": Credentials(secret).prove("master", self.said),
            "common": common,
            "log_digest_from": self.log.first,
            "log_digest": zlib.crc32(self.log.bytes_of(self.log.first, common)),
            "epochs": [],
            **change,
        }
        return wire(frame_of(Welcome(**fields)))

    def cut(self, now: float = 0.0) -> list[Frame]:
        assert self.link.cut_at is not None
        self.log.truncate_to(self.link.cut_at)
        return frames(self.link.cut(now))

    def follow(self, common: int = 0, now: float = 0.0, **challenge: Any) -> SlaveLink:
        """Goes through the whole handshake."""
        self.challenge(now, **challenge)
        assert self.link.receive(self.welcome(common), now) == []
        self.cut(now)
        assert self.link.following
        return self.link


def closed_by(act: Callable[[], object], code: str, match: str | None = None) -> list[Frame]:
    """What a connection that ends says to the master."""
    with pytest.raises(LinkClosed, match=match) as closed:
        act()
    assert closed.value.code == code
    assert closed.value.epoch == 0, "a slave claims nothing of epochs"
    return frames(list(closed.value.farewell))


def test_hello_says_who_the_slave_is_and_what_it_heard_of() -> None:
    hello = decode(Hello, Master(log_of(seen=2)).hello)
    assert hello == Hello("c", "a", 1, 2, "alike", "2" * 32)


def test_proof_says_what_the_log_is() -> None:
    log = log_of(TEN, TEN, TEN)
    log.first = 10
    log.requests.append(Request(30, 1, TEN))  # not flushed
    master = Master(log)
    proof = master.challenge()
    assert proof == Proof(Credentials(SECRET).prove("slave", master.said), [(1, 0)], 10, 30, snapshot=False)
    assert master.link.epoch == EPOCH
    assert not master.link.following


@pytest.mark.parametrize(
    ("change", "code", "why"),
    [
        ({"cluster": "d"}, "WRONG_BROKER", "it is a of d"),
        ({"broker_name": "b"}, "WRONG_BROKER", "it is b of c"),
        ({"authenticated": False}, "NO_PERMISSION", "the master has no cluster secret"),
    ],
)
def test_master_that_is_another_gets_no_proof(change: dict[str, Any], code: str, why: str) -> None:
    farewell = closed_by(lambda: Master(log_of()).challenge(**change), code, why)
    if code == "NO_PERMISSION":
        assert decode(Refusal, farewell[0]) == Refusal(code, why, 0)


def test_master_that_asks_for_a_secret_is_told_that_there_is_none() -> None:
    master = Master(log_of(), credentials=Credentials(None))
    (frame,) = closed_by(master.challenge, "NO_PERMISSION")
    assert decode(Refusal, frame).detail == "the master asks for a cluster secret"


@pytest.mark.parametrize("local", [True, False])
def test_without_a_secret_only_a_master_of_this_machine_is_taken(local: bool) -> None:
    master = Master(log_of(), credentials=Credentials(None), local_peer=local)
    if local:
        assert master.challenge(authenticated=False).digest == ""
    else:
        (frame,) = closed_by(lambda: master.challenge(authenticated=False), "NO_PERMISSION")
        assert decode(Refusal, frame).code == "NO_PERMISSION"


def test_with_a_secret_a_master_of_another_machine_is_taken() -> None:
    assert Master(log_of(), local_peer=False).challenge().digest


def test_master_that_does_not_know_the_secret_cuts_nothing() -> None:
    master = Master(log_of(TEN))
    master.challenge()
    welcome = master.welcome(0, b"another secret than that")
    assert closed_by(lambda: master.link.receive(welcome, 0.0), "NO_PERMISSION", "does not know") == []
    assert master.link.cut_at is None
    assert (master.log.end, master.log.seen) == (10, 1)


@pytest.mark.parametrize("kind", [FrameKind.WELCOME, FrameKind.DATA, FrameKind.HEARTBEAT, FrameKind.HELLO])
def test_master_begins_with_its_challenge(kind: FrameKind) -> None:
    link = Master(log_of()).link
    closed_by(lambda: link.receive(Frame(kind).header(), 0.0), "FRAME_ILLEGAL", "CHALLENGE")


@pytest.mark.parametrize("kind", [FrameKind.CHALLENGE, FrameKind.DATA])
def test_after_its_challenge_a_master_says_its_welcome(kind: FrameKind) -> None:
    master = Master(log_of())
    master.challenge()
    closed_by(lambda: master.link.receive(Frame(kind).header(), 0.0), "FRAME_ILLEGAL", "WELCOME")


@pytest.mark.parametrize("step", ["begun", "challenged", "following"])
def test_refusal_of_a_master_is_said_and_its_epoch_not_believed(step: str) -> None:
    master = Master(log_of())
    if step == "challenged":
        master.challenge()
    elif step == "following":
        master.follow()
    frame = wire(frame_of(Refusal("LOG_EXPIRED", "too late", EPOCH + 1)))
    closed_by(lambda: master.link.receive(frame, 0.0), "LOG_EXPIRED", "the master refused: too late")
    assert master.log.seen <= EPOCH


@pytest.mark.parametrize("seen", [EPOCH, EPOCH + 1])
def test_master_of_an_epoch_that_is_over_hears_so_and_cuts_nothing(seen: int) -> None:
    master = Master(log_of(TEN, seen=seen))
    master.challenge()
    if seen == EPOCH:
        master.link.receive(master.welcome(10), 0.0)
        assert master.link.cut_at == 10
    else:
        (frame,) = closed_by(lambda: master.link.receive(master.welcome(10), 0.0), "EPOCH_OVER")
        assert decode(Refusal, frame) == Refusal(
            "EPOCH_OVER", f"epoch {EPOCH} is over: this slave heard of {seen}", seen
        )
        assert master.link.cut_at is None


@pytest.mark.parametrize(
    ("common", "begin", "legal"),
    [
        (30, 10, True),
        (10, 10, True),
        (20, 20, True),
        (31, 10, False),
        (20, 21, False),
        (20, 9, False),
        (40, 10, False),
    ],
)
def test_log_is_cut_only_within_what_it_holds_flushed(common: int, begin: int, legal: bool) -> None:
    log = log_of(TEN, TEN, TEN)
    log.first = 10
    log.requests.append(Request(30, 1, TEN))  # not flushed
    master = Master(log)
    master.challenge()
    digest = zlib.crc32(log.bytes_of(begin, common))
    welcome = master.welcome(common, log_digest_from=begin, log_digest=digest)
    if legal:
        assert master.link.receive(welcome, 0.0) == []
        assert master.link.cut_at == common
    else:
        (frame,) = closed_by(lambda: master.link.receive(welcome, 0.0), "OFFSET_ILLEGAL")
        assert decode(Refusal, frame).detail == f"this log holds [10, 30), not {common}"
        assert master.link.cut_at is None


def test_log_that_differs_before_the_common_point_is_not_cut() -> None:
    master = Master(log_of(TEN, TEN))
    master.challenge()
    welcome = master.welcome(10, log_digest=zlib.crc32(b"other\n"))
    (frame,) = closed_by(lambda: master.link.receive(welcome, 0.0), "LOG_DIVERGED")
    assert decode(Refusal, frame).code == "LOG_DIVERGED"
    assert (master.link.cut_at, master.log.end, master.log.seen) == (None, 20, 1)


def test_slave_of_a_proved_master_takes_no_older_one_from_there_on() -> None:
    master = Master(log_of(TEN))
    master.challenge()
    master.link.receive(master.welcome(10), 0.0)
    assert master.log.role() == ("slave", EPOCH)
    assert not master.link.following, "until the log was cut"


def test_what_arrives_before_the_cut_is_taken_after_it() -> None:
    master = Master(log_of(TEN, TEN))
    master.challenge()
    master.link.receive(master.welcome(10) + data(10, b"other\n"), 1.0)
    assert (master.log.end, master.link.master_end) == (20, None)
    assert master.link.report(1.0) == []
    assert master.cut(2.0) == [report(10, 1), report(10, EPOCH)]
    assert master.link.cut_at is None
    assert master.log.bytes_of(0, master.log.end) == TEN + b"other\n"


def test_long_cut_is_no_timeout_of_the_handshake() -> None:
    master = Master(log_of(TEN))
    master.challenge()
    master.link.receive(master.welcome(10), 9.0)
    assert master.link.report(1000.0) == []


def test_ranges_are_appended_in_turn_and_reported_when_flushed() -> None:
    master = Master(log_of())
    link = master.follow()
    assert not link.is_due()
    assert frames(link.receive(data(0, TEN) + data(10, TEN), 1.0)) == [report(0, EPOCH)], "the epoch is new"
    assert not link.is_due()
    assert link.report(1.0) == []
    master.log.flush()
    assert link.is_due()
    assert frames(link.report(1.0)) == [report(20, EPOCH)]
    assert not link.is_due()
    assert link.report(1.0) == [], "once"


def test_master_that_flushes_beside_is_told_what_was_appended() -> None:
    master = Master(log_of())
    link = master.follow(flush="async")
    assert frames(link.receive(data(0, TEN), 1.0)) == [report(10, EPOCH)]
    assert master.log.flushed == 0


@pytest.mark.parametrize("at", [0, 9, 11, 20])
def test_range_that_is_not_the_next_one_ends_the_connection(at: int) -> None:
    master = Master(log_of())
    link = master.follow()
    link.receive(data(0, TEN), 0.0)
    assert closed_by(lambda: link.receive(data(at, TEN), 0.0), "OFFSET_ILLEGAL", "goes on at 10") == []
    assert master.log.end == 10
    assert link.master_end == 10


@pytest.mark.parametrize("speaker", [EPOCH - 1, EPOCH + 1])
@pytest.mark.parametrize("kind", ["data", "heartbeat"])
def test_master_speaks_for_the_epoch_that_it_proved_only(kind: str, speaker: int) -> None:
    master = Master(log_of())
    link = master.follow()
    said = data(0, TEN, speaker=speaker) if kind == "data" else heartbeat(0, speaker=speaker, confirmed=5)
    closed_by(lambda: link.receive(said, 0.0), "EPOCH_OVER", f"of epoch {EPOCH} speaks for {speaker}")
    assert (master.log.end, link.master_end) == (0, None)


def test_epoch_that_goes_on_at_the_logs_end_is_noted_and_reported_at_once() -> None:
    master = Master(log_of(TEN))
    link = master.follow(10)
    assert frames(link.receive(heartbeat(10, epoch=EPOCH), 1.0)) == [report(10, EPOCH)]
    assert master.log.epochs() == [(1, 0), (EPOCH, 10)]
    assert link.receive(heartbeat(10, epoch=EPOCH), 1.0) == []


def test_epoch_that_begins_elsewhere_than_at_the_logs_end_ends_the_connection() -> None:
    master = Master(log_of(TEN))
    link = master.follow(10)
    closed_by(lambda: link.receive(heartbeat(11, epoch=EPOCH), 1.0), "OFFSET_ILLEGAL")
    assert master.log.epochs() == [(1, 0)]


def test_heartbeat_of_no_epoch_notes_none() -> None:
    master = Master(log_of(TEN))
    link = master.follow(10)
    assert link.receive(heartbeat(10), 1.0) == []
    assert link.receive(heartbeat(10, epoch=1), 1.0) == []
    assert master.log.epochs() == [(1, 0)]


def test_slave_goes_on_with_the_epoch_that_its_cut_log_has() -> None:
    log = log_of(TEN)
    log.starts.append((2, 10))
    log.requests.append(Request(10, 2, TEN))
    log.flush()
    master = Master(log)
    master.challenge()
    master.link.receive(master.welcome(10), 0.0)
    assert master.cut() == [report(10, 1)], "epoch 2 was cut away"


def test_what_the_master_has_confirmed_is_confirmed_here_as_far_as_it_is_held() -> None:
    master = Master(log_of())
    link = master.follow()
    link.receive(data(0, TEN, confirmed=0) + data(10, TEN, confirmed=10), 0.0)
    master.log.flush()
    assert master.log.confirmed == 10
    link.receive(heartbeat(20, confirmed=20), 0.0)
    assert master.log.confirmed == 20


def test_masters_log_goes_as_far_as_anything_that_it_said() -> None:
    link = Master(log_of()).follow()
    assert link.master_end is None
    for said, end in (
        (heartbeat(0, confirmed=50), 50),
        (data(0, TEN, confirmed=20), 50),
        (heartbeat(70, confirmed=20), 70),
        (data(10, TEN), 70),
        (data(20, b"x" * 59 + b"\n"), 80),
    ):
        link.receive(said, 0.0)
        assert link.master_end == end


def test_range_larger_than_the_bound_is_refused_by_its_header() -> None:
    link = Master(log_of(), limits=LinkLimits(max_range_bytes=20)).follow()
    link.receive(data(0, TEN * 2), 0.0)
    long = data(20, TEN * 2 + b"\n")[:56]
    closed_by(lambda: link.receive(long, 0.0), "FRAME_ILLEGAL", "21 bytes, at most 20")


@pytest.mark.parametrize("kind", [FrameKind.SNAPSHOT, FrameKind.WELCOME, FrameKind.REPORT])
def test_slave_that_follows_takes_ranges_and_heartbeats_only(kind: FrameKind) -> None:
    link = Master(log_of()).follow()
    closed_by(lambda: link.receive(Frame(kind).header(), 0.0), "FRAME_ILLEGAL", "DATA', 'HEARTBEAT")


def test_handshake_has_its_time_from_when_the_connection_began() -> None:
    master = Master(log_of(), now=100.0)
    assert master.link.next_deadline() == 110.0
    master.challenge(now=109.0)
    assert master.link.next_deadline() == 110.0
    assert not master.link.is_due()
    assert master.link.report(109.9) == []
    closed_by(lambda: master.link.report(110.0), "TIMEOUT", "no handshake within 10 s")


def test_slave_says_that_it_lives_when_it_has_nothing_to_report() -> None:
    link = Master(log_of(), now=100.0).follow(now=101.0)
    assert link.next_deadline() == 106.0
    assert link.report(105.9) == []
    assert frames(link.report(106.0)) == [report(0, 1)]
    assert link.next_deadline() == 111.0
    assert link.report(110.0) == []


def test_master_is_silent_by_the_last_frame_that_came_whole() -> None:
    link = Master(log_of(), now=100.0).follow(now=101.0)
    link.receive(heartbeat(0), 103.0)
    link.receive(heartbeat(0)[:55], 110.0)
    for at in (108.0, 113.0, 118.0, 122.9):
        link.report(at)
    assert link.next_deadline() == 123.0
    closed_by(lambda: link.report(123.0), "TIMEOUT", "the master said nothing for 20 s")


def test_many_bytes_of_one_frame_are_a_sign_of_life_and_few_are_none() -> None:
    link = Master(log_of(), limits=LinkLimits(progress_bytes=100)).follow()
    said = data(0, b"x" * 499 + b"\n")
    link.receive(said[:99], 10.0)
    assert link.next_deadline() == 15.0
    link.report(15.0)
    link.report(19.0)
    assert link.next_deadline() == 20.0, "99 bytes are too few"
    link.receive(said[99:100], 19.5)
    link.report(24.0)
    link.report(29.0)
    link.report(34.0)
    link.report(39.0)
    assert link.next_deadline() == 39.5, "100 in all are enough"
    link.receive(said[100:199], 39.25)
    assert link.next_deadline() == 39.5, "they are counted anew"


def test_bytes_of_frames_that_came_whole_count_for_none_that_did_not() -> None:
    link = Master(log_of(), limits=LinkLimits(progress_bytes=100)).follow()
    link.receive(heartbeat(0), 1.0)
    link.receive(heartbeat(0)[:50], 10.0)
    for at in (6.0, 11.0, 16.0, 20.9):
        link.report(at)
    assert link.next_deadline() == 21.0
