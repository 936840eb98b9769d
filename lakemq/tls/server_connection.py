"""One TLS connection of who is connected to, between the event loop and a protocol that knows nothing of TLS.

Owns the handshake: whether the peer speaks TLS at all, how long it may take, and what comes of it.

Invariants: the protocol hears of the connection when the handshake is done, and of nothing that was not
encrypted. A peer that speaks plainly is told so, in words of its own protocol, and not one byte of it is
taken.

Threads: the event loop.

The loop's own TLS hides two things that are bounded here: connections whose handshake never ends, and bytes
that wait for a peer which does not read.
"""

from __future__ import annotations

import asyncio
import ssl

from lakemq.tls.files import words_of
from lakemq.tls.server_transport import TlsTransport

_HANDSHAKE_RECORD = 0x16
_READ_BYTES = 256 << 10
_LINGER_S = 2.0
"""Who is told that this port speaks TLS gets so long to read it."""


class TlsConnection(asyncio.Protocol):
    """One connection.

    Args:
        context: This side's certificate.
        protocol: Gets what was decrypted.
        handshake_s: The handshake must have ended within it.
    """

    def __init__(self, context: ssl.SSLContext, protocol: asyncio.Protocol, *, handshake_s: float) -> None:
        self._protocol = protocol
        self._handshake_s = handshake_s
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._secure = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._below: asyncio.Transport | None = None
        self._transport: TlsTransport | None = None  # once the handshake is done
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = self._is_over = self._has_ended = False

    def enter(self) -> bool:
        """Counts the connection while its handshake lasts; False: there is no place for it."""
        return True

    def leave(self) -> None:
        """The handshake is done, or the connection gone."""

    def answer_plain(self, begun: bytes) -> bytes:
        """Returns what a peer is told that does not speak TLS; nothing closes without a word."""
        return b""

    def note(self, reason: str) -> None:
        """The handshake came to nothing."""

    def abort(self) -> None:
        """Closes at once."""
        if self._below is not None:
            self._below.abort()

    @property
    def peer(self) -> str:
        """The peer's address, for the log."""
        name = None if self._below is None else self._below.get_extra_info("peername")
        return "{}:{}".format(*name[:2]) if name else "-"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a socket
        """Called by the event loop."""
        self._below = transport
        if not self.enter():
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(self._handshake_s, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        if self._is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            if data[0] != _HANDSHAKE_RECORD:
                self._refuse_plain(data)
                return
        self._incoming.write(data)
        if self._transport is not None or self._shake_hands():
            self._hand_up()

    def eof_received(self) -> bool:
        """Called by the event loop when the peer has closed its side; says whether this side stays open."""
        return self._transport is not None and not self._is_over and self._end()

    def pause_writing(self) -> None:
        """Called by the event loop."""
        if self._transport is not None:
            self._transport.pause_writing()

    def resume_writing(self) -> None:
        """Called by the event loop."""
        if self._transport is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._is_over = True
        if self._transport is not None:
            self._protocol.connection_lost(exc)
        else:
            self._end_of_handshake()

    def _shake_hands(self) -> bool:
        """Goes on with the handshake; whether it is done."""
        assert self._below is not None
        try:
            self._secure.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self.note(words_of(error.reason))
            self._is_over = True
            self._send()
            self._below.close()
            return False
        self._send()
        self._end_of_handshake()
        self._transport = TlsTransport(self._below, self._secure, self._outgoing, self._protocol)
        self._protocol.connection_made(self._transport)
        return True

    def _hand_up(self) -> None:
        """Gives the protocol what has arrived whole."""
        assert self._transport is not None
        if self._transport.is_closing():
            return  # the protocol wants no more of it
        pieces: list[bytes] = []
        ended = broken = False
        try:
            while piece := self._secure.read(_READ_BYTES):
                pieces.append(piece)
            ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError:
            broken = True
        self._transport.hand_on()
        if pieces:
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if broken:
            self._transport.abort()
        elif ended:
            self._end()

    def _end(self) -> bool:
        """The peer says no more; whether it may still hear."""
        assert self._transport is not None
        if not self._has_ended:
            self._has_ended = True
            if not self._protocol.eof_received():
                self._transport.close()
        return not self._transport.is_closing()

    def _send(self) -> None:
        assert self._below is not None
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _refuse_plain(self, begun: bytes) -> None:
        assert self._below is not None
        self._is_over = True
        answer = self.answer_plain(begun)
        if not answer:
            self._below.close()
            return
        self._below.write(answer)
        if self._below.can_write_eof():
            self._below.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, self._below.close)

    def _give_up(self) -> None:
        self.note(f"no handshake within {self._handshake_s:g} s")
        self.abort()

    def _end_of_handshake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.leave()
