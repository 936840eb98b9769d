"""Runs a broker.

Owns what a broker's process is made of: the core on its store, and the front door on the core.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from ingest_api import process
from ingest_api.advertised import advertised_url
from ingest_api.broker.bootstrap import store_of_master
from ingest_api.broker.broker import Broker
from ingest_api.http.app import create_app
from ingest_api.http.front_door import FrontDoor
from ingest_api.settings import Settings
from lakemq.tls.files import warn_of_address

log = logging.getLogger("lakemq.broker")


def serve(settings: Settings, announce: Callable[[str], None]) -> int:
    """Serves until a signal says stop.

    Args:
        settings: Checked settings.
        announce: Gets the one line that says where the broker answers, once it does.

    Returns:
        The exit status: 0 after a graceful stop, 130 when Ctrl-C came before the broker was ready.

    Raises:
        LakeMQError: The port is taken or the certificate unusable (ARGUMENT_ILLEGAL), or the store does not
            open.
    """

    async def prepare() -> None:
        await store_of_master(settings.broker)

    async def build(place: process.Place) -> _ServedBroker:
        return _ServedBroker(settings, place)

    return process.run(settings, build, announce, prepare)


class _ServedBroker:
    """A broker and its front door."""

    def __init__(self, settings: Settings, place: process.Place) -> None:
        settings = settings.model_copy(update={"http": place.http})
        advertised = advertised_url(settings.http.advertised_address, place.host, place.port, place.scheme)
        if settings.tls.cert:
            warn_of_address(settings.tls, str(urlsplit(advertised).hostname))
        self._host = place.host
        self._broker = broker = Broker(settings.broker, advertised, (_host_in_ids(place.host), place.port))
        log.info("store open", extra={"fields": {"path": settings.store.path, **broker.recovery}})
        door = FrontDoor(broker, settings, place.scheme)
        self.app = create_app(door)
        self.begin_stop = door.begin_stop
        self.ready_line = f"lakemq broker ready on {place.url} store={settings.store.path}"

    async def start(self) -> None:
        await self._broker.start(self._host)

    async def close(self) -> None:
        if not self._broker.stopped:
            await self._broker.stop()
        if self._broker.stop_failure is not None:
            raise self._broker.stop_failure


def _host_in_ids(host: str) -> str:
    """The address message ids carry; a wildcard is none, and ids need some address."""
    return "127.0.0.1" if ip_address(host).is_unspecified else host
