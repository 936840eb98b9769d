"""One run of a query over the brokers of a cluster: a run for each, and what they make together.

Owns which brokers take part in a batch.

Invariants: a broker that does not answer keeps its positions, and the batch is made of the others'; a batch
that holds messages of a broker waits for that broker, since a batch planned once is planned the same again; a
new query begins only when every broker says where.

Processes: the driver's; one object for a query's run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from lakemq.client import Client
from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError, Unavailable
from structured_streaming import topic_metadata
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import Offsets, TopicMetadata
from structured_streaming.options import ReadOptions
from structured_streaming.retry_timeout import retry_until
from structured_streaming.source import batch_bound, batch_plan, partitions
from structured_streaming.source.query_run import Planned, QueryRun
from structured_streaming.source.read_limit import limit_ends

log = logging.getLogger("lakemq.spark")

AWAY_S = 5.0
"""How long a broker that did not answer is left out before it is asked again."""

_Answer = TypeVar("_Answer")


class ClusterRun:
    """What the driver knows during one run of a query over several brokers.

    Args:
        chosen: The query's options.
        client: The cluster.
        run_of: Makes the run over one broker, by its name; raises what became of asking it.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        chosen: ReadOptions,
        client: Client,
        run_of: Callable[[str], QueryRun],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = chosen
        self._client = client
        self._run_of = run_of
        self._clock = clock
        self._timeout_s = chosen.retry_timeout_ms / 1000
        self._runs: dict[str, QueryRun] = {}
        self._away_until: dict[str, float] = {}
        self._away: dict[str, LakeMQError] = {}
        self._frozen: frozenset[str] | None = None
        self._initial: ClusterOffsets | None = None
        self._end: ClusterOffsets | None = None

    def freeze(self) -> None:
        """Fixes the ends of an AvailableNow run; a broker that is away has no part in it."""
        self._frozen = frozenset(self._of_all(lambda name, run: run.freeze()))

    def initial(self) -> ClusterOffsets:
        """Resolves the start once, on every broker.

        Raises:
            Unavailable: A broker does not answer: where the query begins on it is not known.
        """
        if self._initial is not None:
            return self._initial
        unknown = self._client.cluster_routes.routes.unknown if self._client.is_routed else []
        found: dict[str, Offsets] = {}
        seen: list[TopicMetadata] = []
        for name in self._names():
            found[name] = self._run(name).initial()
            seen.append(self._run(name).metadata_at_start())
        if unknown:
            raise Unavailable(
                "SERVICE_NOT_AVAILABLE",
                f"{', '.join(unknown)} does not answer: a new query begins when every broker says where",
            )
        topic_metadata.check_exists(topic_metadata.joined(seen), self.options.subscription)
        self._initial = ClusterOffsets({name: offsets for name, offsets in found.items() if offsets.queues})
        return self._initial

    def latest(self, start: ClusterOffsets, most: int | None) -> ClusterOffsets:
        """Returns the end of the batch that begins at ``start``.

        Raises:
            Unavailable: No broker answers for as long as retryTimeoutMs says.
        """

        def plan(name: str, run: QueryRun) -> Planned:
            begin = start.brokers.get(name)
            return run.plan(run.joins() if begin is None else begin)

        plans = retry_until(lambda: self._of_all(plan, start.brokers), self._timeout_s)
        ends = {queue: end for planned in plans.values() for queue, end in planned.ends.items()}
        most = batch_bound.at_most(self.options.batch_bound_file, most)
        if most is not None:
            starts = {queue: at for planned in plans.values() for queue, at in planned.starts.items()}
            ends = limit_ends(starts, ends, most)
        found = dict(start.brokers)
        for name, planned in plans.items():
            end = planned.advance({queue: ends[queue] for queue in planned.ends})
            if name in start.brokers or end.queues:
                found[name] = end
        return ClusterOffsets(found)

    def latest_unasked(self) -> ClusterOffsets:
        """Returns the end of the next batch for a Spark that does not say where it begins."""
        if self._end is not None:
            self._end = self.latest(self._end, self.options.max_offsets_per_trigger)
        else:
            ends = {name: self._run(name).latest_unasked() for name in self._names()}
            self._end = ClusterOffsets({name: end for name, end in ends.items() if end.queues})
        return self._end

    def slices(self, start: ClusterOffsets, end: ClusterOffsets) -> list[partitions.QueueSlice]:
        """Cuts [start, end) into slices; waits for the brokers that have a part in it.

        Raises:
            Unavailable: Such a broker does not answer for as long as retryTimeoutMs says.
        """
        begins = dict(start.brokers)
        slices: list[partitions.QueueSlice] = []
        for name, reached in sorted(end.brokers.items()):
            if begins.get(name) == reached:
                continue

            def cut(name: str = name, reached: Offsets = reached) -> list[partitions.QueueSlice]:
                run = self._run(name)
                begins[name] = start.brokers[name] if name in start.brokers else run.joins()
                return run.slices(begins[name], reached)

            slices += retry_until(cut, self._timeout_s)
        if self.options.plan_file is not None:
            batch_plan.write(Path(self.options.plan_file), ClusterOffsets(begins), end)
        return partitions.split(
            sorted(slices, key=lambda piece: (piece.queue, piece.start)),
            min_partitions=self.options.min_partitions,
            max_records=self.options.max_records_per_partition,
        )

    def backlog(self) -> dict[str, Any] | None:
        """Returns the ends of the queues as last seen."""
        ends = {name: run.ends_seen() for name, run in self._runs.items()}
        found = {name: end for name, end in ends.items() if end is not None and end.queues}
        return ClusterOffsets(found).to_json() if found else None

    def done(self, position: ClusterOffsets) -> None:
        """Reports to each broker that all before ``position`` is finished."""
        self._of_all(
            lambda name, run: run.done(position.brokers[name]), position.brokers, only=position.brokers
        )

    def close(self) -> None:
        """Ends the run."""
        for run in self._runs.values():
            run.close()

    def _names(self) -> list[str]:
        return sorted(self._client.brokers())

    def _run(self, name: str) -> QueryRun:
        if name not in self._runs:
            self._runs[name] = self._run_of(name)
        return self._runs[name]

    def _of_all(
        self,
        call: Callable[[str, QueryRun], _Answer],
        known: Iterable[str] = (),
        only: Iterable[str] | None = None,
    ) -> dict[str, _Answer]:
        """Asks every broker that is not known to be away; says once who is, and once when it is back.

        Raises:
            LakeMQError: What the first said, when none answers; at once what is no outage.
        """
        names = sorted({*self._names(), *known} if only is None else set(only))
        if self._frozen is not None:
            names = [name for name in names if name in self._frozen]
        now = self._clock()
        asked = [name for name in names if self._away_until.get(name, 0.0) <= now] or names
        answers: dict[str, _Answer] = {}
        for name in asked:
            try:
                answers[name] = call(name, self._run(name))
            except LakeMQError as error:
                if not may_pass(error):
                    raise
                if name not in self._away:
                    log.warning("%s; its queues wait, the others go on", error)
                self._away[name] = error
                self._away_until[name] = self._clock() + AWAY_S
                continue
            if self._away.pop(name, None) is not None:
                log.warning("broker %s is back, its queues go on", name)
        if names and not answers:
            raise self._away[names[0]]
        return answers


def options_of(chosen: ReadOptions) -> ReadOptions:
    """Returns a query's options for its run over one broker: what concerns a whole batch is done here."""
    return replace(
        chosen, plan_file=None, batch_bound_file=None, min_partitions=None, max_records_per_partition=None
    )
