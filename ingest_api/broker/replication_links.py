"""The connections between this broker and the others of its name.

Owns which protocol they speak and what they say of this broker, the listener for slaves with the rate that
those share, and the follower of a master. When there is which of the two, replication.py says.

Threads: the event loop.
"""

from __future__ import annotations

import errno
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence

from ha_replicator.identity import BrokerIdentity, BrokerRole, HaProtocol
from ha_replicator.link_limits import LinkLimits
from ha_replicator.link_opening import LinkOpening
from ha_replicator.link_place import LinkPlace
from ha_replicator.links import LinkToMaster, LinkToSlave
from ha_replicator.master.catch_up import CatchUp, CatchUpRate
from ha_replicator.master.link import MasterLink
from ha_replicator.master.replicas import Replicas
from ha_replicator.rocketmq.master_link import RocketMQMasterLink
from ha_replicator.rocketmq.slave_link import RocketMQSlaveLink
from ha_replicator.slave.link import SlaveLink
from ha_replicator.transport.follower import Follower
from ha_replicator.transport.listener import ReplicationListener
from ha_replicator.transport.log_memory import ThreadedLogMemory
from ha_replicator.transport.wakeups import Wakeups
from ha_replicator.wire.credentials import Credentials
from ingest_api.broker.settings import BrokerSettings
from lakemq.tls.files import serving_context
from store_native import Store
from store_native.errors import InvalidRequest

log = logging.getLogger("lakemq.replication")


class ReplicationLinks:
    """Makes both ends of them.

    Args:
        settings: Of the broker.
        store: Whose log goes over them.
        identity: This broker's.
        wakeups: Of those that wait for the log.
    """

    def __init__(
        self, settings: BrokerSettings, store: Store, identity: BrokerIdentity, wakeups: Wakeups
    ) -> None:
        self._settings = settings.replication
        self._log = store.replicated_log()
        self._identity = identity
        self._wakeups = wakeups
        self._flush = settings.store.flush
        self._shape = shape_of(self._log.file_size(), store.delay_levels())
        self._protocol = HaProtocol(self._settings.ha_protocol)
        self._credentials = Credentials(settings.cluster_secret)
        self._limits = LinkLimits(max_range_bytes=self._log.file_size())
        self._memory = ThreadedLogMemory(self._log)
        self._tls = serving_context(settings.tls)

    @property
    def speak_of_epochs(self) -> bool:
        """Whether master and slave compare their epochs; RocketMQ's protocol has none."""
        return self._protocol is HaProtocol.LAKEMQ

    def replicas(self, role: BrokerRole) -> Replicas:
        """Returns the slaves of a broker of this role: none yet."""
        needed = self._settings.min_in_sync if role is BrokerRole.SYNC_MASTER else 0
        return Replicas(self._log, needed=needed, silence_s=self._limits.housekeeping_s)

    async def listen(
        self, host: str, replicas: Replicas, *, on_change: Callable[[], None], on_epoch: Callable[[int], None]
    ) -> ReplicationListener | None:
        """Listens for slaves; None where the broker has no port for them.

        Args:
            host: Where.
            replicas: Takes those that come.
            on_change: Called when slaves came, went or reported.
            on_epoch: Called with the epoch above its own that a slave heard of.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the port is taken.
        """
        port = self._settings.ha_port
        if port < 0:
            return None
        rate = CatchUpRate(self._settings.catch_up_mib_per_s * (1 << 20), replicas)
        listener = ReplicationListener(
            lambda local_peer, now: self._to_slave(rate, local_peer, now),
            replicas,
            self._wakeups,
            on_change=on_change,
            on_epoch=on_epoch,
            tls=self._tls,
        )
        try:
            await listener.listen(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno == errno.EADDRINUSE:
                reason += "; --ha-port gives this broker another, 0 a free one"
            raise InvalidRequest(
                "ARGUMENT_ILLEGAL", f"cannot listen for slaves on {host} port {port}: {reason}"
            ) from error
        log.info("listening for slaves", extra={"fields": {"host": host, "port": listener.port}})
        return listener

    def follower(
        self, find_master: Callable[[], Awaitable[LinkPlace]], on_change: Callable[[], None]
    ) -> Follower:
        """Returns what follows the master that ``find_master`` finds, when it is run."""
        return Follower(self._to_master, self._log, find_master, self._wakeups, on_change=on_change)

    def _to_slave(self, rate: CatchUpRate, local_peer: bool, now: float) -> LinkToSlave:
        catch_up = CatchUp(rate, self._memory)
        if self._protocol is HaProtocol.ROCKETMQ:
            return RocketMQMasterLink(self._log, now=now, limits=self._limits, catch_up=catch_up)
        opening = self._opening(local_peer, now)
        return MasterLink(opening, self._log, flush=self._flush, catch_up=catch_up)

    def _to_master(self, local_peer: bool, now: float) -> LinkToMaster:
        if self._protocol is HaProtocol.ROCKETMQ:
            return RocketMQSlaveLink(self._log, now=now, limits=self._limits)
        return SlaveLink(self._opening(local_peer, now), self._log)

    def _opening(self, local_peer: bool, now: float) -> LinkOpening:
        return LinkOpening(
            self._identity,
            self._credentials,
            shape=self._shape,
            limits=self._limits,
            local_peer=local_peer,
            nonce=secrets.token_hex(16),
            now=now,
        )


def shape_of(file_size: int, delay_levels_ms: Sequence[int]) -> str:
    """Says in words what the stores of a master and its slaves must have alike."""
    levels = " ".join(str(level) for level in delay_levels_ms)
    return f"log files of {file_size} bytes, delay levels {levels} ms"
