"""The name server: which brokers live and which topics they hold; and how a broker registers there.

registration.py        what a broker says of itself; registration_proof.py that it belongs to the cluster
registrar.py           the broker's side: keeps it registered
name_server.py         the name server's side: who may register
route_tables.py        what is registered; heartbeat_scan.py drops who is silent
"""

from ha_replicator.nameserver.heartbeat_scan import HeartbeatScan
from ha_replicator.nameserver.name_server import NameServer
from ha_replicator.nameserver.registrar import Registrar, RegistrationStatus
from ha_replicator.nameserver.registration import BrokerRegistration, QueueData
from ha_replicator.nameserver.registration_proof import SignedRequest
from ha_replicator.nameserver.route_tables import BrokerData, Registered, Route, RouteTables

__all__ = [
    "BrokerData",
    "BrokerRegistration",
    "HeartbeatScan",
    "NameServer",
    "QueueData",
    "Registered",
    "Registrar",
    "RegistrationStatus",
    "Route",
    "RouteTables",
    "SignedRequest",
]
