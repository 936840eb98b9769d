"""What a master says to a slave, frame by frame, over a log in memory.

Contract: nothing counts before the slave proved who it is, nothing that goes back or was not sent, and only
whole ranges; what the master has to say goes at once, and nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from ha_replicator.identity import MAX_EPOCH_STEP, LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.log import DIGEST_BYTES
from ha_replicator.master.catch_up import PIECE_BYTES, CatchUp, CatchUpRate
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.wire.credentials import Credentials, Transcript
from ha_replicator.wire.frames import Frame, FrameKind, FrameReader
from ha_replicator.wire.handshake import Challenge, Hello, Proof, Refusal, Welcome, decode, frame_of
from store_native.errors import Unavailable
from tests.support.linked_brokers import SECRET, NotedMemory, opening, unhurried
from tests.support.model_log import ModelLog

EPOCH = 3
LIMITS = LinkLimits(range_bytes=25, window_bytes=40)
HELLO = Hello("c", "a", 1, 0, "alike", "7" * 32)
TEN = b"ten bytes\n"


class LogWithSnapshot(ModelLog):
    """A log in memory that begins behind 0, and tells its state."""

    first = 0
    snapshot = b""
    broken = False

    def marks(self) -> tuple[int, int, int, int]:
        return self.first, *super().marks()[1:]

    def bootstrap_snapshot(self) -> tuple[int, bytes]:
        if self.broken:
            raise Unavailable("SYSTEM_BUSY", "no room for it")
        return self.end, self.snapshot


def log_of(*requests: bytes) -> LogWithSnapshot:
    """The log of a synchronous master of EPOCH, flushed."""
    log = LogWithSnapshot(is_master=True, asks=True, seen=EPOCH, starts=[(EPOCH, 0)])
    for data in requests:
        log.send(data)
    log.flush()
    return log


def frames(pieces: list[bytes]) -> list[Frame]:
    """What was said."""
    reader = FrameReader(1 << 20)
    reader.feed(b"".join(pieces))
    found = []
    while (frame := reader.next()) is not None:
        found.append(frame)
    return found


def wire(frame: Frame) -> bytes:
    return b"".join(frame.pieces())


def report(offset: int, epoch: int = EPOCH, speaker: int = EPOCH) -> bytes:
    return Frame(FrameKind.REPORT, offset, offset, epoch, speaker).header()


class Slave:
    """The other end, which says what a test has it say."""

    def __init__(self, log: LogWithSnapshot, now: float = 0.0, **other: Any) -> None:
        self.log = log
        catch_up = other.pop("catch_up", None) or unhurried(log)
        flush = other.pop("flush", "sync")
        begin = opening(0, now, **{"limits": LIMITS, **other})
        self.link = MasterLink(begin, log, flush=flush, catch_up=catch_up)
        self.said = Transcript()

    def hello(self, hello: Hello = HELLO, now: float = 0.0) -> Challenge:
        frame = frame_of(hello)
        (answer,) = frames(self.link.receive(wire(frame), now))
        self.said.add(frame.body)
        self.said.add(answer.body)
        return decode(Challenge, answer)

    def proof(
        self,
        *,
        epochs: list[tuple[int, int]] | None = None,
        first: int = 0,
        end: int = 0,
        snapshot: bool = False,
        secret: bytes | None = SECRET,
    ) -> Frame:
        known = [(EPOCH, 0)] if epochs is None else epochs
        digest = Credentials(secret).prove("slave", self.said)
        return frame_of(Proof(digest, known, first, end, snapshot))

    def welcome(self, now: float = 0.0, **proof: Any) -> Welcome:
        (answer,) = frames(self.link.receive(wire(self.proof(**proof)), now))
        return decode(Welcome, answer)

    def follow(self, at: int = 0, epoch: int = EPOCH, now: float = 0.0) -> MasterLink:
        """Goes through the whole handshake, with a log that is the master's up to ``at``."""
        self.hello(now=now)
        assert self.welcome(now, end=at).common == at
        assert self.link.receive(report(at, epoch), now) == []
        assert self.link.following
        return self.link

    def pump(self, now: float = 0.0) -> Frame:
        (frame,) = frames(self.link.pump(now))
        return frame


