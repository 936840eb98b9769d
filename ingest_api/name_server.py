"""Runs a name server.

Owns what a name server's process is made of: the tables, the scan for silent brokers, and the front door.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from ha_replicator.nameserver import HeartbeatScan, NameServer, RouteTables
from ingest_api import process
from ingest_api.advertised import advertised_url
from ingest_api.http.name_server_app import NameServerDoor
from ingest_api.process_settings import NameServerSettings
from lakemq.tls.files import warn_of_address


def serve_names(settings: NameServerSettings, announce: Callable[[str], None]) -> int:
    """Serves until a signal says stop.

    Args:
        settings: Checked settings.
        announce: Gets the one line that says where it answers, once it does.

    Returns:
        The exit status: 0 after a graceful stop, 130 when Ctrl-C came before it was ready.

    Raises:
        LakeMQError: The port is taken, the certificate unusable, or the secret none (ARGUMENT_ILLEGAL).
    """

    async def build(place: process.Place) -> _ServedNames:
        return _ServedNames(settings, place)

    return process.run(settings, build, announce)


class _ServedNames:
    """A name server and its front door."""

    def __init__(self, settings: NameServerSettings, place: process.Place) -> None:
        names = NameServer(RouteTables(settings.heartbeat_timeout_s), settings.secret())
        self._scan = HeartbeatScan(names.tables)
        door = NameServerDoor(names, place.http, place.scheme, settings.log.slow_request_ms, self.close)
        self.app = door.app
        self.begin_stop = door.begin_stop
        if settings.tls.cert:
            told = advertised_url(settings.http.advertised_address, place.host, place.port, place.scheme)
            warn_of_address(settings.tls, str(urlsplit(told).hostname))
        self.ready_line = f"lakemq nameserver ready on {place.url}"

    async def start(self) -> None:
        self._scan.start()

    async def close(self) -> None:
        await self._scan.stop()
