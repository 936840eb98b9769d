"""A name server: takes registrations of those who may, and answers routes.

Owns the rule of who may register, in front of the tables.

Invariants: nobody takes the place of the broker it sits in; without a cluster's secret nobody on another
machine registers, with one nobody without its proof does, and a proof counts once; of two masters of one
name the one of the higher epoch counts. State is only in memory: brokers bring it again within 30 s.

Threads: the event loop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ha_replicator.nameserver.registration import BrokerRegistration
from ha_replicator.nameserver.registration_proof import WINDOW_MS, RegistrationProof, SignedRequest
from ha_replicator.nameserver.route_tables import Registered, RouteTables
from store_native.errors import InvalidRequest

log = logging.getLogger("lakemq.nameserver")


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


class NameServer:
    """Registrations, checked.

    Args:
        tables: What is known.
        secret: The cluster's; None takes brokers of this machine only.
        now_ms: Epoch milliseconds.

    Raises:
        ValueError: The secret is too short.
    """

    def __init__(
        self, tables: RouteTables, secret: bytes | None, now_ms: Callable[[], int] = _epoch_ms
    ) -> None:
        self.tables = tables
        self._proof = None if secret is None else RegistrationProof(secret)
        self._now_ms = now_ms
        # When each sender's last request was made. Older ones are too old to be taken again anyway.
        self._times: dict[str, int] = {}
        # What was said in the log; as many as there are places.
        self._addresses: dict[tuple[str, int], str] = {}

    def register(self, registration: BrokerRegistration, request: SignedRequest) -> Registered:
        """Takes a registration; see :meth:`RouteTables.register`.

        Raises:
            InvalidRequest: NO_PERMISSION; BROKER_CONFLICT while the master of a higher epoch is registered.
        """
        self._check(registration.broker_name, registration.broker_id, request)
        answer = self.tables.register(registration)
        key = (registration.broker_name, registration.broker_id)
        if self._addresses.get(key) != registration.address:
            self._addresses[key] = registration.address
            log.info("broker registered", extra={"fields": _of(key, registration.address)})
        return answer

    def unregister(
        self, broker_name: str, broker_id: int, request: SignedRequest, store_id: str = ""
    ) -> None:
        """Drops a broker at once; another one that has its place by now stays.

        Args:
            broker_name: Its name.
            broker_id: Its id.
            request: The request.
            store_id: Its own, as in its registration.

        Raises:
            InvalidRequest: NO_PERMISSION; BROKER_NOT_EXIST.
        """
        self._check(broker_name, broker_id, request)
        if not self.tables.unregister(broker_name, broker_id, store_id):
            raise InvalidRequest("BROKER_NOT_EXIST", f"{broker_name} with id {broker_id} is not registered")
        address = self._addresses.pop((broker_name, broker_id), "")
        log.info("broker unregistered", extra={"fields": _of((broker_name, broker_id), address)})

    def _check(self, broker_name: str, broker_id: int, request: SignedRequest) -> None:
        if self._proof is not None:
            self._check_proof(self._proof, request)
        elif not request.from_this_machine:
            raise InvalidRequest(
                "NO_PERMISSION",
                "without a cluster's secret brokers register from this machine only: "
                "start all with --cluster-secret-file",
                client=request.client,
            )
        if self.tables.is_pinned(broker_name, broker_id):
            raise InvalidRequest(
                "NO_PERMISSION", f"{broker_name} with id {broker_id} is this broker; it registers itself"
            )

    def _check_proof(self, proof: RegistrationProof, request: SignedRequest) -> None:
        now_ms = self._now_ms()
        made = proof.read(request, now_ms)
        if made is None:
            raise InvalidRequest(
                "NO_PERMISSION",
                "the registration does not prove that it knows the cluster's secret, or the broker's clock "
                f"and this one differ by more than {WINDOW_MS // 60_000} minutes",
            )
        sender, time_ms = made
        if time_ms <= self._times.get(sender, -1):
            raise InvalidRequest("NO_PERMISSION", "this registration was made before the last one: a repeat")
        self._times = {known: at for known, at in self._times.items() if now_ms - at <= 2 * WINDOW_MS}
        self._times[sender] = time_ms


def _of(key: tuple[str, int], address: str) -> dict[str, object]:
    return {"broker": key[0], "id": key[1], "url": address}