def refused(
    act: Callable[[], object], code: str, match: str | None = None
) -> tuple[LinkClosed, Refusal | None]:
    """The end of a connection, and what the other side hears of it."""
    with pytest.raises(LinkClosed, match=match) as closed:
        act()
    assert closed.value.code == code
    heard = frames(list(closed.value.farewell))
    return closed.value, decode(Refusal, heard[0]) if heard else None


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("secret", [SECRET, None])
def test_challenge_says_who_the_master_is_and_what_it_asks_for(flush: Any, secret: bytes | None) -> None:
    slave = Slave(log_of(), flush=flush, credentials=Credentials(secret))
    assert slave.link.broker_id is None
    assert slave.hello() == Challenge("c", "a", EPOCH, flush, secret is not None, "1" * 32)
    assert slave.link.broker_id == 1


@pytest.mark.parametrize(
    ("change", "code", "detail"),
    [
        ({"cluster": "d"}, "WRONG_BROKER", "this is a of c, not a of d"),
        ({"broker_name": "b"}, "WRONG_BROKER", "this is a of c, not b of c"),
        ({"shape": "other"}, "ARGUMENT_ILLEGAL", "the slave's store has other; the master's alike"),
    ],
)
def test_slave_that_does_not_fit_hears_why(change: dict[str, str], code: str, detail: str) -> None:
    slave = Slave(log_of())
    fields = {name: getattr(HELLO, name) for name in HELLO.__dataclass_fields__}
    closed, heard = refused(lambda: slave.hello(Hello(**{**fields, **change})), code)
    assert (closed.detail, closed.epoch) == (detail, 0)
    assert heard == Refusal(code, detail, EPOCH)
    assert slave.link.hello is None


@pytest.mark.parametrize(("secret", "local"), [(None, True), (None, False), (SECRET, False)])
def test_without_a_secret_only_slaves_of_this_machine_are_taken(secret: bytes | None, local: bool) -> None:
    slave = Slave(log_of(), credentials=Credentials(secret), local_peer=local)
    if secret or local:
        assert slave.hello().authenticated is (secret is not None)
    else:
        why = "without a cluster secret only slaves of this machine are taken"
        _, heard = refused(slave.hello, "NO_PERMISSION")
        assert heard == Refusal("NO_PERMISSION", why, EPOCH)


def test_slave_of_a_broker_that_is_no_master_hears_of_its_epoch() -> None:
    log = log_of()
    slave = Slave(log)
    log.become_slave(9)
    _, heard = refused(slave.hello, "NOT_MASTER")
    assert heard == Refusal("NOT_MASTER", "this broker is a slave in epoch 9", 9)


def test_long_reason_is_cut_to_what_a_refusal_may_hold() -> None:
    slave = Slave(log_of(), shape="y" * 1000)
    hello = Hello("c", "a", 1, 0, "x" * 1000, "7" * 32)
    closed, heard = refused(lambda: slave.hello(hello), "ARGUMENT_ILLEGAL")
    assert heard is not None
    assert len(heard.detail) == 1024
    assert closed.detail.startswith(heard.detail)


def test_bytes_that_are_no_frame_end_the_connection() -> None:
    refused(lambda: Slave(log_of()).link.receive(b"GET / HTTP/1.1", 0.0), "FRAME_ILLEGAL")


@pytest.mark.parametrize("kind", [FrameKind.PROOF, FrameKind.REPORT, FrameKind.REFUSAL, FrameKind.DATA])
def test_slave_begins_with_its_hello(kind: FrameKind) -> None:
    slave = Slave(log_of())
    refused(lambda: slave.link.receive(Frame(kind).header(), 0.0), "FRAME_ILLEGAL", "HELLO")


