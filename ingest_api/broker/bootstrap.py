"""Gives a slave that has no store its master's, before its store is opened.

Owns what the connection for it says of a broker whose store is not open.

Threads: the event loop.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from ha_replicator.identity import BrokerIdentity
from ha_replicator.link_limits import LinkLimits
from ha_replicator.link_opening import LinkOpening
from ha_replicator.master_address import MasterAddress
from ha_replicator.transport.bootstrapper import Bootstrapper
from ha_replicator.wire.credentials import Credentials
from ingest_api.broker.replication_links import shape_of
from ingest_api.broker.settings import BrokerSettings
from lakemq.duration import parse_ms
from lakemq.tls.trust import Trust


async def store_of_master(settings: BrokerSettings) -> None:
    """Makes the store of a slave whose master's log does not begin at 0 any more; else does nothing.

    Raises:
        LakeMQError: STORE_LOCKED, DISK_FULL.
    """
    replication = settings.replication
    if replication.role != "slave" or not replication.master or replication.ha_protocol != "lakemq":
        return
    me = BrokerIdentity(settings.cluster, settings.broker_name, replication.broker_id)
    file_size = settings.store.commitlog_file_size
    shape = shape_of(file_size, [parse_ms(level) for level in settings.store.delay_levels.split()])
    credentials = Credentials(settings.cluster_secret)

    limits = LinkLimits(max_range_bytes=file_size)

    def opening(local_peer: bool, now: float) -> LinkOpening:
        return LinkOpening(
            me,
            credentials,
            shape=shape,
            limits=limits,
            local_peer=local_peer,
            nonce=secrets.token_hex(16),
            now=now,
        )

    trust = Trust(settings.tls.ca)
    find_master = MasterAddress([replication.master], me, trust, tls_at_given=settings.tls.is_given).find
    await Bootstrapper(Path(settings.store.path), file_size, opening, find_master).run()
