"""Names that mean something: topics of groups and of the system, bits of a permission, a header of answers.

RocketMQ's `MixAll`, `TopicValidator` and `PermName`; the store's Rust part has them in `state/names.rs`.
"""

from __future__ import annotations

from typing import Final

RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_TOPIC_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "RMQ_SYS_"

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE
PERM_ALL: Final = PERM_READ_WRITE | PERM_INHERIT

MAY_BE_BEHIND_HEADER: Final = "X-LakeMQ-May-Be-Behind"
"""A broker says by it that its answer may lack the end of what was shown before, as a slave's may."""

SUGGESTED_BROKER_HEADER: Final = "X-LakeMQ-Suggested-Broker-Id"
"""With a pull's answer: at which broker of the name to read on. JSON has it where it is not the master."""

LOG_PARTED_HEADER: Final = "X-LakeMQ-Log-Parted"
"""A slave says by it that its log is not its master's: who asked it in its master's place asks another."""

ORDER_VERSION_HEADER: Final = "LakeMQ-Order-Version"
"""The version of the ordered topic's list of brokers that a send went by. Brokers of older releases refuse an
X-LakeMQ header beside JSON, and pass over this one."""


def retry_topic(group: str) -> str:
    """Returns the topic on which a group's failed messages come back."""
    return RETRY_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """Returns the topic of a group's dead letters."""
    return DLQ_TOPIC_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Says whether a group's failed messages come back on it."""
    return topic.startswith(RETRY_TOPIC_PREFIX)


def is_group_topic(topic: str) -> bool:
    """Says whether a topic belongs to a group: its retries or its dead letters."""
    return topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX))


def is_system_prefixed(topic: str) -> bool:
    """Says whether a topic's name is kept for the system."""
    return topic.startswith(SYSTEM_TOPIC_PREFIX)
