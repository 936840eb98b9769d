"""One connection: each address has its part of the time, what fails is said with its cause and left closed.

What a socket reads and sends has what is left of the deadline.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from lakemq.client import deadline
from lakemq.client.deadline import Deadline, pool_of, until

NAME = "broker.example"
REFUSES = ("127.0.0.1", 1)
STRANGE = 999
"""No family of addresses."""


class Scripted(Deadline):
    """A deadline whose seconds left are said beforehand, one for each time it is asked."""

    def __init__(self, *left: float) -> None:
        super().__init__(0)
        self.script = list(left)

    def left(self) -> float:
        return self.script.pop(0)


class Tried(deadline._TimedSocket):  # noqa: SLF001 - the very class, listened to
    """A socket that says which time-outs it was given."""

    made: list[Tried]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.time_outs: list[float | None] = []
        self.made.append(self)

    def settimeout(self, value: float | None) -> None:
        self.time_outs.append(value)
        super().settimeout(value)


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tried]]:
    """The sockets the connections of a test made."""
    Tried.made = []
    monkeypatch.setattr(deadline, "_TimedSocket", Tried)
    yield Tried.made
    for made in Tried.made:
        made.close()


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    """A listener on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def connection(host: str = NAME, port: int = 1, **options: Any) -> HTTPConnection:
    made = pool_of("http://127.0.0.1", 1).ConnectionCls(host, port, **options)
    assert isinstance(made, HTTPConnection)
    return made


def place(address: tuple[str, int], family: int = socket.AF_INET) -> tuple[Any, ...]:
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Says what a host name is resolved to; returns what was asked for."""

    def to(*places: tuple[Any, ...] | Exception) -> list[Any]:
        asked: list[Any] = []

        def look_up(*args: Any, **named: Any) -> list[Any]:
            asked.append((*args, named))
            found = [entry for entry in places if not isinstance(entry, Exception)]
            for entry in places:
                if isinstance(entry, Exception):
                    raise entry
            return found

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        return asked

    return to


def last(monkeypatch: pytest.MonkeyPatch, *left: float) -> None:
    """Says what is left when a connection asks for it."""
    monkeypatch.setattr(deadline, "Deadline", lambda seconds: Scripted(*left))


def test_each_address_has_an_equal_part_of_what_is_left_and_the_one_that_answers_all_of_it(
    resolve: Callable[..., list[Any]],
    sockets: list[Tried],
    peer: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve(place(REFUSES), place(REFUSES), place(peer.getsockname()), place(REFUSES))
    last(monkeypatch, 16.0, 12.0, 8.0, 5.0)
    with closing(connection()) as connected:
        connected.connect()
        assert [made.time_outs for made in sockets] == [[4.0], [4.0], [4.0, 5.0]]
        assert connected.sock is sockets[2]
        assert connected.sock.proto == socket.IPPROTO_TCP
        assert connected.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert [made.fileno() for made in sockets[:2]] == [-1, -1], "left open"


def test_a_connection_made_with_its_last_moment_still_has_a_time_out(
    resolve: Callable[..., list[Any]], peer: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(place(peer.getsockname()))
    last(monkeypatch, 9.0, -1.0)
    with closing(connection(socket_options=None)) as connected:
        connected.connect()
        assert connected.sock is not None
        assert connected.sock.gettimeout() == 0.001


@pytest.mark.parametrize(("given", "most"), [(60.0, 60.0), (40, 40.0), (None, 3.0)])
def test_connecting_has_the_time_it_was_given(
    given: float | None, most: float, sockets: list[Tried], peer: socket.socket
) -> None:
    with closing(connection(*peer.getsockname(), timeout=given)) as connected:
        connected.connect()
    for time_out in sockets[0].time_outs:
        assert time_out == pytest.approx(most, abs=most / 4)


def test_a_name_is_asked_for_by_itself_and_for_streams_only(
    resolve: Callable[..., list[Any]], peer: socket.socket
) -> None:
    asked = resolve(place(peer.getsockname()))
    for host in ("[::1]", NAME, "XX.example"):
        with closing(connection(host, 8090)) as connected:
            connected.connect()
    streams = {"type": socket.SOCK_STREAM}
    assert asked == [("::1", 8090, streams), (NAME, 8090, streams), ("XX.example", 8090, streams)]


@pytest.mark.parametrize(
    "cause",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        UnicodeError("encoding with 'idna' codec failed"),
    ],
)
def test_a_name_nobody_knows_is_said_with_the_resolvers_words(
    resolve: Callable[..., list[Any]], cause: Exception
) -> None:
    resolve(cause)
    unknown = connection()
    with pytest.raises(NameResolutionError) as raised:
        unknown.connect()
    assert str(raised.value) == f"{unknown}: Failed to resolve '{NAME}' ({cause})"
    assert raised.value.__cause__ is cause


def test_a_name_that_cannot_be_one_is_no_other_error() -> None:
    with pytest.raises(NameResolutionError, match="label"):
        connection("a" * 64 + ".example").connect()


def test_a_host_without_an_address_is_none_to_connect_to(resolve: Callable[..., list[Any]]) -> None:
    resolve()
    nowhere = connection()
    with pytest.raises(NewConnectionError) as raised:
        nowhere.connect()
    said = f"{nowhere}: Failed to establish a new connection: the host has no address"
    assert str(raised.value) == said
    assert raised.value.__cause__ is None


def test_a_refusal_is_said_with_its_cause(resolve: Callable[..., list[Any]], sockets: list[Tried]) -> None:
    resolve(place(REFUSES))
    refused = connection()
    with pytest.raises(NewConnectionError) as raised:
        refused.connect()
    cause = raised.value.__cause__
    assert isinstance(cause, ConnectionRefusedError)
    assert str(raised.value) == f"{refused}: Failed to establish a new connection: {cause}"
    assert sockets[0].fileno() == -1, "left open"


def test_an_address_this_host_can_make_no_socket_for_is_passed_over(
    resolve: Callable[..., list[Any]], peer: socket.socket
) -> None:
    resolve(place(("nowhere", 1), STRANGE), place(peer.getsockname()))
    with closing(connection()) as connected:
        connected.connect()
    resolve(place(("nowhere", 1), STRANGE))
    with pytest.raises(NewConnectionError, match="not supported"):
        connection().connect()


@pytest.mark.parametrize("left", [0.0, -1.0])
def test_time_that_is_over_before_the_first_address_is_a_time_out(
    left: float, resolve: Callable[..., list[Any]], sockets: list[Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(place(REFUSES))
    last(monkeypatch, left)
    late = connection()
    with pytest.raises(ConnectTimeoutError) as raised:
        late.connect()
    assert type(raised.value) is ConnectTimeoutError
    assert raised.value.args == (late, f"Connection to {NAME} timed out.")
    assert str(raised.value.__cause__) == "timed out"
    assert sockets == []


def test_time_that_is_over_after_a_refusal_tells_of_the_refusal(
    resolve: Callable[..., list[Any]], sockets: list[Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(place(REFUSES), place(REFUSES))
    last(monkeypatch, 9.0, 0.0)
    with pytest.raises(NewConnectionError, match="refused"):
        connection().connect()
    assert len(sockets) == 1


@pytest.fixture
def pair(peer: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection's socket and the peer's."""
    with closing(connection(*peer.getsockname(), timeout=60.0)) as connected:
        connected.connect()
        assert connected.sock is not None
        with peer.accept()[0] as other:
            yield connected.sock, other


