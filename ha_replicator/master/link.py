"""One slave's connection, seen from the master: a state machine without sockets and clocks.

Owns what the slave proved to be, what was sent to it and what it reported.

Invariants: no report counts before both sides have proved who they are, none that goes back, and none beyond
what was sent on this connection; what counts is the end of a range that was sent, and only when the slave has
noted this master's epoch: what it holds of earlier ones could still lose against another log. An epoch that
the slave heard of counts only after its proof.

Threads: one, the driver's (transport/) or the simulation's. The log is read from it.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import deque
from collections.abc import Callable
from typing import Literal

from ha_replicator.identity import MAX_EPOCH_STEP, LinkClosed
from ha_replicator.link_opening import LinkOpening
from ha_replicator.log import ReplicatedLog, digest_range
from ha_replicator.master.catch_up import PIECE_BYTES, CatchUp
from ha_replicator.throughput import Throughput
from ha_replicator.wire.credentials import Transcript
from ha_replicator.wire.frames import Frame, FrameError, FrameKind, FrameReader
from ha_replicator.wire.handshake import (
    MAX_SNAPSHOT_BYTES,
    Challenge,
    Hello,
    Proof,
    Refusal,
    Welcome,
    decode,
    frame_of,
)
from store_native.errors import LakeMQError


class MasterLink:
    """A slave, as far as its connection tells.

    Args:
        opening: What this broker begins with.
        log: Its log.
        flush: This broker's flush mode; the slave reports what it holds as safely.
        catch_up: Says when a slave that is far behind gets its next bytes.
    """

    def __init__(
        self,
        opening: LinkOpening,
        log: ReplicatedLog,
        *,
        flush: Literal["sync", "async"],
        catch_up: CatchUp,
    ) -> None:
        self._opening = opening
        self._log = log
        self._flush = flush
        self._catch_up = catch_up
        self._pump_at: float | None = None  # held bytes may go, or a word of what is confirmed
        self._limits = opening.limits
        self._reader = FrameReader(0)
        self._reader.allow(FrameKind.HELLO)
        self._transcript = Transcript()
        self._take: Callable[[Frame], list[bytes]] = self._hello
        self._epoch = log.role()[1]
        self._opened_at = self._heard_at = self._said_at = opening.now
        self._sent_confirmed = -1
        self._held_epoch = 0
        self._sent_epoch_at = -1
        self._sent_ends: deque[int] = deque()
        self.hello: Hello | None = None
        self._snapshot = b""
        self._snapshot_sent = 0
        self.superseded = False
        self.bootstraps = False
        self.following = False
        self.sent = 0
        self.acked = 0
        self.acked_at = opening.now
        self.throughput = Throughput()

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes what arrived; returns what is to be sent.

        Raises:
            LinkClosed: The connection is of no more use.
        """
        self._reader.feed(data)
        answers: list[bytes] = []
        try:
            while (frame := self._reader.next()) is not None:
                self._heard_at = now
                answers += self._take(frame)
                if frame.kind is FrameKind.REPORT:
                    self.acked_at = now
                    self.throughput.note(self.acked, now)
        except FrameError as error:
            raise LinkClosed("FRAME_ILLEGAL", str(error)) from error
        if answers:
            self._said_at = now
        return answers

    def pump(self, now: float) -> list[bytes]:
        """Returns what is to be sent next: a range of the log, a word of what is confirmed, or nothing.

        Raises:
            LinkClosed: The slave is silent, the log went where the slave cannot follow, or this broker is the
                master of that epoch no more.
        """
        self.check(now)
        if self.superseded:
            raise LinkClosed("SUPERSEDED", f"another slave with id {self.broker_id} connected later")
        if not self.following:
            return []
        if self._log.role() != ("master", self._epoch):
            raise self._refused(
                "NOT_MASTER", f"this broker is not the master of epoch {self._epoch} any more"
            )
        _, _, flushed, confirmed = self._log.marks()
        held = not self._catch_up.look(self.sent, flushed, now)
        self._pump_at = self._catch_up.ready_at() if held else None
        if confirmed > self._sent_confirmed and not held:
            self._pump_at = self._said_at + self._limits.confirmed_s
        if self._snapshot_sent < len(self._snapshot) and not held:
            at = self._snapshot_sent
            piece = self._snapshot[at : at + self._piece_bytes(flushed)]
            frame = Frame(FrameKind.SNAPSHOT, at, speaker_epoch=self._epoch, body=piece)
            self._snapshot_sent += len(piece)
            self._said_at = now
            self._catch_up.took(len(piece), self.sent, flushed, now)
            return frame.pieces()
        if self.sent < flushed and not held and self.sent - self.acked < self._limits.window_bytes:
            epoch, next_offset, data = self._log.read(self.sent, self._piece_bytes(flushed))
            frame = Frame(FrameKind.DATA, self.sent, next_offset, epoch, self._epoch, confirmed, data)
            self._catch_up.took(len(data), self.sent, flushed, now)
            self.sent = next_offset
            self._sent_ends.append(next_offset)
        elif (
            (self._owes_confirmed(confirmed, now) and not held)
            or self._owes_epoch(flushed)
            or now - self._said_at >= self._limits.heartbeat_s
        ):
            # At the log's end it is this master's own epoch that goes on.
            epoch = self._epoch if self.sent == flushed else 0
            self._sent_epoch_at = self.sent if epoch else self._sent_epoch_at
            frame = Frame(FrameKind.HEARTBEAT, self.sent, self.sent, epoch, self._epoch, confirmed)
        else:
            return []
        if not held:
            self._pump_at = None  # this told what is confirmed
        self._sent_confirmed = confirmed
        self._said_at = now
        return frame.pieces()

    def is_due(self, now: float) -> bool:
        """Whether :meth:`pump` has something to do; asked after the log moved or the slave said something."""
        if not self.following:
            return False
        _, _, flushed, confirmed = self._log.marks()
        if self._catch_up.is_far(self.sent, flushed):
            return True  # how fast it gets its bytes goes by the log's growth
        if confirmed > self._sent_confirmed and self._pump_at is None:
            self._pump_at = self._said_at + self._limits.confirmed_s
        return (
            self.superseded
            or self._snapshot_sent < len(self._snapshot)
            or (self.sent < flushed and self.sent - self.acked < self._limits.window_bytes)
            or self._owes_epoch(flushed)
            or now >= self.next_deadline()
        )

    def next_deadline(self) -> float:
        """When :meth:`pump` must be called at the latest, whatever :meth:`is_due` says."""
        if not self.following:
            return self._opened_at + self._limits.handshake_s
        deadline = min(self._heard_at + self._limits.housekeeping_s, self._said_at + self._limits.heartbeat_s)
        return deadline if self._pump_at is None else min(deadline, self._pump_at)

    @property
    def broker_id(self) -> int | None:
        """The slave's, as it said."""
        return self.hello.broker_id if self.hello else None

    @property
    def counts(self) -> bool:
        """Whether the slave has this master's epoch: else another one could be promoted in its place."""
        return self._held_epoch == self._epoch and not self.bootstraps

    def lag(self) -> int:
        """Bytes of the log that the slave did not report yet."""
        return self._log.marks()[2] - self.acked

    def _piece_bytes(self, flushed: int) -> int:
        """About so much goes at once."""
        most = self._limits.range_bytes
        return min(most, PIECE_BYTES) if self._catch_up.is_far(self.sent, flushed) else most

    def _owes_confirmed(self, confirmed: int, now: float) -> bool:
        """Whether the slave should hear what is confirmed, since no range went that would have said it."""
        return confirmed > self._sent_confirmed and now - self._said_at >= self._limits.confirmed_s

    def _owes_epoch(self, flushed: int) -> bool:
        """Whether the slave has all of the log and has not heard yet that this epoch goes on there."""
        return self.sent == flushed and not self.counts and self._sent_epoch_at != self.sent

    def check(self, now: float) -> None:
        """Ends the connection of a slave that is silent.

        Raises:
            LinkClosed: It is.
        """
        if not self.following and now - self._opened_at >= self._limits.handshake_s:
            raise LinkClosed("TIMEOUT", f"no handshake within {self._limits.handshake_s:g} s")
        if self.following and now - self._heard_at >= self._limits.housekeeping_s:
            raise LinkClosed("TIMEOUT", f"the slave said nothing for {self._limits.housekeeping_s:g} s")

    def _hello(self, frame: Frame) -> list[bytes]:
        hello = decode(Hello, frame)
        opening = self._opening
        me = opening.me
        if (hello.cluster, hello.broker_name) != (me.cluster, me.broker_name):
            raise self._refused(
                "WRONG_BROKER",
                f"this is {me.broker_name} of {me.cluster}, not {hello.broker_name} of {hello.cluster}",
            )
        if not opening.credentials.required and not opening.local_peer:
            raise self._refused(
                "NO_PERMISSION", "without a cluster secret only slaves of this machine are taken"
            )
        if hello.shape != opening.shape:
            raise self._refused(
                "ARGUMENT_ILLEGAL", f"the slave's store has {hello.shape}; the master's {opening.shape}"
            )
        role, self._epoch = self._log.role()
        if role != "master":
            raise self._refused("NOT_MASTER", f"this broker is a slave in epoch {self._epoch}")
        challenge = frame_of(
            Challenge(
                cluster=me.cluster,
                broker_name=me.broker_name,
                epoch=self._epoch,
                flush=self._flush,
                authenticated=opening.credentials.required,
                nonce=opening.nonce,
            )
        )
        self.hello = hello
        self._transcript.add(frame.body)
        self._transcript.add(challenge.body)
        self._take = self._proof
        self._reader.allow(FrameKind.PROOF, FrameKind.REFUSAL)
        return challenge.pieces()

    def _proof(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            # It proved nothing yet: what it heard of is a reason to look, not to step down.
            refusal = decode(Refusal, frame)
            raise LinkClosed(refusal.code, f"the slave refused: {refusal.detail}")
        proof = decode(Proof, frame)
        if not self._opening.credentials.accepts("slave", self._transcript, proof.digest):
            raise self._refused("NO_PERMISSION", "the slave does not know this cluster's secret")
        hello = self.hello
        assert hello is not None
        if hello.seen_epoch > self._epoch + MAX_EPOCH_STEP:
            raise self._refused(
                "EPOCH_ILLEGAL", f"no broker gets from epoch {self._epoch} to {hello.seen_epoch}"
            )
        if hello.seen_epoch > self._epoch:
            raise self._refused(
                "EPOCH_OVER",
                f"epoch {self._epoch} is over: the slave heard of {hello.seen_epoch}",
                epoch=hello.seen_epoch,
            )
        first, _, flushed, _ = self._log.marks()
        if proof.snapshot:
            return self._welcome_with_snapshot(first)
        common = self._log.common_end(proof.epochs, proof.end)
        if common is None:
            raise self._refused(
                "NO_COMMON_EPOCH", "the two logs have no epoch in common: the slave's is of another broker"
            )
        common = min(common, flushed)
        if common < first:
            raise self._refused(
                "LOG_EXPIRED", f"the slave's log ends at {common}, the master's begins at {first} by now"
            )
        begin, end = digest_range(max(first, proof.first), common)
        if end < begin:
            raise self._refused("LOG_EXPIRED", f"the slave's log begins at {proof.first}, behind {common}")
        welcome = Welcome(
            digest=self._opening.credentials.prove("master", self._transcript),
            common=common,
            log_digest_from=begin,
            log_digest=self._log.digest(begin, end),
            epochs=[],
        )
        return self._welcome(welcome)

    def _welcome(self, welcome: Welcome) -> list[bytes]:
        self.sent = self.acked = welcome.common
        self._take = self._first_report
        self._reader.allow(FrameKind.REPORT, FrameKind.REFUSAL)
        return frame_of(welcome).pieces()

    def _welcome_with_snapshot(self, first: int) -> list[bytes]:
        """Begins with a slave that has no store: the state, then the log from its first byte on.

        A log that begins at 0 tells the state itself: the slave receives no more than that, and
        follows as any other.
        """
        offset, snapshot = (0, b"") if first == 0 else self._snapshot_of_log()
        self._snapshot, self._snapshot_sent, self.bootstraps = snapshot, 0, True
        welcome = Welcome(
            digest=self._opening.credentials.prove("master", self._transcript),
            common=first,
            log_digest_from=first,
            log_digest=0,
            epochs=self._log.epochs() if snapshot else [],
            snapshot_offset=offset,
            snapshot_bytes=len(snapshot),
            snapshot_digest=hashlib.sha256(snapshot).hexdigest() if snapshot else "",
        )
        return self._welcome(welcome)

    def _snapshot_of_log(self) -> tuple[int, bytes]:
        try:
            offset, snapshot = self._log.bootstrap_snapshot()
        except LakeMQError as error:
            raise self._refused(error.code, error.detail) from error
        if len(snapshot) > MAX_SNAPSHOT_BYTES:
            raise self._refused("SYSTEM_BUSY", f"the snapshot has {len(snapshot)} bytes")
        return offset, snapshot

    def _first_report(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            refusal = decode(Refusal, frame)
            raise LinkClosed(
                refusal.code, f"the slave refused: {refusal.detail}", epoch=self._believed(refusal.epoch)
            )
        if frame.offset != self.sent:
            raise LinkClosed("OFFSET_ILLEGAL", f"the slave begins at {frame.offset}, not at {self.sent}")
        self.following = True
        self._held_epoch = frame.epoch
        self._take = self._report
        self._reader.allow(FrameKind.REPORT, FrameKind.REFUSAL)
        return []

    def _report(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            refusal = decode(Refusal, frame)
            raise LinkClosed(
                refusal.code, f"the slave refused: {refusal.detail}", epoch=self._believed(refusal.epoch)
            )
        if frame.speaker_epoch > self._epoch + MAX_EPOCH_STEP:
            raise LinkClosed(
                "EPOCH_ILLEGAL", f"no broker gets from epoch {self._epoch} to {frame.speaker_epoch}"
            )
        if frame.speaker_epoch > self._epoch:
            raise self._refused(
                "EPOCH_OVER",
                f"epoch {self._epoch} is over: the slave heard of {frame.speaker_epoch}",
                epoch=frame.speaker_epoch,
            )
        if not self.acked <= frame.offset <= self.sent:
            raise LinkClosed(
                "OFFSET_ILLEGAL",
                f"the slave reports {frame.offset}, it had {self.acked} and was sent up to {self.sent}",
            )
        self._held_epoch = frame.epoch
        held = bisect.bisect_right(self._sent_ends, frame.offset)
        for _ in range(held):
            self.acked = self._sent_ends.popleft()
        return []

    def _believed(self, epoch: int) -> int:
        """The epoch if this master is over by it; 0 for one that is not higher, or out of reach."""
        return epoch if self._epoch < epoch <= self._epoch + MAX_EPOCH_STEP else 0

    def _refused(self, code: str, detail: str, *, epoch: int = 0) -> LinkClosed:
        refusal = Refusal(code=code, detail=detail[:1024], epoch=max(self._epoch, epoch))
        return LinkClosed(code, detail, farewell=frame_of(refusal).pieces(), epoch=epoch)