def test_second_hello_ends_the_connection() -> None:
    slave = Slave(log_of())
    slave.hello()
    refused(slave.hello, "FRAME_ILLEGAL", "PROOF")


def test_report_before_the_proof_ends_the_connection() -> None:
    slave = Slave(log_of(TEN))
    slave.hello()
    refused(lambda: slave.link.receive(report(10), 0.0), "FRAME_ILLEGAL", "PROOF")


def test_reason_of_a_slave_that_proved_nothing_is_said_but_its_epoch_not_believed() -> None:
    slave = Slave(log_of())
    slave.hello()
    frame = frame_of(Refusal("EPOCH_OVER", "it is over", EPOCH + 1))
    closed, heard = refused(lambda: slave.link.receive(wire(frame), 0.0), "EPOCH_OVER", "it is over")
    assert (closed.epoch, heard) == (0, None)


@pytest.mark.parametrize("secret", [b"another secret than that", None])
def test_slave_whose_proof_is_wrong_gets_no_place_to_go_on(secret: bytes | None) -> None:
    slave = Slave(log_of(TEN))
    slave.hello()
    proof = wire(slave.proof(secret=secret))
    closed, heard = refused(lambda: slave.link.receive(proof, 0.0), "NO_PERMISSION", "does not know")
    assert heard is not None
    assert heard.epoch == EPOCH
    assert closed.epoch == 0
    assert not slave.link.following


@pytest.mark.parametrize("step", [1, MAX_EPOCH_STEP])
def test_slave_that_proved_itself_ends_a_master_whose_epoch_is_over(step: int) -> None:
    slave = Slave(log_of(TEN))
    slave.hello(Hello("c", "a", 1, EPOCH + step, "alike", "7" * 32))
    closed, heard = refused(lambda: slave.welcome(), "EPOCH_OVER", f"the slave heard of {EPOCH + step}")
    assert closed.epoch == EPOCH + step
    assert heard is not None
    assert heard.epoch == EPOCH + step


def test_epoch_out_of_reach_ends_the_connection_but_not_the_master() -> None:
    slave = Slave(log_of(TEN))
    slave.hello(Hello("c", "a", 1, EPOCH + MAX_EPOCH_STEP + 1, "alike", "7" * 32))
    closed, heard = refused(lambda: slave.welcome(), "EPOCH_ILLEGAL")
    assert closed.epoch == 0
    assert heard is not None
    assert heard.epoch == EPOCH


def test_slave_that_heard_of_this_epoch_is_welcome() -> None:
    slave = Slave(log_of(TEN))
    slave.hello(Hello("c", "a", 1, EPOCH, "alike", "7" * 32))
    assert slave.welcome().common == 0


def test_welcome_proves_the_master_and_says_up_to_where_the_logs_are_the_same() -> None:
    log = log_of(TEN, TEN, TEN)
    slave = Slave(log)
    slave.hello()
    assert slave.welcome(end=20) == Welcome(
        digest=Credentials(SECRET).prove("master", slave.said),
        common=20,
        log_digest_from=0,
        log_digest=zlib.crc32(TEN * 2),
        epochs=[],
    )
    assert not slave.link.following, "until it reported that place"
    assert slave.link.pump(0.0) == []
    assert not slave.link.is_due(0.0)


def test_of_a_long_log_only_the_last_bytes_are_compared() -> None:
    log = log_of(b"x" * 100_000 + b"\n", TEN)
    slave = Slave(log)
    slave.hello()
    welcome = slave.welcome(end=log.end)
    assert welcome.log_digest_from == log.end - DIGEST_BYTES
    assert welcome.log_digest == log.digest(log.end - DIGEST_BYTES, log.end)


