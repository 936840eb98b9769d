"""What a master says to a slave that follows, frame by frame, over a log in memory.

Contract: nothing counts that goes back or was not sent, and only whole ranges; what the master has to say
goes at once, and nothing twice.
"""

from __future__ import annotations

import pytest

from ha_replicator.identity import MAX_EPOCH_STEP
from ha_replicator.wire.frames import Frame, FrameKind
from ha_replicator.wire.handshake import Refusal
from tests.support.slave_of_a_link import EPOCH, TEN, Slave, log_of, refused, report


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


def test_how_fast_the_slave_goes_is_by_what_it_reported_and_when() -> None:
    slave = Slave(log_of(*[TEN] * 4))
    link = slave.follow()
    slave.pump()
    slave.pump()
    link.receive(report(40), 4.0)
    assert link.throughput.bytes_per_s(4.0) == 10.0
