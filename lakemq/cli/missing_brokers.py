"""Brokers that no route has, and that the list of an ordered topic names.

Owns how they are found and named: what they hold is not shown, and nobody else says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakemq.client import Client


def missing_brokers(client: Client, topic: str, known: Collection[str]) -> list[str]:
    """Says which brokers of an ordered topic's list are not among those that are known to hold it.

    Args:
        client: Of several brokers.
        topic: The topic.
        known: Their names.
    """
    conf = client.cluster_routes.routes.known_order_conf(topic)
    named = [] if conf is None else sorted(conf.write_queue_nums.keys() - known)
    return [
        f"broker {name} is away: the list of topic {topic} names it, and no route to the topic does"
        for name in named
    ]


def missing_of(client: Client, topics: Iterable[str], known: Collection[str]) -> list[str]:
    """As :func:`missing_brokers`, of several topics, which are asked for; each broker is named once."""
    found: dict[str, str] = {}
    for topic in topics:
        client.cluster_routes.routes.holders(topic)
        for what in missing_brokers(client, topic, {*known, *found}):
            found[what.split()[1]] = what
    return list(found.values())