@pytest.mark.parametrize(("first", "begin"), [(0, 10), (15, 15)])
def test_bytes_that_one_of_the_two_lacks_are_not_compared(first: int, begin: int) -> None:
    log = log_of(TEN, TEN, TEN)
    log.first = 10
    slave = Slave(log)
    slave.hello()
    welcome = slave.welcome(first=first, end=30)
    assert (welcome.log_digest_from, welcome.log_digest) == (begin, log.digest(begin, 30))


def test_log_is_the_same_only_as_far_as_the_master_has_flushed_its_own() -> None:
    log = log_of(TEN)
    log.send(TEN)
    slave = Slave(log)
    slave.hello()
    assert slave.welcome(end=20).common == 10


def test_log_without_an_epoch_of_the_master_is_another_brokers() -> None:
    slave = Slave(log_of(TEN))
    slave.hello()
    closed, heard = refused(lambda: slave.welcome(epochs=[(2, 0)], end=10), "NO_COMMON_EPOCH")
    assert closed.epoch == 0
    assert heard is not None


@pytest.mark.parametrize(("end", "code"), [(20, None), (19, "LOG_EXPIRED")])
def test_slave_that_ends_before_the_masters_first_byte_cannot_follow(end: int, code: str | None) -> None:
    log = log_of(TEN, TEN, TEN)
    log.first = 20
    slave = Slave(log)
    slave.hello()
    if code is None:
        assert slave.welcome(end=end).common == 20
    else:
        _, heard = refused(lambda: slave.welcome(end=end), code, "ends at 19, the master's begins at 20")
        assert heard is not None
        assert heard.code == code


def test_slave_that_begins_behind_the_common_bytes_cannot_follow() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    slave.hello()
    refused(lambda: slave.welcome(first=11, end=20), "LOG_EXPIRED", "begins at 11, behind 10")


def test_slave_that_begins_at_the_common_end_follows_from_there() -> None:
    slave = Slave(log_of(TEN))
    slave.hello()
    welcome = slave.welcome(first=10, end=20)
    assert (welcome.log_digest_from, welcome.common, welcome.log_digest) == (10, 10, 0)


@pytest.mark.parametrize("offset", [0, 9, 11, 20])
def test_first_report_must_be_of_the_place_where_the_log_goes_on(offset: int) -> None:
    slave = Slave(log_of(TEN, TEN))
    slave.hello()
    slave.welcome(end=10)
    closed, _ = refused(lambda: slave.link.receive(report(offset), 0.0), "OFFSET_ILLEGAL")
    assert closed.detail == f"the slave begins at {offset}, not at 10"
    assert not slave.link.following


@pytest.mark.parametrize("following", [False, True])
@pytest.mark.parametrize(
    ("epoch", "heard"),
    [
        (EPOCH, 0),
        (EPOCH + 1, EPOCH + 1),
        (EPOCH + MAX_EPOCH_STEP, EPOCH + MAX_EPOCH_STEP),
        (EPOCH + MAX_EPOCH_STEP + 1, 0),
    ],
)
def test_refusal_of_a_slave_that_proved_itself_is_believed_within_reach(
    following: bool, epoch: int, heard: int
) -> None:
    slave = Slave(log_of(TEN))
    if following:
        slave.follow()
    else:
        slave.hello()
        slave.welcome()
    frame = wire(frame_of(Refusal("LOG_DIVERGED", "they differ", epoch)))
    closed, _ = refused(
        lambda: slave.link.receive(frame, 0.0), "LOG_DIVERGED", "the slave refused: they differ"
    )
    assert closed.epoch == heard


