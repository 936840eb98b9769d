"""What a broker tells a name server about itself.

Owns the shape of a registration. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

from store_native.order_conf import OrderConf


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of one topic a broker holds.

    Attributes:
        read_queue_nums: Queues 0..n-1 that consumers read.
        write_queue_nums: Queues 0..n-1 that producers write.
        perm: Sum of 4 (read), 2 (write) and 1 (inherit).
        order_conf: The list of brokers that the broker has with the topic; None: it is not ordered there.
    """

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order_conf: OrderConf | None = None


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registration of one broker.

    Attributes:
        cluster: The cluster it belongs to.
        broker_name: Master and slaves of one log share it.
        broker_id: 0 is the master.
        address: Where its HTTP API answers, ``http://host:port``.
        data_version: Changes whenever ``topics`` does; the same one again is a mere heartbeat.
        topics: What it holds, or None for a heartbeat without the table.
        replication_address: Where slaves connect, if it has one.
        store_id: Of two brokers under one name and id the first counts while it lives; it is known by it.
        heartbeat_s: How often it registers when nothing changes; 0: it does not say.
        epoch: Of a master: its own. The one of the higher counts, of two that answer to one name.
        log_parted: Of a slave: its log is not its master's, and no route has it.
    """

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    data_version: str
    topics: dict[str, QueueData] | None = None
    replication_address: str | None = None
    epoch: int = 0
    store_id: str = ""
    heartbeat_s: float = 0.0
    log_parted: bool = False
