"""The brokers behind name servers, or behind a list: masters and slaves, and what each says of itself.

Owns which addresses are asked, and how the answers are laid out.

Invariants: one that does not answer holds up no other, and has its place in the list all the same; so has one
that only the list of an ordered topic names.

Threads: one for each address, which end with the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lakemq.client import Client, LakeMQError
from lakemq.terminal import output
from store_native.order_conf import OrderConf, newest

ASK_TIMEOUT_S = 3.0
_MOST_AT_ONCE = 16
COLUMNS = (
    "broker_name",
    "broker_id",
    "role",
    "epoch",
    "log_end",
    "confirmed",
    "behind",
    "behind_s",
    "bytes_per_s",
    "endpoint",
    "state",
)
"""Of :func:`table`."""


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """One broker.

    Attributes:
        broker_name: Its name; None: it never answered.
        endpoint: Where it answers; None: a master that nobody knows.
        status: What it says of its replication; None: it does not answer.
        failure: Why it does not.
        order_confs: The lists of the ordered topics it has, by topic; none where it does not say in time.
    """

    broker_name: str | None
    endpoint: str | None
    status: Mapping[str, Any] | None = None
    failure: str | None = None
    order_confs: Mapping[str, OrderConf] = field(default_factory=dict)

    @property
    def is_slave(self) -> bool:
        """Whether it says that it is a slave."""
        return self.status is not None and self.status["role"] == "slave"

    def as_object(self) -> dict[str, Any]:
        """The member as JSON has it; ``unavailable`` says why there is no more of it."""
        said: dict[str, Any] = {"broker_name": self.broker_name, "endpoint": self.endpoint}
        return said | (dict(self.status) if self.status is not None else {"unavailable": self.failure})


def members_of(client: Client) -> list[ClusterMember]:
    """Asks every broker that is known behind a client of several, by name, masters first.

    Raises:
        LakeMQError: No broker is known.
    """
    routes = client.cluster_routes.routes
    routes.failed()  # who is the master is asked for now
    known: list[tuple[str | None, str | None]] = []
    for name, route in sorted(routes.brokers().items()):
        known += [(name, route.master), *((name, slave) for slave in route.slaves)]
    known += [(None, endpoint) for endpoint in routes.unknown()]
    with ThreadPoolExecutor(_MOST_AT_ONCE) as threads:
        members = list(threads.map(lambda place: _asked(*place), known))
    return members + _only_listed(members)


def _only_listed(members: Sequence[ClusterMember]) -> list[ClusterMember]:
    """The brokers that no route has, and that the list of an ordered topic names."""
    known = {member.broker_name for member in members}
    confs: dict[str, OrderConf | None] = {}
    for member in members:
        for topic, conf in member.order_confs.items():
            confs[topic] = newest((confs.get(topic), conf))
    missing: dict[str, list[str]] = {}
    for topic, newest_conf in sorted(confs.items()):
        for name in () if newest_conf is None else newest_conf.write_queue_nums.keys() - known:
            missing.setdefault(name, []).append(topic)
    return [
        ClusterMember(name, None, failure=f"no route has it, and {_named_by(topics)} it")
        for name, topics in sorted(missing.items())
    ]


def _named_by(topics: Sequence[str]) -> str:
    more = f" and of {len(topics) - 1} more" if len(topics) > 1 else ""
    return f"the list of ordered topic {topics[0]}{more} names"


def table(members: Sequence[ClusterMember]) -> str:
    """The members as a person reads them."""
    behind = {
        (member.broker_name, slave["broker_id"]): slave
        for member in members
        if member.status is not None
        for slave in member.status["slaves"]
    }
    rows = []
    for member in members:
        said = member.status or {}
        lag = behind.get((member.broker_name, said.get("broker_id")), {}) if member.is_slave else {}
        rows.append(
            [
                *(member.broker_name, *(said.get(name) for name in ("broker_id", "role", "epoch"))),
                *(said.get("appended"), said.get("confirmed")),
                *(lag.get(name) for name in ("lag_bytes", "lag_s", "bytes_per_s")),  # of the same release
                *(member.endpoint, state_of(member)),
            ]
        )
    return output.table(COLUMNS, rows, widest=output.WHOLE_NAMES)


def state_of(member: ClusterMember) -> str:
    """Says in words how a member is."""
    status = member.status
    if status is None:
        return str(member.failure)
    if status.get("read_only") is not None:
        return f"TAKES NO MORE MESSAGES: {status['read_only']}"
    if status.get("log_parted") is not None:
        return f"NOT READ IN ITS MASTER'S PLACE: {status['log_parted']}"
    if member.is_slave:
        return (
            "follows" if status["following"] else f"does not follow: {status['failure'] or 'not tried yet'}"
        )
    if status["ha_port"] is None:
        return "takes no slaves"
    follow = len(status["slaves"])
    reach = "" if status["in_reach"] else ", NOT ENOUGH IN REACH"
    return f"{follow} slave{'' if follow == 1 else 's'} follow{'s' if follow == 1 else ''}{reach}"


def _asked(broker_name: str | None, endpoint: str | None) -> ClusterMember:
    if endpoint is None:
        return ClusterMember(broker_name, None, failure="no master is known")
    try:
        with Client(endpoint, timeout_s=ASK_TIMEOUT_S, retries=0, routed=False) as broker:
            return ClusterMember(
                broker_name, endpoint, broker.replication(), order_confs=_order_confs(broker)
            )
    except LakeMQError as error:
        return ClusterMember(broker_name, endpoint, failure=f"does not answer: {error.detail}")


def _order_confs(broker: Client) -> dict[str, OrderConf]:
    with suppress(LakeMQError):
        return {topic.topic: topic.order_conf for topic in broker.topics() if topic.order_conf is not None}
    return {}