def test_ranges_are_of_whole_requests_and_go_as_long_as_the_window_has_room() -> None:
    slave = Slave(log_of(TEN, TEN, TEN, TEN, TEN, TEN, TEN))
    link = slave.follow()
    assert slave.pump() == Frame(FrameKind.DATA, 0, 20, EPOCH, EPOCH, 0, TEN * 2)
    assert link.is_due(0.0)
    assert slave.pump() == Frame(FrameKind.DATA, 20, 40, EPOCH, EPOCH, 0, TEN * 2)
    assert (link.sent, link.acked, link.lag()) == (40, 0, 70)
    assert not link.is_due(0.0), "the window is full"
    assert link.pump(0.0) == []
    link.receive(report(20), 0.0)
    assert (link.acked, link.lag()) == (20, 50)
    assert link.is_due(0.0)
    assert slave.pump().offset == 40
    link.receive(report(60), 0.0)
    assert slave.pump() == Frame(FrameKind.DATA, 60, 70, EPOCH, EPOCH, 0, TEN)
    assert not link.is_due(0.0)
    assert link.pump(0.0) == []


def test_only_what_the_master_has_flushed_is_sent() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    link = slave.follow(10)
    log.send(TEN)
    assert not link.is_due(0.0)
    assert link.pump(0.0) == []
    log.flush()
    assert link.is_due(0.0)
    assert slave.pump().body == TEN


def test_report_counts_up_to_the_last_range_that_it_holds_whole() -> None:
    slave = Slave(log_of(TEN, TEN, TEN, TEN))
    link = slave.follow()
    link.pump(0.0)
    link.pump(0.0)
    for offset, acked in ((0, 0), (19, 0), (20, 20), (39, 20), (40, 40)):
        assert link.receive(report(offset), 0.0) == []
        assert link.acked == acked


@pytest.mark.parametrize(("offset", "legal"), [(19, False), (20, True), (40, True), (41, False)])
def test_report_that_goes_back_or_beyond_what_was_sent_ends_the_connection(offset: int, legal: bool) -> None:
    slave = Slave(log_of(TEN, TEN, TEN, TEN, TEN))
    link = slave.follow()
    link.pump(0.0)
    link.pump(0.0)
    link.receive(report(20), 0.0)
    if legal:
        link.receive(report(offset), 0.0)
    else:
        closed, _ = refused(lambda: link.receive(report(offset), 0.0), "OFFSET_ILLEGAL")
        assert closed.detail == f"the slave reports {offset}, it had 20 and was sent up to 40"
    assert link.acked == (offset if legal else 20)


@pytest.mark.parametrize("step", [1, MAX_EPOCH_STEP])
def test_report_of_a_higher_epoch_ends_the_master(step: int) -> None:
    slave = Slave(log_of(TEN))
    link = slave.follow()
    link.pump(0.0)
    closed, heard = refused(lambda: link.receive(report(10, speaker=EPOCH + step), 0.0), "EPOCH_OVER")
    assert closed.epoch == EPOCH + step
    assert heard is not None
    assert heard.epoch == EPOCH + step
    assert link.acked == 0, "nor does it count"


def test_report_of_an_epoch_out_of_reach_ends_the_connection_only() -> None:
    link = Slave(log_of(TEN)).follow()
    speaker = EPOCH + MAX_EPOCH_STEP + 1
    closed, heard = refused(lambda: link.receive(report(0, speaker=speaker), 0.0), "EPOCH_ILLEGAL")
    assert (closed.epoch, heard) == (0, None)


def test_master_of_another_epoch_sends_nothing_and_says_so() -> None:
    log = log_of(TEN)
    link = Slave(log).follow()
    log.become_slave(EPOCH + 1)
    _, heard = refused(lambda: link.pump(0.0), "NOT_MASTER")
    assert heard == Refusal("NOT_MASTER", f"this broker is not the master of epoch {EPOCH} any more", EPOCH)


def test_slave_that_came_again_is_ended_at_once() -> None:
    link = Slave(log_of(TEN)).follow(10)
    assert not link.is_due(0.0)
    link.superseded = True
    assert link.is_due(0.0)
    closed, heard = refused(lambda: link.pump(0.0), "SUPERSEDED")
    assert closed.detail == "another slave with id 1 connected later"
    assert heard is None


