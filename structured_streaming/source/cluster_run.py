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
from structured_streaming.offsets import Offsets, TopicMetadata, same_topic
from structured_streaming.options import ReadOptions
from structured_streaming.retry_timeout import retry_until
from structured_streaming.source import batch_bound, batch_plan, partitions, query_lease
from structured_streaming.source.broker_asks import BrokerAsks
from structured_streaming.source.data_loss import Loss
from structured_streaming.source.query_run import Planned, QueryRun
from structured_streaming.source.read_limit import limit_ends
from structured_streaming.starting_offsets import ByBroker

log = logging.getLogger("lakemq.spark")

AWAY_S = 5.0
"""How long a broker that did not answer is left out before it is asked again."""
ANSWER_S = 10.0
"""How long the brokers are waited for that answered before."""
DOUBTFUL_S = 1.0
"""How long the others wait for a broker that was away."""

_Answer = TypeVar("_Answer")


class ClusterRun:
    """What the driver knows during one run of a query over several brokers.

    Args:
        chosen: The query's options.
        client: The cluster.
        run_of: Makes the run over one broker, by its name; raises what became of asking it.
        clock: Monotonic seconds.
        answer_s: How long a broker may take to answer before the others go on without it.
    """

    def __init__(
        self,
        chosen: ReadOptions,
        client: Client,
        run_of: Callable[[str], QueryRun],
        *,
        clock: Callable[[], float] = time.monotonic,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.options = chosen
        self._client = client
        self._run_of = run_of
        self._clock = clock
        self._timeout_s = chosen.retry_timeout_ms / 1000
        self._asks = BrokerAsks(answer_s, min(answer_s, DOUBTFUL_S))
        self._runs: dict[str, QueryRun] = {}
        self._away_until: dict[str, float] = {}
        self._away: dict[str, LakeMQError] = {}
        self._frozen: frozenset[str] | None = None
        self._initial: ClusterOffsets | None = None
        self._end: ClusterOffsets | None = None
        self._left_out: dict[str, Offsets] = {}
        # Of queries that begin at the same moment one goes on: they meet at the first broker by name.
        self._holds_one = chosen.group is None or not chosen.group_lease

    def freeze(self) -> None:
        """Fixes the ends of an AvailableNow run; a broker that is away has no part in it."""
        self._frozen = frozenset(self._of_all(lambda name, run: run.freeze()))

    def initial(self) -> ClusterOffsets:
        """Resolves the start once, on every broker.

        Raises:
            Unavailable: A broker does not answer: where the query begins on it is not known. Of a job, which
                knows that, none has answered for as long as retryTimeoutMs says.
        """
        if self._initial is not None:
            return self._initial
        if self.options.brokers_join:
            found = retry_until(self._from_those_named, self._timeout_s, waits=_say_that_the_start_waits)
        else:
            found = self._from_all()
        self._initial = ClusterOffsets({name: offsets for name, offsets in found.items() if offsets.queues})
        return self._initial

    def _from_all(self) -> dict[str, Offsets]:
        self._refuse_unknown("a new query begins when every broker says where")
        found: dict[str, Offsets] = {}
        seen: list[TopicMetadata] = []
        for name in self._names():
            found[name] = self._run(name).initial()
            seen.append(self._run(name).metadata_at_start())
        topic_metadata.check_exists(topic_metadata.joined(seen), self.options.subscription)
        return found

    def _from_those_named(self) -> dict[str, Offsets]:
        """Where each begins is said already, so one that does not answer joins there later."""
        starting = self.options.starting
        named = [n for n in self._names() if not isinstance(starting, ByBroker) or starting.names(n)]
        return self._of_all(lambda name, run: run.initial(), only=named)

    def _refuse_unknown(self, why: str) -> None:
        unknown = self._client.never_answered()
        if unknown:
            raise Unavailable("SERVICE_NOT_AVAILABLE", f"{', '.join(unknown)} does not answer: {why}")

    def latest(self, start: ClusterOffsets, most: int | None) -> ClusterOffsets:
        """Returns the end of the batch that begins at ``start``.

        Raises:
            Unavailable: No broker answers for as long as retryTimeoutMs says.
        """
        start = ClusterOffsets({**self._left_out, **start.brokers})

        def plan(name: str, run: QueryRun) -> Planned:
            begin = start.brokers.get(name)
            return run.plan(run.joins() if begin is None else begin)

        plans = retry_until(lambda: self._of_all(plan, start.brokers), self._timeout_s)
        ends = {queue: end for planned in plans.values() for queue, end in planned.ends.items()}
        starts = {queue: at for planned in plans.values() for queue, at in planned.starts.items()}
        file = self.options.batch_bound_file
        most = batch_bound.at_most(file, most)
        ends = batch_bound.within_ends(file, starts, ends)
        if most is not None:
            ends = limit_ends(starts, ends, most)
        found = dict(start.brokers)
        for name, planned in plans.items():
            end = planned.advance({queue: ends[queue] for queue in planned.ends})
            if name in start.brokers or end.queues:
                found[name] = end
        return ClusterOffsets(found)

    def latest_unasked(self) -> ClusterOffsets:
        """Returns the end of the next batch for a Spark that does not say where it begins.

        Raises:
            Unavailable: At the first batch of a run a broker does not answer: where the query is on it,
                Spark has not said.
        """
        if self._end is not None:
            self._end = self.latest(self._end, self.options.max_offsets_per_trigger)
        else:
            self._end = retry_until(self._ends, self._timeout_s)
        return self._end

    def _ends(self) -> ClusterOffsets:
        self._refuse_unknown("below Spark 4.2 a run begins when every broker answers")
        ends = {name: self._run(name).latest_unasked() for name in self._names()}
        return ClusterOffsets({name: end for name, end in ends.items() if end.queues})

    def slices(self, start: ClusterOffsets, end: ClusterOffsets) -> list[partitions.QueueSlice]:
        """Cuts [start, end) into slices; waits for the brokers that have a part in it.

        Raises:
            Unavailable: Such a broker does not answer for as long as retryTimeoutMs says.
        """
        begins = {**self._left_out, **start.brokers}
        # Only below Spark 4.2, where the first batch of a run knows no start.
        self._left_out |= {name: at for name, at in start.brokers.items() if name not in end.brokers}
        slices: list[partitions.QueueSlice] = []
        truncated: list[Loss] = []
        for name, reached in sorted(end.brokers.items()):
            if _nothing_between(begins.get(name), reached):
                begins.setdefault(name, reached)
                continue

            def cut(name: str = name, reached: Offsets = reached) -> list[partitions.QueueSlice]:
                if self._asks.is_busy(name):
                    raise self._asks.no_answer(name)
                run = self._run(name)
                if name not in begins:
                    begins[name] = run.joins()
                pieces = run.slices(begins[name], reached)
                begins[name] = run.planned_from or begins[name]
                truncated.extend(run.truncated)
                return pieces

            slices += retry_until(cut, self._timeout_s, waits=_say_that_it_waits)
        if self.options.plan_file is not None:
            of_batch = {name: at for name, at in begins.items() if name in end.brokers}
            batch_plan.write(Path(self.options.plan_file), ClusterOffsets(of_batch), end, truncated)
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
        if self.options.group is not None and self.options.group_lease:
            query_lease.stop_reader_on_sigterm()  # the leases are taken on other threads
        names = sorted({*self._names(), *known} if only is None else set(only))
        if self._frozen is not None:
            names = [name for name in names if name in self._frozen]
        self._hold_one_of(names)
        answers = self._ask(call, self._due(names))
        if names and not answers:
            raise self._away[names[0]]
        return answers

    def _hold_one_of(self, names: Iterable[str]) -> None:
        """Takes the group at the first broker that answers before any other is asked.

        Raises:
            LakeMQError: LEASE_CONFLICT, another query has it there.
        """
        for name in names:
            if not self._holds_one and name in self._due(names):
                self._holds_one = bool(self._ask(lambda name, run: run.hold_lease(), [name]))

    def _due(self, names: Iterable[str]) -> list[str]:
        names, now = list(names), self._clock()
        return [name for name in names if self._away_until.get(name, 0.0) <= now] or names

    def _ask(self, call: Callable[[str, QueryRun], _Answer], names: Iterable[str]) -> dict[str, _Answer]:
        said = self._asks.ask({name: self._question(call, name) for name in names}, self._away)
        answers: dict[str, _Answer] = {}
        for name, answer in said.items():
            if not isinstance(answer, LakeMQError):
                answers[name] = answer
                if self._away.pop(name, None) is not None:
                    log.warning("broker %s is back, its queues go on", name)
                continue
            if not may_pass(answer):
                raise answer
            if name not in self._away:
                log.warning("%s; its queues wait, the others go on", answer)
            self._away[name] = answer
            self._away_until[name] = self._clock() + AWAY_S
        return answers

    def _question(self, call: Callable[[str, QueryRun], _Answer], name: str) -> Callable[[], _Answer]:
        return lambda: call(name, self._run(name))


def _nothing_between(begin: Offsets | None, end: Offsets) -> bool:
    """Says whether a batch surely holds nothing of a broker, which does not have to answer for it then.

    Args:
        begin: Where the batch begins on it, None where it joins in this batch.
        end: Where the batch ends on it.
    """
    if begin is None:
        return not any(end.queues.values())
    same_lives = begin.epoch == end.epoch and all(
        same_topic(id, end.topic_ids.get(topic)) for topic, id in begin.topic_ids.items()
    )
    return (
        same_lives
        and begin.queues.keys() <= end.queues.keys()
        and all(begin.position(queue) == at for queue, at in end.queues.items())
    )


def _say_that_the_start_waits(error: LakeMQError) -> None:
    log.warning("%s; the first batch waits until a broker answers", error)


def _say_that_it_waits(error: LakeMQError) -> None:
    log.warning("%s; the batch that was planned with its messages waits for it", error)


def options_of(chosen: ReadOptions) -> ReadOptions:
    """Returns a query's options for its run over one broker: what concerns a whole batch is done here."""
    return replace(
        chosen, plan_file=None, batch_bound_file=None, min_partitions=None, max_records_per_partition=None
    )
