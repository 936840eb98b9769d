"""The topics of requests' targets, as small sends name them.

Owns a bounded memory of targets: beyond it a target is looked at each time.
"""

from __future__ import annotations

from ingest_api.http.app import send_topic

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
