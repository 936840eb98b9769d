"""How far a group is behind, queue by queue, at one broker or at all.

Owns the rows that ``lakemq group`` shows of it, and what is said of brokers that do not answer.
"""

from __future__ import annotations

import sys
from typing import Any

from lakemq.cli.missing_brokers import missing_of
from lakemq.client import Client, InvalidRequest, Unavailable

_BEHIND = (
    "these offsets may be behind: they are a slave's (what is committed there it keeps aside for the next "
    "master), or of a promoted master whose slaves do not have its log yet"
)


def consumer_lag(
    client: Client, group: str, only_topic: str | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Returns one row per queue a group has committed: offset, the queue's end, and the lag.

    Of several brokers one that is away is named on standard error and left out; how many are comes second.

    Raises:
        Unavailable: No broker answers.
    """
    rows, away = lag_and_away(client, group, only_topic)
    if away and not rows:
        raise away[0]
    for error in away:
        print(f"lakemq: left out: {error}", file=sys.stderr)
    return rows, len(away)


def lag_and_away(
    client: Client, group: str, only_topic: str | None = None
) -> tuple[list[dict[str, Any]], list[Unavailable]]:
    """Returns the rows of the brokers that answer, and what became of asking the others.

    A broker that no route has is one of the others where the list of an ordered topic names it: a topic that
    the group has committed, or where it has none, any.

    Raises:
        InvalidRequest: GROUP_NOT_EXIST, no broker has the group.
    """
    if not client.is_cluster():
        before = client.slave_answers
        of_one = _lag_at(client, group, only_topic)
        if client.slave_answers > before:
            print(f"lakemq: {_BEHIND}", file=sys.stderr)
        return of_one, []
    rows: list[dict[str, Any]] = []
    missing: list[InvalidRequest] = []
    away: list[Unavailable] = []
    brokers = client.brokers()
    for name, broker in brokers.items():
        of_slaves = broker.slave_answers
        try:
            rows += [{"broker_name": name, **row} for row in _lag_at(broker, group, only_topic)]
            if broker.slave_answers > of_slaves:
                print(f"lakemq: broker {name}: {_BEHIND}", file=sys.stderr)
        except Unavailable as error:
            away.append(error)
        except InvalidRequest as error:
            if error.code != "GROUP_NOT_EXIST":
                raise
            missing.append(error)
    topics = {row["topic"] for row in rows} or {topic.topic for topic in client.topics() if topic.order_conf}
    wanted = topics if only_topic is None else {only_topic}
    away += [
        Unavailable("SERVICE_NOT_AVAILABLE", what) for what in missing_of(client, sorted(wanted), brokers)
    ]
    if missing and len(missing) == len(brokers) and not away:
        raise missing[0]
    away += [
        Unavailable(
            "SERVICE_NOT_AVAILABLE", f"{endpoint} does not answer: which broker that is, is not known"
        )
        for endpoint in client.never_answered()
    ]
    return rows, away


def _lag_at(client: Client, group: str, only_topic: str | None) -> list[dict[str, Any]]:
    rows = []
    ends: dict[str, dict[int, int]] = {}
    for (topic, queue_id), offset in sorted(client.group_offsets(group).items()):
        if only_topic is not None and topic != only_topic:
            continue
        if topic not in ends:
            ends[topic] = _ends(client, topic)
        end = ends[topic].get(queue_id)
        lag = None if end is None else max(0, end - offset)
        rows.append({"topic": topic, "queue_id": queue_id, "offset": offset, "max_offset": end, "lag": lag})
    return rows


def _ends(client: Client, topic: str) -> dict[int, int]:
    try:
        return {queue.queue_id: queue.max_offset for queue in client.queues(topic)}
    except InvalidRequest as error:
        if error.code != "TOPIC_NOT_EXIST":
            raise
        return {}  # the topic was deleted; the group's offsets outlive it
