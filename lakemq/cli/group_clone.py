"""A group that begins where another one stands: what would happen, and doing it.

Owns the plan of a clone, and the order in which it is done.

Invariants: nothing is changed unless every broker said what both groups have; the group that is copied is
only read; offsets that the new group has are never replaced without being told to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakemq.cli.consumer_lag import lag_and_away
from lakemq.client import Client, GroupConfig, InvalidRequest, LakeMQError
from store_native.names import is_group_topic


@dataclass(frozen=True, slots=True)
class ClonePlan:
    """What a clone does.

    Attributes:
        source: The group that is copied.
        group: The name of the new one.
        is_new: Whether a broker lacks it: it is made there, with the retries and attributes of the other.
        queues: By queue where it begins (``to_offset``), where it stood (``from_offset``, None: nowhere), and
            how many messages are behind that (``lag``).
    """

    source: GroupConfig
    group: str
    is_new: bool
    queues: list[dict[str, Any]]


def planned(client: Client, source: str, group: str, *, overwrite: bool) -> ClonePlan:
    """Works out a clone.

    Args:
        client: Of one broker, or of several.
        source: The group that is copied.
        group: The new one's name.
        overwrite: Also where it has offsets: those of queues that the other has are replaced.

    Raises:
        InvalidRequest: GROUP_NOT_EXIST; ARGUMENT_ILLEGAL, the two are one, there is nothing to copy, or the
            new group has offsets already.
        Unavailable: A broker does not answer.
    """
    if is_group_topic(group):
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"{group} is a topic that a group has, and no name of one")
    if source == group:
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"{group} is the same group")
    config = client.group(source)
    # Its retries are its own: they were given back in its name, and come to it.
    stands = [
        row for row in _rows(client, source) if row["lag"] is not None and not is_group_topic(row["topic"])
    ]
    if not stands:
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"group {source} has committed no offset: it stands nowhere")
    brokers = list(client.brokers().values()) if client.is_cluster() else [client]
    having = [any(known.group == group for known in broker.groups()) for broker in brokers]
    before = _committed(client, group)
    if before and not overwrite:
        topics = ", ".join(sorted({topic for _, topic, _ in before}))
        what = f"group {group} has offsets already, of {topics}: --overwrite replaces them"
        raise InvalidRequest("ARGUMENT_ILLEGAL", what, group=group)
    queues = [
        {
            **{name: row[name] for name in ("broker_name", "topic", "queue_id") if name in row},
            "from_offset": before.get(_key(row)),
            "to_offset": row["offset"],
            "lag": row["lag"],
        }
        for row in stands
    ]
    return ClonePlan(config, group, not all(having), queues)


def execute(client: Client, plan: ClonePlan) -> list[str]:
    """Does what a plan says.

    Returns:
        The brokers whose master is away, by name ("" for the only one): a slave keeps the offsets for the
        next.

    Raises:
        InvalidRequest: LEASE_CONFLICT, a driver holds the new group.
        Unavailable: A broker does not answer; the error says where it was done.
    """
    if plan.is_new:
        client.put_group(
            plan.group,
            retry_max_times=plan.source.retry_max_times,
            consume_enable=plan.source.consume_enable,
            consume_broadcast_enable=plan.source.consume_broadcast_enable,
            attributes=plan.source.attributes,
        )
    kept_aside: list[str] = []
    done: list[str] = []
    for name in sorted({row.get("broker_name", "") for row in plan.queues}):
        offsets = {
            (row["topic"], row["queue_id"]): row["to_offset"]
            for row in plan.queues
            if row.get("broker_name", "") == name
        }
        try:
            committed = (client.broker(name) if name else client).commit_offsets(plan.group, offsets)
        except LakeMQError as error:
            if not done:
                raise
            what = f"{error.detail}; done on {', '.join(done)}"
            raise type(error)(error.code, what, **error.context) from error
        done.append(name)
        if committed.is_kept_aside:
            kept_aside.append(name)
    return kept_aside


def _rows(client: Client, group: str) -> list[dict[str, Any]]:
    rows, away = lag_and_away(client, group)
    if away:
        raise away[0]
    return rows


def _committed(client: Client, group: str) -> dict[tuple[str, str, int], int]:
    try:
        return {_key(row): row["offset"] for row in _rows(client, group)}
    except InvalidRequest as error:
        if error.code != "GROUP_NOT_EXIST":
            raise
        return {}


def _key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row.get("broker_name", ""), row["topic"], row["queue_id"]
