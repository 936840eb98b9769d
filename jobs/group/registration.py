"""A group at its brokers: what its first start makes there.

Owns the group, its retry topic and its dead-letter topic, and the looks at what else a start needs there.

Invariants: nothing is made before every broker that answers has been asked for what the start needs. What a
start has made is taken back when it is refused before the group's query is started, while this job holds the
lease; what was there before stays.
"""

from __future__ import annotations

import logging
from types import TracebackType

from jobs.runtime.group_brokers import GroupBrokers
from jobs.settings import ConsumeSettings
from lakemq.client import Client
from lakemq.client.errors import may_pass
from lakemq.client.group_lease import GroupLease
from lakemq.client.group_leases import GroupLeases
from lakemq.client.tag_expression import refuse_illegal_tags
from store_native.errors import InvalidRequest, LakeMQError
from store_native.names import PERM_WRITE, retry_topic

_log = logging.getLogger(__name__)


class Registration:
    """What one start has made.

    Args:
        client: The broker, or several.
        settings: The group's.
    """

    def __init__(self, client: Client, settings: ConsumeSettings) -> None:
        self._client = client
        self._settings = settings
        self._groups: list[tuple[str, Client]] = []
        self._topics: list[tuple[Client, str]] = []

    def make(self) -> None:
        """Makes the group, its retry and its dead-letter topic known to every broker that answers.

        Raises:
            InvalidRequest: A topic is not there, or the tag expression is none; nothing was made.
            Unavailable: No broker answers.
        """
        settings = self._settings
        for topic in settings.topics:
            self._client.topic(topic)
        if settings.mode == "broadcast":
            _log.warning(
                "broadcast mode: a message whose handler fails is recorded as DROPPED, it does not come again"
            )
        brokers = GroupBrokers(self._client).each()
        away: dict[str, LakeMQError] = {}
        for step in (self._check, self._make_at):
            for name, broker in brokers.items():
                if name in away:
                    continue
                try:
                    step(name, broker)
                except LakeMQError as error:
                    if not may_pass(error):
                        raise
                    away[name] = error
        if len(away) == len(brokers):
            raise next(iter(away.values()))
        for reason in away.values():
            _log.warning("%s; its queues wait, the others go on", reason)

    def keep(self) -> None:
        """Leaves all as it is from now on."""
        self._groups.clear()
        self._topics.clear()

    def take_back(
        self,
        lease: GroupLease | GroupLeases,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Deletes what was made where the start has failed, unless another has the group by now."""
        if kind is None or not (self._groups or self._topics):
            return
        try:
            lease.stop_retrying()
            lease.confirm()  # this process may have stood still for longer than the lease
            for name, broker in self._groups:
                broker.delete_group(self._settings.group, lease_epoch=lease.epoch_at(name))
            for broker, topic in self._topics:
                broker.delete_topic(topic)
        except LakeMQError as left:
            _log.warning("group %s was made, and is left at its broker: %s", self._settings.group, left)

    def _check(self, name: str, broker: Client) -> None:
        _check_tags(broker, self._settings)
        _check_sends(broker, self._settings)

    def _make_at(self, name: str, broker: Client) -> None:
        settings = self._settings
        of_group = [] if settings.mode == "broadcast" else [retry_topic(settings.group), settings.dlq]
        missing = [topic for topic in of_group if not _has_topic(broker, topic)]
        if all(group.group != settings.group for group in broker.groups()):
            self._groups.append((name, broker))
        self._topics += ((broker, topic) for topic in missing)
        broker.put_group(settings.group)
        for topic in missing:
            if not _has_topic(broker, topic):
                broker.put_topic(topic, read_queue_nums=1, write_queue_nums=1)


def _has_topic(broker: Client, topic: str) -> bool:
    try:
        broker.topic(topic)
    except InvalidRequest as error:
        if error.code != "TOPIC_NOT_EXIST":
            raise
        return False
    return True


def _check_sends(client: Client, settings: ConsumeSettings) -> None:
    """Looks for the topics that verdicts may send to, on a broker.

    Raises:
        InvalidRequest: TOPIC_NOT_EXIST.
    """
    for topic in settings.send_to:
        try:
            perm = client.topic(topic).perm
        except InvalidRequest as error:
            if error.code == "TOPIC_NOT_EXIST":
                raise InvalidRequest(error.code, f"--send-to: {error.detail}") from error
            raise
        if not perm & PERM_WRITE:
            _log.warning("--send-to: %s takes no messages now: what verdicts send to it waits", topic)


def _check_tags(client: Client, settings: ConsumeSettings) -> None:
    """Has a tag expression read where it is used later: before a JVM is started.

    Raises:
        InvalidRequest: FILTER_ILLEGAL.
    """
    if settings.tags != "*":
        # Whichever topic there is.
        topic = settings.topics[0] if settings.topics else client.topics()[0].topic
        refuse_illegal_tags(client, topic, 0, settings.tags)
