"""The HTTP client of LakeMQ: typed, synchronous, pooled, safe to share between threads.

Owns the public names of the package. The command line, the Spark source over HTTP and the Spark
sink all call the broker through :class:`Client`; nothing else in the project speaks HTTP to it.

    client.py       the endpoints, and the calls of the three modules named *_api.py
    transport.py    one request: pool, problem -> error (errors.py)
    repeats.py      when a call is made again, and what its attempts come to
    deadline.py     the time one attempt may take in all
    compression.py  how requests are compressed on their way
    forks.py        a forked process has connections and senders of its own
    produce_api.py  the calls that store messages
    pull_api.py     the calls that read them
    admin_api.py    topics, groups, offsets, leases, the cluster
    endpoint.py     the brokers' addresses: option, variable, default
    routes.py       which brokers there are and who holds a topic, from name servers (topic_route.py)
    order_change.py gives an ordered topic its list of brokers
    recent.py       the topics of which that is remembered
    broker_table.py who answers under a broker's name, and which master counts
    cluster.py      one client for each broker name; where a send goes when a broker fails
    open_sends.py   who may have stored what got no answer
    scope.py        which brokers any other call goes to
    broker_choice.py     whose turn it is, who is avoided, what an Idempotency-Key means
    broker_transport.py  one broker name: its master, its slaves for reads
    group_lease.py  one driver per group: taken, renewed, given back
    group_leases.py the same at several brokers
    message.py      a message to send, a message read
    tag_expression.py  has a broker read a tag expression before what it is for begins
    results.py      what the calls answer
    arrow.py        Arrow streams in and out (imports pyarrow only when used)
"""

from __future__ import annotations

from lakemq.client.client import Client
from lakemq.client.errors import OutcomeUnknown
from lakemq.client.message import Message, ReceivedMessage
from lakemq.client.order_change import OrderChange, OrderedBroker
from lakemq.client.results import (
    ArrowPull,
    BatchResult,
    CommitResult,
    GroupConfig,
    Lease,
    MessageQueue,
    OffsetReset,
    PullResult,
    QueueBounds,
    QueueRange,
    SendResult,
    TopicConfig,
)
from store_native.errors import (
    Closed,
    DataCorrupt,
    InternalError,
    InvalidRequest,
    LakeMQError,
    Unavailable,
)
from store_native.order_conf import OrderConf

__all__ = [
    "ArrowPull",
    "BatchResult",
    "Client",
    "Closed",
    "CommitResult",
    "DataCorrupt",
    "GroupConfig",
    "InternalError",
    "InvalidRequest",
    "LakeMQError",
    "Lease",
    "Message",
    "MessageQueue",
    "OffsetReset",
    "OrderChange",
    "OrderConf",
    "OrderedBroker",
    "OutcomeUnknown",
    "PullResult",
    "QueueBounds",
    "QueueRange",
    "ReceivedMessage",
    "SendResult",
    "TopicConfig",
    "Unavailable",
]
