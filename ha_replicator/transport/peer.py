"""One replication connection's socket.

Owns the pair of asyncio streams: what is sent, who takes what arrives, how it ends, whether the peer is on
this machine.

Invariants: what waits to be sent is bounded (`WRITE_HIGH_BYTES`): a sender waits for its peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address

from ha_replicator.link_place import LinkPlace
from lakemq.tls.trust import in_words

READ_BYTES = 1 << 20
WRITE_HIGH_BYTES = 4 << 20
_FAREWELL_S = 1.0
CONNECT_TIMEOUT_S = 3.0
_READ_AHEAD_BYTES = 1 << 20


class PeerReader(asyncio.StreamReader):
    """What arrives: kept until it is read, or given to the link as it arrives.

    Attributes:
        failure: What the link raised; the reading ended by that.
    """

    _take: Callable[[bytes], None] | None = None
    _kept_bytes = 0
    failure: Exception | None = None

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # a protocol has bytes
        """See the base class; the connection's protocol calls it."""
        if self._take is None:
            self._kept_bytes += len(data)
            super().feed_data(data)
            return
        try:
            self._take(data)
        except Exception as error:  # noqa: BLE001 - who reads the connection has it raised there
            # The writer would raise what is set as the reader's exception, and send no farewell.
            self._take, self.failure = _ignore, error
            self.feed_eof()

    def give_to(self, take: Callable[[bytes], None], read_bytes: int) -> bool:
        """Calls ``take`` with what arrives from now on, if all that was kept, ``read_bytes``, was read."""
        if self._kept_bytes == read_bytes:
            self._take = take
        return self._take is take


def _ignore(_data: bytes) -> None:
    """What arrives behind an error."""


class Peer:
    """The other end.

    Args:
        reader: Of the connection.
        writer: Of the connection; closed by :meth:`close`.

    Raises:
        ConnectionResetError: It is gone already.
    """

    def __init__(self, reader: PeerReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._read_bytes = 0
        self._writer = writer
        name = writer.get_extra_info("peername")
        if name is None or writer.transport.is_closing():
            writer.transport.abort()
            raise ConnectionResetError("the connection was gone before it was taken")
        self.address: str = "{}:{}".format(*name[:2])
        self.is_local = is_loopback(name[0])
        writer.transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def read(self) -> bytes:
        """Returns what arrived; empty at the end of the stream.

        Raises:
            Exception: What the taker of :meth:`give_to` raised.
        """
        data = await self._reader.read(READ_BYTES)
        self._read_bytes += len(data)
        if not data and self._reader.failure is not None:
            raise self._reader.failure
        return data

    def give_to(self, take: Callable[[bytes], None]) -> bool:
        """Has ``take`` called with what arrives from now on, without a task in between.

        :meth:`read` then returns at the end of the stream only, or raises what ``take`` raised, which is not
        called again.

        Returns:
            False when something is left to be read: nothing has changed.
        """
        return self._reader.give_to(take, self._read_bytes)

    def write(self, pieces: Sequence[bytes]) -> None:
        """Sends, without waiting.

        Raises:
            ConnectionResetError: The connection is gone; the loop's own transport has another error for it.
        """
        if self._writer.transport.is_closing():
            raise ConnectionResetError("the connection is gone")
        if pieces:
            self._writer.writelines(pieces)

    @property
    def is_over(self) -> bool:
        """Whether the taker raised something: :meth:`read` is about to raise it, and nothing else is said."""
        return self._reader.failure is not None

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be sent that a sender has to wait."""
        return self._writer.transport.get_write_buffer_size() > WRITE_HIGH_BYTES

    async def drained(self) -> None:
        """Returns when little enough waits to be sent."""
        await self._writer.drain()

    async def close(self, farewell: Sequence[bytes] = ()) -> None:
        """Sends a last word, if the peer takes it at once, and closes."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                self.write(farewell)
                await self._writer.drain()
                self._writer.close()
                await self._writer.wait_closed()
                return
        self._writer.transport.abort()


async def connected(place: LinkPlace) -> Peer:
    """Connects, with TLS where the place asks for it.

    Raises:
        OSError: No connection, or none whose certificate is accepted.
        TimeoutError: It took longer than `CONNECT_TIMEOUT_S`.
    """
    host, port, tls = place
    loop = asyncio.get_running_loop()
    reader = PeerReader(limit=_READ_AHEAD_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=tls)
    except (ssl.SSLError, ConnectionResetError) as error:
        raise ConnectionError(f"{host} port {port}: {in_words(error)}") from error
    return Peer(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def is_loopback(host: str) -> bool:
    """Whether an address as a socket gives it is this machine's own loopback, IPv4 in IPv6 included."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
