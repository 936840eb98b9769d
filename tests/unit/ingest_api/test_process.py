"""What a process with a front door begins with: its port, and its share of the files it may have open.

Contract: a place that nobody can listen on is named in one line; connections leave the store its files.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator

import pytest

from ingest_api.http.connection.watch import REFUSED_AT_ONCE, ConnectionWatch
from ingest_api.process import OWN_FILES, _bind, within_open_files
from ingest_api.process_settings import HttpSettings
from store_native.errors import InvalidRequest, Unavailable


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "192.0.2.1"])
def test_a_host_that_is_none_of_ours_is_refused(host: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cannot listen on {host} port 0: "):
        _bind(HttpSettings(host=host, port=0, insecure=True))


def test_a_taken_port_says_how_to_get_another() -> None:
    with _bind(HttpSettings(port=0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest) as refused:
            _bind(HttpSettings(port=port))
    assert refused.value.detail == (
        f"cannot listen on 127.0.0.1 port {port}: Address already in use; "
        "--port gives it another, 0 a free one"
    )


@pytest.fixture
def limit_of_1024() -> Iterator[None]:
    """The usual limit of open files, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("limit_of_1024")
@pytest.mark.parametrize(("wanted", "given"), [(10_000, 1024 - OWN_FILES), (768, 768), (10, 10)])
def test_connections_are_at_most_what_the_limit_of_open_files_leaves(wanted: int, given: int) -> None:
    assert within_open_files(HttpSettings(max_connections=wanted)).max_connections == given


@pytest.mark.usefixtures("limit_of_1024")
def test_refused_connections_take_few_of_the_stores_files() -> None:
    settings = within_open_files(HttpSettings(max_connections=10_000))

    async def enter_all() -> list[bool | None]:
        watch = ConnectionWatch(settings)
        loop = asyncio.get_running_loop()
        return [_turned_away(watch, loop) for _ in range(1024)]

    answers = asyncio.run(enter_all())
    held = [answer for answer in answers if answer is not None]
    assert held == [False] * settings.max_connections + [True] * REFUSED_AT_ONCE
    assert len(held) <= 1024 - OWN_FILES + 16


class _Connection:
    def look_at_time(self, now: float) -> None:
        """Nothing is overdue."""


def _turned_away(watch: ConnectionWatch, loop: asyncio.AbstractEventLoop) -> bool | None:
    """Whether a new connection is refused; None when it is closed at once."""
    connection = _Connection()
    try:
        return watch.enter(connection, loop) is not None
    except Unavailable:
        watch.leave(connection)
        return None
