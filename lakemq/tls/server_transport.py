"""What a protocol writes to that knows nothing of TLS: encrypts, and hands on to the connection's transport.

Owns the records that are made and not handed on yet.

Invariants: what waits to be sent waits in the transport below, and is what this one says waits: who bounds
unread answers bounds them here too. Closing says goodbye and does not wait for the peer's.

Threads: the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from typing import Any

_AT_ONCE = 64 << 10
"""What was encrypted is handed on as often: the place it lay in keeps its size while the connection lives."""


class TlsTransport(asyncio.Transport):
    """Over one connection whose handshake is done.

    Args:
        below: The connection's own transport.
        secure: The TLS state.
        outgoing: Where it puts what goes to the peer.
        protocol: Who writes here.
    """

    def __init__(
        self,
        below: asyncio.Transport,
        secure: ssl.SSLObject,
        outgoing: ssl.MemoryBIO,
        protocol: asyncio.Protocol,
    ) -> None:
        super().__init__({"sslcontext": secure.context, "ssl_object": secure})
        self._below = below
        self._secure = secure
        self._outgoing = outgoing
        self._protocol = protocol
        self._said_goodbye = False
        self._is_writing = self._is_to_pause = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Encrypts and sends; bytes behind a goodbye go nowhere."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Sends several as one."""
        self._is_writing = True
        for data in list_of_data:
            self._encrypt(data)
        self.hand_on()
        self._is_writing = False
        if self._is_to_pause:
            self._is_to_pause = False
            self._protocol.pause_writing()

    def pause_writing(self) -> None:
        """So much waits below that who writes is to pause; it hears so when all of its bytes are counted."""
        if self._is_writing:
            self._is_to_pause = True
        else:
            self._protocol.pause_writing()

    def hand_on(self) -> None:
        """Sends the records that were made."""
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def can_write_eof(self) -> bool:
        """Whether this side can end before the other."""
        return True

    def write_eof(self) -> None:
        """Ends what is sent; the peer may go on."""
        self._say_goodbye()
        if not self._below.is_closing() and self._below.can_write_eof():
            self._below.write_eof()

    def close(self) -> None:
        """Closes once all is sent."""
        self._say_goodbye()
        self._below.close()

    def abort(self) -> None:
        """Closes at once."""
        self._below.abort()

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Also ``sslcontext`` and ``ssl_object``."""
        found = super().get_extra_info(name)
        return self._below.get_extra_info(name, default) if found is None else found

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who writes here."""
        return self._protocol

    def is_reading(self) -> bool:
        """Whether bytes are taken."""
        return self._below.is_reading()

    def pause_reading(self) -> None:
        """Takes no bytes until further notice."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Takes bytes again."""
        self._below.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Says from how many bytes on the writer is asked to pause."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent, encrypted."""
        return self._below.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """(low, high)."""
        return self._below.get_write_buffer_limits()

    def _encrypt(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._said_goodbye or self._below.is_closing():
            return
        left = memoryview(data).cast("B") if data else memoryview(b"")
        try:
            while left:
                left = left[self._secure.write(left[:_AT_ONCE]) :]
                if self._outgoing.pending >= _AT_ONCE:
                    self.hand_on()
        except ssl.SSLError:
            self._below.abort()

    def _say_goodbye(self) -> None:
        if self._said_goodbye:
            return
        self._said_goodbye = True
        with contextlib.suppress(ssl.SSLError):  # it would wait for the peer's
            self._secure.unwrap()
        self.hand_on()
