"""What a master says to a slave until it follows, frame by frame, over a log in memory.

Contract: nothing counts before the slave proved who it is; it follows where the two logs are the same, or
hears why it cannot.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from ha_replicator.identity import MAX_EPOCH_STEP
from ha_replicator.log import DIGEST_BYTES
from ha_replicator.wire.credentials import Credentials
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Challenge, Hello, Refusal, Welcome, frame_of
from tests.support.linked_brokers import SECRET
from tests.support.slave_of_a_link import EPOCH, HELLO, TEN, Slave, log_of, refused, report, wire


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


def test_handshake_has_its_time_from_when_the_connection_began() -> None:
    slave = Slave(log_of(), now=100.0)
    assert slave.link.next_deadline() == 110.0
    slave.hello(now=109.0)
    assert slave.link.next_deadline() == 110.0
    assert slave.link.pump(109.9) == []
    closed, _ = refused(lambda: slave.link.pump(110.0), "TIMEOUT")
    assert closed.detail == "no handshake within 10 s"


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


def test_hello_that_is_no_json_of_one_ends_the_connection() -> None:
    body = json.dumps({"cluster": "c"}).encode()
    link = Slave(log_of()).link
    refused(lambda: link.receive(wire(Frame(FrameKind.HELLO, body=body)), 0.0), "FRAME_ILLEGAL", "Hello")
