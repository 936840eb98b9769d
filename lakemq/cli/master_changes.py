"""Who is the master of each broker name of a cluster on this machine, and when that changes.

Owns the question to the name server, and the words for a change.

Invariants: a name server that does not answer is no change.
"""

from __future__ import annotations

from lakemq.client import LakeMQError
from lakemq.client.broker_table import MASTER_ID
from lakemq.client.transport import Transport, path_of
from lakemq.local_cluster import LocalCluster, Member

_ASK_TIMEOUT_S = 1.0


class MasterChanges:
    """Watches the masters.

    Args:
        cluster: It runs.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        # Of a client, cluster() is a broker's; this is the name server's own.
        self._name_server = Transport(cluster.endpoint, timeout_s=_ASK_TIMEOUT_S, retries=0, pool_size=1)
        self._masters = {
            member.broker_name: member.endpoint
            for member in cluster.members
            if member.role.endswith("master")
        }

    def close(self) -> None:
        """Closes the connection."""
        self._name_server.close()

    def news(self) -> list[str]:
        """Says what changed since the last call."""
        try:
            brokers = self._name_server.call("GET", path_of("cluster")).read(lambda said: said["brokers"])
        except LakeMQError:
            return []
        said = []
        for broker in brokers:
            name, master = str(broker["broker_name"]), broker["addresses"].get(str(MASTER_ID))
            if master is None or master == self._masters.get(name):
                continue
            self._masters[name] = master
            who = next(
                (member.name for member in self._cluster.members if member.endpoint == master), "another"
            )
            said.append(f"{name}: {who} is the master now, {master}, epoch {broker['epoch']}")
        return said

    def advice(self, ended: Member) -> str:
        """Says what puts another broker in the place of one that has ended; empty where none is missing."""
        if self._masters.get(ended.broker_name) != ended.endpoint:
            return ""
        slaves = [
            member
            for member in self._cluster.members
            if member.broker_name == ended.broker_name and member is not ended and member.process.alive
        ]
        if not slaves:
            return ""
        promote = f"lakemq ha promote --endpoint {slaves[0].endpoint} --role {self._cluster.master_role}"
        return f"; {promote} makes {slaves[0].name} the master"
