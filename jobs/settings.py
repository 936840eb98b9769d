"""The settings of a consumer group's job.

Owns their types and defaults, and what follows from them: subscription, dead-letter topic, checkpoints.

Invariants: frozen values, checked once when they are made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from delta_tables.ledger.location import LedgerLocation
from delta_tables.user_tables.user_table import MOST_TABLES, UserTable
from jobs.frames.frame_handler import FrameHandler
from jobs.handler.invocation import DEFAULT_HOST, HandlerHost
from jobs.handler.loader import HandlerTarget
from store_native import validate_group, validate_tags, validate_topic
from store_native.errors import InvalidRequest, from_code
from store_native.names import dlq_topic, is_group_topic, is_system_prefixed, retry_topic
from structured_streaming.subscription import Subscription

From = Literal["earliest", "latest"]
Mode = Literal["concurrent", "orderly", "broadcast"]
OnDataLoss = Literal["fail", "record"]

MAX_PARKED = 10_000


@dataclass(frozen=True)
class ConsumeSettings:
    """The settings of `lakemq consume`.

    Attributes:
        group: the consumer group.
        topics: the topics it reads; its retry topic is added by itself. None with a `topic_pattern`.
        handler: the user's function, of messages or of DataFrames.
        ledger: where the tables are.
        checkpoint: directory of the streams' checkpoints (local or mounted); None puts them under the
            ledger.
        endpoint: the broker; None takes the client's default.
        path: a local store to read from by mapping its files; None reads over HTTP.
        topic_pattern: in the place of `topics`: a regular expression of Python for whole names. A topic that
            is made while the group runs, or between its runs, is read from its first message.
        tags: tag filter, `*` or `A || B`.
        send_to: the topics that verdicts may send messages to.
        write_to: the tables that verdicts may write rows to.
        start: where a group nobody knows yet begins; the end by default, as in RocketMQ.
        max_reconsume_times: retries before a message is given up; None takes what the group was made with,
            in orderly mode as many as it needs.
        retry_delays: delays of the retries, `"10s 30s"`; None for RocketMQ's, in orderly mode for the
            broker's shortest.
        retry_backoff: delays that grow and are drawn, `"1s..10m"`, in place of `retry_delays`.
        trigger: interval of the micro-batches; without effect when `available_now`.
        max_messages_per_batch: bound of one micro-batch.
        mode: concurrent (clustering), orderly or broadcast.
        max_parked: of a queue of an orderly group, so many messages wait in the ledger before it pauses.
        available_now: handle what is there at the start, retries that are due by then included, then end.
        until_idle_s: end when nothing was new, pending or due for so long; None runs until stopped.
        on_data_loss: what expired or is damaged ends the job, or is passed over and recorded.
        host: where and how the handler is called.
        batch_time_s: how long a batch should last; its size follows the handler's measured time.
        stop_timeout_s: how long a stop waits for the batch under way.
        lease_ms: how long the broker keeps the group for a process that fell silent.
    """

    group: str
    topics: tuple[str, ...]
    handler: HandlerTarget | FrameHandler
    ledger: LedgerLocation
    checkpoint: Path | None = None
    endpoint: str | None = None
    path: str | None = None
    topic_pattern: str | None = None
    tags: str = "*"
    send_to: tuple[str, ...] = ()
    write_to: tuple[UserTable, ...] = ()
    start: From = "latest"
    max_reconsume_times: int | None = None
    retry_delays: str | None = None
    retry_backoff: str | None = None
    trigger: str = "1 second"
    max_messages_per_batch: int = 200_000
    mode: Mode = "concurrent"
    max_parked: int = MAX_PARKED
    available_now: bool = False
    until_idle_s: float | None = None
    on_data_loss: OnDataLoss = "fail"
    host: HandlerHost = DEFAULT_HOST
    batch_time_s: float = 10.0
    stop_timeout_s: float = 30.0
    lease_ms: int = 30_000

    def __post_init__(self) -> None:
        """Checks what can be checked without a broker; raises InvalidRequest."""
        _named("--group", validate_group, self.group)
        if is_group_topic(self.group):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"--group: {self.group} is a topic that a group has; give the group's name",
            )
        for topic in self.topics:
            check_topic(topic)
        _named("--tags", validate_tags, self.tags)
        if self.mode == "orderly":
            self._check_orderly()
        if self.topic_pattern is not None:
            self._check_pattern(self.topic_pattern)
        elif not self.topics:
            raise from_code("ARGUMENT_ILLEGAL", "a group reads at least one topic")
        if self.checkpoint is None and self.ledger.checkpoints is None:
            raise from_code(
                "ARGUMENT_ILLEGAL",
                f"the ledger {self.ledger} is in a catalog and needs --checkpoint (a mounted directory); a "
                f"directory of that name is --ledger ./{self.ledger}",
            )
        if self.mode == "broadcast":
            self._check_broadcast()
        if self.send_to:
            self._check_sends()
        if self.write_to:
            self._check_writes()
        if self.available_now and self.until_idle_s is not None:
            raise from_code("ARGUMENT_ILLEGAL", "--available-now and --until-idle: give one, both end a run")

    def _check_pattern(self, pattern: str) -> None:
        if self.topics:
            raise from_code("ARGUMENT_ILLEGAL", "topics by name and by a pattern: give one")
        try:
            re.compile(pattern)
            re.compile(_of_users(pattern))
        except re.error as error:
            raise from_code(
                "ARGUMENT_ILLEGAL", f"--topic-pattern is no regular expression of Python: {error}"
            ) from error

    def _check_orderly(self) -> None:
        if isinstance(self.handler, FrameHandler):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                "--mode orderly: a function of DataFrames has a batch at once; "
                "orderly mode takes a handler of messages",
            )
        if isinstance(self.handler, HandlerTarget) and self.handler.vectorised == "yes":
            raise from_code("ARGUMENT_ILLEGAL", "--vectorised yes: orderly mode calls with one message")
        if self.send_to:
            raise from_code("ARGUMENT_ILLEGAL", "--send-to: verdicts send nothing in orderly mode yet")
        if self.write_to:
            raise from_code("ARGUMENT_ILLEGAL", "--write-to: verdicts write nothing in orderly mode yet")
        if self.max_parked < 1:
            raise from_code("ARGUMENT_ILLEGAL", "--max-parked is 1 or more")

    def _check_broadcast(self) -> None:
        if isinstance(self.handler, FrameHandler):
            raise from_code(
                "ARGUMENT_ILLEGAL",
                "--mode broadcast has no retries, and a function of DataFrames has its failures retried",
            )
        for option, given in (
            ("--max-reconsume-times", self.max_reconsume_times),
            ("--retry-delays", self.retry_delays),
            ("--retry-backoff", self.retry_backoff),
        ):
            if given is not None:
                raise from_code("ARGUMENT_ILLEGAL", f"{option}: --mode broadcast has no retries")

    def _check_sends(self) -> None:
        for topic in self.send_to:
            _named("--send-to", validate_topic, topic)
            if is_group_topic(topic) or is_system_prefixed(topic):
                raise from_code("ARGUMENT_ILLEGAL", f"--send-to: {topic} is no topic of yours")
        if self.mode == "broadcast":
            raise from_code("ARGUMENT_ILLEGAL", "--send-to: verdicts send nothing in broadcast mode")
        if isinstance(self.handler, FrameHandler):
            raise from_code("ARGUMENT_ILLEGAL", "--send-to: verdicts of DataFrames send nothing yet")

    def _check_writes(self) -> None:
        names = [table.name for table in self.write_to]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise from_code("ARGUMENT_ILLEGAL", f"--write-to: several tables are called {twice[0]}")
        if len(names) > MOST_TABLES:
            raise from_code("ARGUMENT_ILLEGAL", f"--write-to: {MOST_TABLES} tables at most")
        if self.mode == "broadcast":
            raise from_code("ARGUMENT_ILLEGAL", "--write-to: verdicts write nothing in broadcast mode")
        if isinstance(self.handler, FrameHandler):
            raise from_code("ARGUMENT_ILLEGAL", "--write-to: verdicts of DataFrames write nothing yet")

    @property
    def subscription(self) -> Subscription:
        """All topics the group's query reads."""
        own = () if self.mode == "broadcast" else (retry_topic(self.group),)
        if self.topic_pattern is None:
            return Subscription(topics=frozenset((*self.topics, *own)))
        return Subscription(pattern="|".join((*map(re.escape, own), _of_users(self.topic_pattern))))

    @property
    def topics_in_words(self) -> str:
        """The user's topics, for a sentence."""
        return ", ".join(self.topics) or f"topics that match {self.topic_pattern}"

    @property
    def spark_trigger(self) -> dict[str, Any]:
        """The trigger of the group's streams, as arguments of Spark's `trigger`."""
        return {"availableNow": True} if self.available_now else {"processingTime": self.trigger}

    @property
    def dlq(self) -> str:
        """The topic of the group's dead letters."""
        return dlq_topic(self.group)

    def checkpoint_of(self, stream: str) -> Path:
        """The checkpoint directory of one of the group's streams."""
        if self.checkpoint is not None:
            return self.checkpoint / stream
        own = self.ledger.checkpoints_of(self.group)
        assert own is not None, "a catalog's ledger needs a checkpoint of its own"
        return own / stream


def check_topic(topic: str) -> None:
    """Refuses what is no name of a topic; raises InvalidRequest."""
    _named("--topic", validate_topic, topic)


def _named(option: str, check: Callable[[str], None], value: str) -> None:
    try:
        check(value)
    except InvalidRequest as error:
        raise InvalidRequest(error.code, f"{option}: {error.detail}") from error


def _of_users(pattern: str) -> str:
    """The pattern without topics of groups: of these a group reads its own retry topic."""
    return f"(?!%)(?:{pattern})"
