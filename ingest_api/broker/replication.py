"""The broker's part in replication: its role, who follows it, whom it follows, and its promotion.

Owns the role of the running broker, and when it has a listener for slaves or a follower of a master; those
are made in replication_links.py, and what is said between them is ha_replicator's.

Invariants: one of listener and follower at a time follows from the role; a master that hears of a higher
epoch from a slave that has proved who it is becomes a slave at once, before it says anything else. A
synchronous master confirms nothing that not enough slaves have.

Threads: the event loop; a new epoch, which is synced, begins on a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ha_replicator.identity import MAX_EPOCH_STEP, BrokerIdentity, BrokerRole, next_epoch
from ha_replicator.links import LinkToSlave
from ha_replicator.living_master import LivingMaster, LivingMasters
from ha_replicator.log_age import stored_at_ms
from ha_replicator.master.replicas import Replicas
from ha_replicator.master_address import MasterAddress
from ha_replicator.transport.follower import Follower
from ha_replicator.transport.listener import ReplicationListener
from ha_replicator.transport.wakeups import Wakeups
from ingest_api.broker.heard_master import HeardMaster, Promotion
from ingest_api.broker.mastership import not_master
from ingest_api.broker.parted_log import PartedLog
from ingest_api.broker.replication_links import ReplicationLinks
from ingest_api.broker.replication_status import ReplicationStatus, SlaveStatus
from ingest_api.broker.settings import BrokerSettings
from ingest_api.broker.store_events import StoreEvents
from lakemq.tls.trust import Trust
from store_native import Store
from store_native.errors import InvalidRequest, Unavailable

log = logging.getLogger("lakemq.replication")


class ReplicationService:
    """Runs the broker's part.

    Args:
        settings: Of the broker.
        store: Opened for the role.
        events: Say when the store moved.
        trust: Whose certificates are believed.
        replicas_changed: Called when slaves came, went or reported.
        role_changed: Called after the role changed.
        master_heard: Called after the master that is followed said something, or is gone.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        events: StoreEvents,
        trust: Trust,
        *,
        replicas_changed: Callable[[], None],
        role_changed: Callable[[], None],
        master_heard: Callable[[], None],
    ) -> None:
        self._settings = settings.replication
        self._store = store
        self._log = store.replicated_log()
        self._loop = asyncio.get_running_loop()
        self._replicas_changed = replicas_changed
        self._role_changed = role_changed
        self._master_heard = master_heard
        self._host = ""
        self.role = BrokerRole(self._settings.role)
        self.identity = BrokerIdentity(settings.cluster, settings.broker_name, self._settings.broker_id)
        self._promoting = asyncio.Lock()
        self._wakeups = Wakeups(events.listen)
        self._links = ReplicationLinks(settings, store, self.identity, self._wakeups)
        self._replicas = self._links.replicas(self.role)
        events.subscribe(self._moved)
        self._listener: ReplicationListener | None = None
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._addresses = MasterAddress(
            [self._settings.master], self.identity, trust, tls_at_given=settings.tls.is_given
        )
        self._living = LivingMasters(
            self._addresses, self._settings.master, settings.nameservers, self.identity, trust
        )
        self._heard = HeardMaster()
        self._parted = PartedLog(self._log)
        self._look_at_log()
        self._shown_before = self._log.marks()[1] if self.asks_replicas else 0

    @property
    def is_master(self) -> bool:
        """Whether this broker takes messages."""
        return self.role is not BrokerRole.SLAVE

    @property
    def asks_replicas(self) -> bool:
        """Whether a message counts only when slaves have it."""
        return self.role is BrokerRole.SYNC_MASTER

    @property
    def master(self) -> str | None:
        """Where a slave is configured to find its master."""
        return self._settings.master or None

    @property
    def followed(self) -> str | None:
        """The endpoint of the master that is followed now; None while there is none, or none that has one."""
        link = self._follower.link if self._follower else None
        return self._addresses.found_at if link is not None and link.following else None

    @property
    def is_alone(self) -> bool:
        """Whether this is a slave that follows nobody, and could keep something for the next master."""
        link = self._follower.link if self._follower else None
        is_following = link is not None and link.following
        could = not self.is_master and not is_following and self._links.speak_of_epochs
        return could and self.log_parted is None

    @property
    def log_parted(self) -> str | None:
        """Why this slave's log is not its master's, and is not read in its place; None: it may be."""
        return self._parted.reason

    def _look_at_log(self) -> bool:
        is_slave = not self.is_master and self._links.speak_of_epochs
        return self._parted.look(is_slave=is_slave, follower=self._follower)

    def check_master(self) -> None:
        """Returns where this broker may change topics, groups, offsets and leases.

        Raises:
            Unavailable: NOT_MASTER; the text and ``master`` in its context name the master.
        """
        if not self.is_master:
            raise not_master("takes no changes", self.followed or self.master)

    @property
    def may_be_behind(self) -> bool:
        """Whether this master may lack the end of what was shown in its place.

        A synchronous one has all of it in its log, but cannot say how far it counted until its slaves have
        it: after its promotion, and after its start.
        """
        if self._shown_before and self._store.watermarks()[2] >= self._shown_before:
            self._shown_before = 0
        return self._shown_before > 0

    @property
    def offsets_may_be_behind(self) -> bool:
        """Whether groups may have committed more than this broker shows: as a slave, too."""
        return not self.is_master or self.may_be_behind

    @property
    def address(self) -> str | None:
        """Where slaves connect, ``host:port``; None where they do not."""
        if self._listener is None:
            return None
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._listener.port}"

    def in_reach(self) -> bool:
        """Whether enough slaves can have a message soon."""
        return self._replicas.in_reach(self._loop.time())

    def to_read_from(self) -> int:
        """Returns the id of a slave that readers are sent to, 0 without one; a slave's is its own."""
        if not self.is_master:
            return self.identity.broker_id
        return self._replicas.to_read_from(self._loop.time()) or 0

    async def start(self, host: str) -> None:
        """Listens for slaves, or follows the master, as the role says.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, the replication port is taken.
        """
        self._host = host
        if self.is_master:
            self._listener = await self._listen(self._replicas)
        else:
            self._follow()

    async def stop(self) -> None:
        """Ends all connections."""
        await self._stop_following()
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    async def promote(self, role: BrokerRole, *, force: bool = False) -> Promotion:
        """Makes this slave the master of a new epoch.

        The caller answers for that the old master is gone, or hears of the epoch; a synchronous one
        confirms nothing without its slaves, not the end of its own log either.

        Args:
            role: What it becomes.
            force: Also where this slave is known to lack what its master had confirmed, or its master
                answers: what only that has is lost then.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL, it is a master already, its replication port is taken, it lacks
                what was confirmed, or its master answers; nothing has changed.
            Unavailable: SERVICE_NOT_AVAILABLE, a higher epoch came in between.
        """
        async with self._promoting:
            if self.is_master or role is BrokerRole.SLAVE:
                what = f"{self.role.value} of epoch {self._log.role()[1]} already"
                detail = f"this broker is {what}, not a slave to promote"
                raise InvalidRequest("ARGUMENT_ILLEGAL", detail)
            if role is BrokerRole.SYNC_MASTER and self._settings.ha_port < 0:
                raise InvalidRequest(
                    "ARGUMENT_ILLEGAL",
                    "a synchronous master needs a port for its slaves: start with --ha-port",
                )
            first, appended, _, _ = self._log.marks()
            if not force:
                seen = self._log.role()[1]
                held = self._log.epochs()
                self._heard.refuse_loss(first, appended, seen, held[-1][0] if held else seen)
            living = await self._living.find()
            if living is not None and not force:
                self._heard.refuse_beside(living, appended)
            await self._stop_following()
            if self._listener is not None:
                # Of the master that it was, until it heard of a higher epoch.
                await self._listener.close()
                self._listener = None
            replicas = self._links.replicas(role)
            try:
                # The port first: what cannot be served is not promoted. Until then its links refuse.
                listener = await self._listen(replicas)
                try:
                    promotion = await self._begin_epoch(role, living)
                except BaseException:
                    if listener is not None:
                        await listener.close()
                    raise
            except BaseException:
                self._follow()
                raise
            self.role, self._replicas, self._listener = role, replicas, listener
            self._look_at_log()
            self._role_changed()
        return promotion

    async def _begin_epoch(self, role: BrokerRole, beside: LivingMaster | None) -> Promotion:
        seen = self._log.role()[1]
        if beside is not None:  # one of a lower epoch would have to give way to it
            seen = max(seen, min(beside.epoch, seen + MAX_EPOCH_STEP))
        epoch = next_epoch(seen, self.identity.broker_id)
        begins_at = await asyncio.to_thread(self._log.become_master, epoch, role is BrokerRole.SYNC_MASTER)
        self._shown_before = begins_at
        promotion = self._heard.promotion(epoch, begins_at, self._loop.time())
        said = {"epoch": epoch, "offset": begins_at, "role": role.value, "master_end": promotion.master_end}
        lacking = {"lacks_bytes": promotion.lacks_bytes, "master_silent_s": promotion.silent_s}
        log.warning("promoted", extra={"fields": {**said, **lacking}})
        return promotion

    def status(self) -> ReplicationStatus:
        """Returns what the broker is now."""
        now = self._loop.time()
        first, appended, flushed, confirmed = self._log.marks()
        follower = self._follower
        link = follower.link if follower else None
        return ReplicationStatus(
            cluster=self.identity.cluster,
            broker_name=self.identity.broker_name,
            broker_id=self.identity.broker_id,
            role=self.role.value,
            epoch=self._log.role()[1],
            epochs=self._log.epochs(),
            first_offset=first,
            appended=appended,
            flushed=flushed,
            confirmed=confirmed,
            ha_port=self._listener.port if self._listener else None,
            master=self.master,
            min_in_sync=self._replicas.needed,
            in_reach=self.in_reach(),
            following=link is not None and link.following,
            failure=follower.last_failure if follower else None,
            log_parted=self.log_parted,
            read_only=self._store.poisoned,
            master_end=None if self.is_master else self._heard.end,
            slaves=[self._slave_status(link, now) for link in [*self._replicas.links]],
        )

    def _slave_status(self, link: LinkToSlave, now: float) -> SlaveStatus:
        lag_bytes = link.lag()
        lag_s: float | None = 0.0
        if lag_bytes:
            stored = stored_at_ms(self._log, link.acked)
            lag_s = None if stored is None else round(max(0.0, time.time() - stored / 1000), 3)
        return SlaveStatus(
            broker_id=link.broker_id,
            acked=link.acked,
            lag_bytes=lag_bytes,
            lag_s=lag_s,
            bytes_per_s=round(link.throughput.bytes_per_s(now), 1),
            silent_s=round(now - link.acked_at, 3),
        )

    def _moved(self) -> bool:
        self._wakeups.wake()
        return self._wakeups.wanted

    async def _listen(self, replicas: Replicas) -> ReplicationListener | None:
        return await self._links.listen(
            self._host, replicas, on_change=self._replicas_changed, on_epoch=self._step_down
        )

    def _follow(self) -> None:
        if not self.master:
            log.warning("this slave is configured with no master: it only serves what it has")
            return
        self._follower = self._links.follower(self._addresses.find, self._followed)
        self._following = self._loop.create_task(self._follower.run())

    def _followed(self) -> None:
        link = self._follower.link if self._follower else None
        if link is not None and link.master_end is not None:
            self._heard.note(link.master_end, self._loop.time())
        if self._look_at_log():
            if self.log_parted is not None:
                log.error(
                    "this slave is not read in its master's place", extra={"fields": {"why": self.log_parted}}
                )
            self._role_changed()
        self._master_heard()

    async def _stop_following(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        self._follower = None

    def heard_of_epoch(self, epoch: int) -> None:
        """Becomes a slave where another broker is the master of a higher epoch."""
        if epoch > self._store.epoch:
            self._step_down(epoch)

    def _step_down(self, epoch: int) -> None:
        """Becomes a slave: another broker is the master of a higher epoch."""
        if not self.is_master:
            return
        # First of all nothing more is taken, and no sender gets an answer that says it is safe.
        self.role = BrokerRole.SLAVE
        self._role_changed()
        try:
            self._log.become_slave(epoch)
        except Unavailable as error:
            log.warning("a higher epoch came in between", extra={"fields": {"reason": error.detail}})
        if self._look_at_log():
            self._role_changed()
        self._wakeups.wake_all()
        log.error(
            "this broker is the master no more: restart it as a slave of the new one",
            extra={"fields": {"epoch": epoch}},
        )
