"""The name server's tables: which brokers live, which topics they hold, who answers for a topic."""

from ha_replicator.nameserver.registration import BrokerRegistration, QueueData
from ha_replicator.nameserver.route_tables import BrokerData, Registered, Route, RouteTables

__all__ = ["BrokerData", "BrokerRegistration", "QueueData", "Registered", "Route", "RouteTables"]