def test_slave_with_all_of_the_log_hears_once_that_this_epoch_goes_on_there() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    link = slave.follow(10, epoch=EPOCH - 1)
    assert not link.counts
    assert link.is_due(0.0)
    assert slave.pump() == Frame(FrameKind.HEARTBEAT, 10, 10, EPOCH, EPOCH, 0)
    assert not link.is_due(0.0)
    assert link.pump(0.0) == [], "once"
    link.receive(report(10), 0.0)
    assert link.counts
    log.send(TEN)
    log.flush()
    link.pump(0.0)
    assert not link.is_due(0.0), "it counts already"


def test_slave_that_does_not_count_hears_of_the_epoch_again_where_the_log_ends_later() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    link = slave.follow(10, epoch=EPOCH - 1)
    slave.pump()
    log.send(TEN)
    log.flush()
    assert slave.pump().kind is FrameKind.DATA
    assert link.is_due(0.0)
    assert slave.pump() == Frame(FrameKind.HEARTBEAT, 20, 20, EPOCH, EPOCH, 0)


def test_heartbeat_amid_the_log_names_no_epoch_and_one_at_its_end_the_masters() -> None:
    slave = Slave(log_of(*[TEN] * 7))
    link = slave.follow()
    link.pump(0.0)
    link.pump(0.0)
    assert link.pump(4.9) == []
    assert not link.is_due(4.9)
    assert link.is_due(5.0)
    assert slave.pump(5.0) == Frame(FrameKind.HEARTBEAT, 40, 40, 0, EPOCH, 0)
    assert link.pump(5.0) == []
    link.receive(report(40), 6.0)
    link.pump(6.0)
    link.pump(6.0)
    assert slave.pump(11.0) == Frame(FrameKind.HEARTBEAT, 70, 70, EPOCH, EPOCH, 0)


def test_what_is_confirmed_is_told_after_a_moment_where_no_range_went() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    link = slave.follow()
    slave.pump()
    link.receive(report(10), 1.0)
    log.replicated(10)
    assert not link.is_due(0.01)
    assert link.next_deadline() == 0.02
    assert link.pump(0.01) == []
    assert link.is_due(0.02)
    assert slave.pump(0.02) == Frame(FrameKind.HEARTBEAT, 10, 10, EPOCH, EPOCH, 10)
    assert link.next_deadline() == 5.02
    assert not link.is_due(4.0)
    assert link.pump(4.0) == [], "once"


def test_pump_that_cannot_tell_yet_says_when_it_can() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    link = slave.follow()
    slave.pump()
    log.replicated(10)
    assert link.pump(0.01) == []
    assert link.next_deadline() == 0.02


def test_range_tells_what_is_confirmed() -> None:
    log = log_of(TEN)
    slave = Slave(log)
    link = slave.follow()
    slave.pump()
    log.replicated(10)
    log.send(TEN)
    log.flush()
    assert slave.pump(0.001).confirmed == 10
    assert link.pump(0.1) == []
    assert link.next_deadline() == 5.001


def test_link_is_due_at_its_deadline_and_not_before() -> None:
    slave = Slave(log_of(TEN))
    link = slave.follow(10)
    assert slave.pump(0.02).confirmed == 0
    assert link.next_deadline() == 5.02
    assert not link.is_due(5.01)
    assert link.is_due(5.02)


def test_handshake_has_its_time_from_when_the_connection_began() -> None:
    slave = Slave(log_of(), now=100.0)
    assert slave.link.next_deadline() == 110.0
    slave.hello(now=109.0)
    assert slave.link.next_deadline() == 110.0
    assert slave.link.pump(109.9) == []
    closed, _ = refused(lambda: slave.link.pump(110.0), "TIMEOUT")
    assert closed.detail == "no handshake within 10 s"


