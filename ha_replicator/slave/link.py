"""The connection to the master, seen from the slave: a state machine without sockets and clocks.

Owns what the master proved to be and how far the log follows it.

Invariants: nothing is cut or appended before the master has proved who it is, none of an epoch that is over,
and nothing but the next range; the log is cut only where it parts from the master's, and never before the
bytes in front of that place were compared.

Threads: one, the driver's (transport/) or the simulation's. Ranges are appended from it; a cut, which copies
what it takes away, is left to the driver.
"""

from __future__ import annotations

from collections.abc import Callable

from ha_replicator.identity import BrokerIdentity, LinkClosed
from ha_replicator.link_limits import LinkLimits
from ha_replicator.log import ReplicatedLog
from ha_replicator.wire.credentials import Credentials, Transcript
from ha_replicator.wire.frames import Frame, FrameError, FrameKind, FrameReader
from ha_replicator.wire.handshake import Challenge, Hello, Proof, Refusal, Welcome, decode, frame_of
from store_native.errors import LakeMQError


class SlaveLink:
    """A master, as far as its connection tells.

    Args:
        me: This broker.
        log: Its log; all that is appended must be flushed when a link begins.
        credentials: The cluster's secret.
        shape: What the master's store must have alike, in words.
        local_peer: Whether the master is on this machine.
        nonce: A random number of this connection, in hex.
        now: Seconds, never going back; so in all methods.
        limits: The bounds.
    """

    _wants_snapshot = False

    def __init__(
        self,
        me: BrokerIdentity,
        log: ReplicatedLog,
        credentials: Credentials,
        *,
        shape: str,
        local_peer: bool,
        nonce: str,
        now: float,
        limits: LinkLimits,
    ) -> None:
        self._me = me
        self._log = log
        self._credentials = credentials
        self._shape = shape
        self._local_peer = local_peer
        self._nonce = nonce
        self._limits = limits
        self._reader = FrameReader(limits.max_range_bytes)
        self._reader.allow(FrameKind.CHALLENGE, FrameKind.REFUSAL)
        self._transcript = Transcript()
        self._take: Callable[[Frame], list[bytes]] = self._challenge
        self._opened_at = self._heard_at = self._said_at = now
        self._reported = (-1, -1)
        self._newest_epoch = 0
        self._reports_flushed = True
        self.epoch = 0
        self.cut_at: int | None = None
        self.following = False
        self.master_end = 0

    def begin(self) -> list[bytes]:
        """Returns what is to be sent first."""
        hello = frame_of(
            Hello(
                cluster=self._me.cluster,
                broker_name=self._me.broker_name,
                broker_id=self._me.broker_id,
                seen_epoch=self._log.role()[1],
                shape=self._shape,
                nonce=self._nonce,
            )
        )
        self._transcript.add(hello.body)
        return hello.pieces()

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes what arrived; returns what is to be sent.

        When :attr:`cut_at` is set afterwards, the driver cuts the log there and calls :meth:`cut`; what
        arrives meanwhile is kept.

        Raises:
            LinkClosed: The connection is of no more use.
        """
        self._reader.feed(data)
        answers: list[bytes] = []
        try:
            while self.cut_at is None and (frame := self._reader.next()) is not None:
                self._heard_at = now
                answers += self._take(frame)
        except FrameError as error:
            raise LinkClosed("FRAME_ILLEGAL", str(error)) from error
        return answers + self.report(now)

    def cut(self, now: float) -> list[bytes]:
        """The log was cut at :attr:`cut_at`; returns what is to be sent."""
        assert self.cut_at is not None
        self.cut_at = None
        self._newest_epoch = self._log.epochs()[-1][0]
        self.following = True
        self._take = self._follow
        self._reader.allow(FrameKind.DATA, FrameKind.HEARTBEAT, FrameKind.REFUSAL)
        return self.report(now) + self.receive(b"", now)

    def report(self, now: float) -> list[bytes]:
        """Returns a report when what is held has grown, or the last one is long ago.

        Raises:
            LinkClosed: The master is silent.
        """
        if not self.following:
            if now - self._opened_at >= self._limits.handshake_s and self.cut_at is None:
                raise LinkClosed("TIMEOUT", f"no handshake within {self._limits.handshake_s:g} s")
            return []
        if now - self._heard_at >= self._limits.housekeeping_s:
            raise LinkClosed("TIMEOUT", f"the master said nothing for {self._limits.housekeeping_s:g} s")
        _, appended, flushed, _ = self._log.marks()
        held = (flushed if self._reports_flushed else appended), self._newest_epoch
        if held == self._reported and now - self._said_at < self._limits.heartbeat_s:
            return []
        self._reported, self._said_at = held, now
        return Frame(FrameKind.REPORT, held[0], held[0], held[1], self.epoch, 0).pieces()

    def next_deadline(self) -> float:
        """When :meth:`report` must be called at the latest."""
        if not self.following:
            return self._opened_at + self._limits.handshake_s
        return min(self._heard_at + self._limits.housekeeping_s, self._said_at + self._limits.heartbeat_s)

    def _challenge(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            self._was_refused(frame)
        challenge = decode(Challenge, frame)
        me = self._me
        if (challenge.cluster, challenge.broker_name) != (me.cluster, me.broker_name):
            raise LinkClosed("WRONG_BROKER", f"it is {challenge.broker_name} of {challenge.cluster}")
        if challenge.authenticated != self._credentials.required:
            whose = "the master asks for" if challenge.authenticated else "the master has no"
            raise self._refused("NO_PERMISSION", f"{whose} cluster secret")
        if not self._credentials.required and not self._local_peer:
            raise self._refused(
                "NO_PERMISSION", "without a cluster secret only masters of this machine are taken"
            )
        self._transcript.add(frame.body)
        first, _, flushed, _ = self._log.marks()
        self.epoch = challenge.epoch
        self._reports_flushed = challenge.flush == "sync"
        proof = Proof(
            digest=self._credentials.prove("slave", self._transcript),
            epochs=self._log.epochs(),
            first=first,
            end=flushed,
            snapshot=self._wants_snapshot,
        )
        self._take = self._welcome
        self._reader.allow(FrameKind.WELCOME, FrameKind.REFUSAL)
        return frame_of(proof).pieces()

    def _welcome(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            self._was_refused(frame)
        welcome = decode(Welcome, frame)
        if not self._credentials.accepts("master", self._transcript, welcome.digest):
            raise LinkClosed("NO_PERMISSION", "the master does not know this cluster's secret")
        seen = self._log.role()[1]
        if seen > self.epoch:
            raise self._refused(
                "EPOCH_OVER", f"epoch {self.epoch} is over: this slave heard of {seen}", epoch=seen
            )
        first, _, flushed, _ = self._log.marks()
        if not welcome.log_digest_from <= welcome.common <= flushed or welcome.log_digest_from < first:
            raise self._refused(
                "OFFSET_ILLEGAL", f"this log holds [{first}, {flushed}), not {welcome.common}"
            )
        if self._log.digest(welcome.log_digest_from, welcome.common) != welcome.log_digest:
            raise self._refused(
                "LOG_DIVERGED", f"the logs differ before {welcome.common}: one is of another broker"
            )
        self._log.become_slave(self.epoch)
        self.cut_at = welcome.common
        return []

    def _follow(self, frame: Frame) -> list[bytes]:
        if frame.kind is FrameKind.REFUSAL:
            self._was_refused(frame)
        if frame.speaker_epoch != self.epoch:
            raise LinkClosed(
                "EPOCH_OVER", f"the master of epoch {self.epoch} speaks for {frame.speaker_epoch}"
            )
        try:
            if frame.kind is FrameKind.DATA:
                self._log.append(self.epoch, frame.offset, frame.epoch, frame.next_offset, frame.body)
                self._newest_epoch = max(self._newest_epoch, frame.epoch)
            elif frame.epoch > self._newest_epoch:
                self._log.begin_epoch(frame.epoch, frame.offset)
                self._newest_epoch = frame.epoch
        except LakeMQError as error:
            raise LinkClosed(error.code, error.detail) from error
        self.master_end = max(self.master_end, frame.next_offset)
        self._log.replicated(frame.confirmed)
        return []

    def _was_refused(self, frame: Frame) -> None:
        refusal = decode(Refusal, frame)
        # It is claimed, not proved: a higher epoch is found by asking its master.
        raise LinkClosed(refusal.code, f"the master refused: {refusal.detail}")

    def _refused(self, code: str, detail: str, *, epoch: int = 0) -> LinkClosed:
        refusal = frame_of(Refusal(code=code, detail=detail[:1024], epoch=epoch))
        return LinkClosed(code, detail, farewell=refusal.pieces())
