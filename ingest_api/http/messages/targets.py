"""Where sends and pulls are addressed, and the topics of small sends' targets.

Owns the form of those targets, and a bounded memory of them: beyond it a target is looked at each time.
"""

from __future__ import annotations

import re

API = "/api/v1"
TOPICS = f"{API}/topics/"
QUEUES = "/queues/"
MESSAGES = "/messages"
_PLAIN_SEGMENT = re.compile(rb"[A-Za-z0-9_\-.~]+")
_MAX_TARGETS = 4096
_LONGEST_KNOWN_TARGET = 300

known_targets: dict[bytes, str] = {}
"""Request target -> topic."""


def learn_topic(target: bytes) -> str | None:
    """Returns the topic when the target is a plain send's, and remembers it."""
    topic = send_topic(target)
    if topic is not None and len(known_targets) < _MAX_TARGETS and len(target) <= _LONGEST_KNOWN_TARGET:
        known_targets[target] = topic
    return topic


def send_topic(target: bytes) -> str | None:
    """Returns the topic when a request's target is a send's in its plain form.

    Plain is a target without a host, an escape, or a query string.
    """
    if not target.endswith(MESSAGES.encode()) or not target.startswith(TOPICS.encode()):
        return None
    topic = target[len(TOPICS) : -len(MESSAGES)]
    if not _PLAIN_SEGMENT.fullmatch(topic):
        return None
    return topic.decode("ascii")