def test_slave_is_silent_by_what_it_said_last() -> None:
    slave = Slave(log_of(TEN), now=100.0)
    link = slave.follow(10, now=101.0)
    link.receive(report(10), 108.0)
    assert link.acked_at == 108.0
    for at in (105.0, 110.0, 115.0, 120.0, 125.0):
        slave.pump(at)
    assert link.next_deadline() == 128.0, "the heartbeat would come later"
    link.check(127.9)
    closed, _ = refused(lambda: link.check(128.0), "TIMEOUT")
    assert closed.detail == "the slave said nothing for 20 s"


def test_what_the_slave_says_in_the_handshake_is_no_report() -> None:
    slave = Slave(log_of(TEN))
    assert slave.link.acked_at == 0.0
    slave.hello(now=3.0)
    slave.welcome(4.0, end=10)
    assert slave.link.acked_at == 0.0
    slave.link.receive(report(10), 5.0)
    assert slave.link.acked_at == 5.0


def test_answers_of_the_handshake_are_signs_of_life_of_the_master() -> None:
    slave = Slave(log_of(TEN))
    slave.hello(now=3.0)
    slave.welcome(4.0, end=10)
    slave.link.receive(report(10), 6.0)
    assert slave.link.next_deadline() == 9.0, "five seconds behind the WELCOME"


def test_how_fast_the_slave_goes_is_by_what_it_reported_and_when() -> None:
    slave = Slave(log_of(*[TEN] * 4))
    link = slave.follow()
    slave.pump()
    slave.pump()
    link.receive(report(40), 4.0)
    assert link.throughput.bytes_per_s(4.0) == 10.0


def snapshot_of(log: LogWithSnapshot, snapshot: bytes, **other: Any) -> tuple[Slave, Welcome]:
    """A slave without a store that was promised a snapshot, and the promise."""
    log.first, log.snapshot = 10, snapshot
    slave = Slave(log, **other)
    slave.hello()
    return slave, slave.welcome(snapshot=True, epochs=[])


def test_slave_without_a_store_gets_the_state_and_then_the_log_from_its_first_byte() -> None:
    state = bytes(range(60))
    slave, welcome = snapshot_of(log_of(TEN, TEN, TEN), state)
    assert welcome == Welcome(
        digest=Credentials(SECRET).prove("master", slave.said),
        common=10,
        log_digest_from=10,
        log_digest=0,
        epochs=[(EPOCH, 0)],
        snapshot_offset=30,
        snapshot_bytes=60,
        snapshot_digest=hashlib.sha256(state).hexdigest(),
    )
    link = slave.link
    link.receive(report(10), 0.0)
    assert link.bootstraps
    assert not link.counts, "it is no replica, whatever it reports"
    sent = []
    for _ in range(3):
        assert link.is_due(1.0)
        sent.append(slave.pump(1.0))
    assert sent == [
        Frame(FrameKind.SNAPSHOT, at, speaker_epoch=EPOCH, body=state[at : at + 25]) for at in (0, 25, 50)
    ]
    assert slave.pump(1.0) == Frame(FrameKind.DATA, 10, 30, EPOCH, EPOCH, 0, TEN * 2)


def test_log_that_begins_at_0_tells_the_state_itself() -> None:
    slave = Slave(log_of(TEN))
    slave.hello()
    welcome = slave.welcome(snapshot=True, epochs=[])
    assert (welcome.common, welcome.log_digest_from, welcome.log_digest) == (0, 0, 0)
    assert (welcome.epochs, welcome.snapshot_offset) == ([], 0)
    assert (welcome.snapshot_bytes, welcome.snapshot_digest) == (0, "")
    assert slave.link.bootstraps


def test_slave_hears_why_there_is_no_snapshot() -> None:
    log = log_of(TEN, TEN)
    log.broken = True
    _, heard = refused(lambda: snapshot_of(log, b""), "SYSTEM_BUSY")
    assert heard == Refusal("SYSTEM_BUSY", "no room for it", EPOCH)


