"""Where a job's query begins, as its checkpoint remembers it.

Owns how the start of a job that was given one broker's address is read once the job is given a name server's.

Invariants: decided once per checkpoint; a start that names no broker is its one broker's, never all brokers'.
"""

from __future__ import annotations

from collections.abc import Callable

from jobs.runtime.checkpoint import NO_BATCH, StreamCheckpoint
from jobs.runtime.group_brokers import GroupBrokers
from store_native.errors import from_code

StartingOffsets = dict[str, dict[str, int]]
"""topic -> queue -> offset, as the option startingOffsets takes them."""


def start_of(
    checkpoint: StreamCheckpoint, brokers: GroupBrokers, decide: Callable[[], StartingOffsets]
) -> StartingOffsets:
    """Returns where the query begins.

    Args:
        checkpoint: the query's.
        brokers: those it reads.
        decide: says where a query without a checkpoint begins.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL when it cannot be known whose the remembered queues are.
    """
    begin: StartingOffsets = checkpoint.start(lambda: {"offsets": decide()})["offsets"]
    named = {key.rpartition("/")[0] for keys in begin.values() for key in keys}
    if not brokers.several and len(named) == 1:
        return _renamed(begin, "")  # the broker's, whatever it was called before
    if not brokers.several or "" not in named:
        return begin
    # Releases that knew one broker did not name it.
    if checkpoint.last_planned() == NO_BATCH:
        again: StartingOffsets = checkpoint.start_over(lambda: {"offsets": decide()})["offsets"]
        return again
    reached = checkpoint.reached() or checkpoint.planned_end()
    names = sorted(reached.brokers) if reached is not None else []
    if len(names) != 1 and checkpoint.last_committed() > NO_BATCH:
        return begin  # of which nothing is needed any more: the checkpoint has a position for each broker
    if len(names) != 1:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"the checkpoint {checkpoint.directory} does not say whose queues it began with: start the job "
            "once with its broker's address, then with this one",
        )
    return _renamed(begin, f"{names[0]}/")


def _renamed(begin: StartingOffsets, prefix: str) -> StartingOffsets:
    return {
        topic: {prefix + key.rpartition("/")[2]: at for key, at in keys.items()}
        for topic, keys in begin.items()
    }
