"""How a slave's connection begins, and how either side notices that the other is gone.

Owns what the master proved to be, and when something was last heard or said.

Invariants: nothing of a master is taken before it has proved who it is, and nothing that it says for another
epoch than the one it proved; what is reported was held before. A master whose bytes come too slowly to be of
use is silent.

Threads: one, the driver's (transport/) or the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable

from ha_replicator.identity import LinkClosed
from ha_replicator.link_opening import LinkOpening
from ha_replicator.log import LogPosition
from ha_replicator.wire.credentials import Transcript
from ha_replicator.wire.frames import Frame, FrameError, FrameKind, FrameReader
from ha_replicator.wire.handshake import Challenge, Hello, Proof, Refusal, Welcome, decode, frame_of


class SlaveHandshake:
    """A master, as far as its connection tells; what comes after its WELCOME is for who derives from it.

    Args:
        opening: What this broker begins with.
        log: Where its log stands; all that is appended must be flushed when a link begins.

    Attributes:
        epoch: The master's.
        following: The log goes on.
        cut_at: What arrives is kept until the driver has cut the log there.
    """

    _wants_snapshot = False

    def __init__(self, opening: LinkOpening, log: LogPosition) -> None:
        self._opening = opening
        self._position = log
        self._limits = opening.limits
        self._reader = FrameReader(opening.limits.max_range_bytes)
        self._reader.allow(FrameKind.CHALLENGE, FrameKind.REFUSAL)
        self._transcript = Transcript()
        self._take: Callable[[Frame], list[bytes]] = self._challenge
        self._opened_at = self._heard_at = self._said_at = opening.now
        self._unheard_bytes = 0  # that arrived since, of a frame that is not whole
        self._reported = (-1, -1)
        self._reports_flushed = True
        self.epoch = 0
        self.cut_at: int | None = None
        self.following = False

    def begin(self) -> list[bytes]:
        """Returns what is to be sent first."""
        me = self._opening.me
        hello = frame_of(
            Hello(
                cluster=me.cluster,
                broker_name=me.broker_name,
                broker_id=me.broker_id,
                seen_epoch=self._position.role()[1],
                shape=self._opening.shape,
                nonce=self._opening.nonce,
            )
        )
        self._transcript.add(hello.body)
        return hello.pieces()

    def receive(self, data: bytes, now: float) -> list[bytes]:
        """Takes what arrived; returns what is to be sent.

        Raises:
            LinkClosed: The connection is of no more use.
        """
        self._reader.feed(data)
        self._unheard_bytes += len(data)
        answers: list[bytes] = []
        try:
            while self.cut_at is None and (frame := self._reader.next()) is not None:
                self._heard_at, self._unheard_bytes = now, 0
                if frame.kind is FrameKind.REFUSAL:
                    refusal = decode(Refusal, frame)
                    # It is claimed, not proved: a higher epoch is found by asking its master.
                    raise LinkClosed(refusal.code, f"the master refused: {refusal.detail}")
                answers += self._take(frame)
        except FrameError as error:
            raise LinkClosed("FRAME_ILLEGAL", str(error)) from error
        if self._unheard_bytes >= self._limits.progress_bytes:
            self._heard_at, self._unheard_bytes = now, 0
        return answers + self.report(now)

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
        held = self._held()
        if held == self._reported and now - self._said_at < self._limits.heartbeat_s:
            return []
        self._reported, self._said_at = held, now
        return Frame(FrameKind.REPORT, held[0], held[0], held[1], self.epoch, 0).pieces()

    def is_due(self) -> bool:
        """Whether :meth:`report` has something new to say; asked after the log moved."""
        return self.following and self._held() != self._reported

    def next_deadline(self) -> float:
        """When :meth:`report` must be called at the latest."""
        if not self.following:
            return self._opened_at + self._limits.handshake_s
        return min(self._heard_at + self._limits.housekeeping_s, self._said_at + self._limits.heartbeat_s)

    def _held(self) -> tuple[int, int]:
        """Up to where the log is held, and the newest epoch that was noted; once the log goes on."""
        raise NotImplementedError

    def _welcome(self, welcome: Welcome) -> None:
        """The master has proved who it is, and says where the log goes on."""
        raise NotImplementedError

    def _go_on(self, take: Callable[[Frame], list[bytes]], *kinds: FrameKind) -> None:
        """From here on ``take`` gets what comes, which is of these kinds."""
        self._take = take
        self._reader.allow(*kinds, FrameKind.REFUSAL)

    def _check_speaker(self, frame: Frame) -> None:
        """Refuses what the master says for another epoch than the one it proved.

        Raises:
            LinkClosed: It does.
        """
        if frame.speaker_epoch != self.epoch:
            raise LinkClosed(
                "EPOCH_OVER", f"the master of epoch {self.epoch} speaks for {frame.speaker_epoch}"
            )

    def _challenge(self, frame: Frame) -> list[bytes]:
        challenge = decode(Challenge, frame)
        me, credentials = self._opening.me, self._opening.credentials
        if (challenge.cluster, challenge.broker_name) != (me.cluster, me.broker_name):
            raise LinkClosed("WRONG_BROKER", f"it is {challenge.broker_name} of {challenge.cluster}")
        if challenge.authenticated != credentials.required:
            whose = "the master asks for a" if challenge.authenticated else "the master has no"
            raise refused("NO_PERMISSION", f"{whose} cluster secret")
        if not credentials.required and not self._opening.local_peer:
            raise refused("NO_PERMISSION", "without a cluster secret only masters of this machine are taken")
        self._transcript.add(frame.body)
        first, _, flushed, _ = self._position.marks()
        self.epoch = challenge.epoch
        self._reports_flushed = challenge.flush == "sync"
        proof = Proof(
            digest=credentials.prove("slave", self._transcript),
            epochs=self._position.epochs(),
            first=first,
            end=flushed,
            snapshot=self._wants_snapshot,
        )
        self._go_on(self._proved_welcome, FrameKind.WELCOME)
        return frame_of(proof).pieces()

    def _proved_welcome(self, frame: Frame) -> list[bytes]:
        welcome = decode(Welcome, frame)
        if not self._opening.credentials.accepts("master", self._transcript, welcome.digest):
            raise LinkClosed("NO_PERMISSION", "the master does not know this cluster's secret")
        self._welcome(welcome)
        return []


def refused(code: str, detail: str, *, epoch: int = 0) -> LinkClosed:
    """Returns the end of a connection whose master is told why."""
    refusal = frame_of(Refusal(code=code, detail=detail[:1024], epoch=epoch))
    return LinkClosed(code, detail, farewell=refusal.pieces())