@pytest.mark.parametrize("size", [60, 61])
def test_snapshot_larger_than_a_slave_takes_is_not_begun(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ha_replicator.master.link.MAX_SNAPSHOT_BYTES", 60)
    if size == 60:
        assert snapshot_of(log_of(TEN, TEN), b"x" * size)[1].snapshot_bytes == 60
    else:
        _, heard = refused(lambda: snapshot_of(log_of(TEN, TEN), b"x" * size), "SYSTEM_BUSY")
        assert heard == Refusal("SYSTEM_BUSY", "the snapshot has 61 bytes", EPOCH)


def held_back(log: LogWithSnapshot, near_bytes: int, bytes_per_s: float = 10.0) -> CatchUp:
    """What gives a far slave a few bytes a second."""
    rate = CatchUpRate(bytes_per_s, Replicas(log, needed=0), near_bytes=near_bytes)
    return CatchUp(rate, NotedMemory())


def test_far_slave_waits_for_its_time_and_still_hears_heartbeats() -> None:
    log = log_of(*[TEN] * 10)
    slave = Slave(log, catch_up=held_back(log, 30, bytes_per_s=2.0))
    link = slave.follow()
    assert slave.pump() == Frame(FrameKind.DATA, 0, 20, EPOCH, EPOCH, 0, TEN * 2)
    assert link.is_due(0.0), "a slave that is far is looked at whenever the log moves"
    assert link.pump(0.0) == []
    assert link.next_deadline() == 5.0, "the heartbeat comes before the bytes"
    log.replicated(10)
    assert link.pump(0.1) == [], "nor is it told what is confirmed by itself"
    assert slave.pump(5.0) == Frame(FrameKind.HEARTBEAT, 20, 20, 0, EPOCH, 10)
    assert link.next_deadline() == 10.0
    assert slave.pump(10.0).offset == 20


def test_deadline_of_a_slave_that_is_held_back_is_when_its_next_bytes_may_go() -> None:
    log = log_of(*[TEN] * 10)
    slave = Slave(log, catch_up=held_back(log, 30))
    link = slave.follow()
    slave.pump()
    assert link.pump(0.0) == []
    assert link.next_deadline() == 2.0
    assert slave.pump(2.0).offset == 20
    assert link.next_deadline() == 7.0, "until it is asked again"


def test_far_slave_gets_small_pieces_of_log_and_snapshot() -> None:
    line = b"x" * 49_999 + b"\n"
    log = log_of(*[line] * 20)
    state = b"s" * 300_000
    wide = LinkLimits()
    slave, _ = snapshot_of(log, state, catch_up=held_back(log, 100, 1e9), limits=wide)
    slave.link.receive(report(10), 0.0)
    assert len(slave.pump(0.0).body) == PIECE_BYTES
    far = Slave(log_of(*[line] * 20), limits=wide, catch_up=held_back(log, 100, 1e9))
    far.follow()
    assert len(far.pump().body) == 2 * len(line)
    near = Slave(log_of(*[line] * 20), limits=wide)
    near.follow()
    assert len(near.pump().body) == 10 * len(line)


def test_snapshot_is_held_back_as_the_log_is() -> None:
    log = log_of(*[TEN] * 10)
    slave, _ = snapshot_of(log, bytes(60), catch_up=held_back(log, 30))
    slave.link.receive(report(10), 0.0)
    assert len(slave.pump().body) == 25
    assert slave.link.pump(2.4) == []
    assert slave.link.next_deadline() == 2.5
    assert slave.pump(2.5).offset == 25


def test_hello_that_is_no_json_of_one_ends_the_connection() -> None:
    body = json.dumps({"cluster": "c"}).encode()
    link = Slave(log_of()).link
    refused(lambda: link.receive(wire(Frame(FrameKind.HELLO, body=body)), 0.0), "FRAME_ILLEGAL", "Hello")
