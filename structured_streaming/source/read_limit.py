"""How many messages of which queue go into one batch (maxOffsetsPerTrigger).

Owns the arithmetic.

Invariants: the batch takes exactly min(limit, backlog) messages, none beyond a queue's end, each queue in
proportion to its backlog, and no queue waits for ever behind a larger one. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from structured_streaming.offsets import MessageQueue


def limit_ends(
    starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], max_messages: int
) -> dict[MessageQueue, int]:
    """Returns ends no further than ``ends`` such that at most ``max_messages`` messages are read.

    Each queue with a backlog gets one message at least, the rest goes by share of the backlog
    (largest remainder). When there are more such queues than messages allowed, one message each
    goes to queues in turn; the turn moves with the positions, so a restart takes the same batch.

    Args:
        starts: Where each queue begins; the keys of both mappings are the same.
        ends: Where each queue ends; an end before its start counts as no backlog.
        max_messages: The limit, at least 1.
    """
    backlog = {queue: ends[queue] - starts[queue] for queue in sorted(starts) if ends[queue] > starts[queue]}
    total = sum(backlog.values())
    if total <= max_messages:
        return dict(ends)
    granted = _in_turn(starts, backlog, max_messages) or _by_share(backlog, total, max_messages)
    return {
        queue: starts[queue] + granted.get(queue, 0) if queue in backlog else ends[queue] for queue in ends
    }


def _in_turn(
    starts: Mapping[MessageQueue, int], backlog: Mapping[MessageQueue, int], max_messages: int
) -> dict[MessageQueue, int]:
    queues = list(backlog)
    if len(queues) <= max_messages:
        return {}
    first = sum(starts.values()) % len(queues)
    turn = (queues + queues)[first : first + max_messages]
    return dict.fromkeys(turn, 1)


def _by_share(backlog: Mapping[MessageQueue, int], total: int, max_messages: int) -> dict[MessageQueue, int]:
    """Grants one message each, then the rest over what is left of each backlog.

    total > max_messages, so the shares never exceed a backlog and the remainders always fit.
    """
    spare = max_messages - len(backlog)
    left = total - len(backlog)
    granted = {queue: 1 + spare * (size - 1) // left for queue, size in backlog.items()}
    remainders = sorted(backlog, key=lambda queue: (-(spare * (backlog[queue] - 1) % left), queue))
    for queue in remainders[: max_messages - sum(granted.values())]:
        granted[queue] += 1
    return granted