def test_each_read_and_each_send_has_what_is_left(pair: tuple[socket.socket, socket.socket]) -> None:
    own, other = pair
    other.sendall(b"abc")
    with until(Scripted(0.5, 30.0)):
        assert own.recv_into(bytearray(3)) == 3
        assert own.gettimeout() == 0.5
        own.sendall(b"def")
        assert own.gettimeout() == 30.0
    assert other.recv(9) == b"def"
    own.settimeout(7.0)
    own.sendall(b"g")
    assert own.gettimeout() == 7.0, "a deadline that is over still holds"


@pytest.mark.parametrize("left", [0.0, -1.0])
def test_after_the_deadline_nothing_is_read_and_nothing_sent(
    left: float, pair: tuple[socket.socket, socket.socket]
) -> None:
    own, other = pair
    other.sendall(b"abc")
    with until(Scripted(left, left)):
        with pytest.raises(TimeoutError, match="timed out"):
            own.recv_into(bytearray(3))
        with pytest.raises(TimeoutError, match="timed out"):
            own.sendall(b"def")
    other.setblocking(False)
    with suppress(BlockingIOError):
        assert other.recv(3) == b""


def test_what_a_socket_is_told_reaches_it(pair: tuple[socket.socket, socket.socket]) -> None:
    own, other = pair
    other.sendall(b"abc")
    assert own.recv_into(bytearray(3), nbytes=2) == 2
    with pytest.raises(TypeError, match="keyword"):
        own.sendall(b"x", flags=0)  # type: ignore[call-arg]  # a socket takes none by its name
