"""What a program is told that ended without closing its producer, of messages that were not sent.

Owns the words, on the logger `lakemq.producer`: without handlers they go to standard error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from lakemq.client import OutcomeUnknown
from lakemq.pending_messages import PendingMessage

_log = logging.getLogger("lakemq.producer")


def say_unsent(messages: Iterable[PendingMessage], endpoint: str) -> None:
    """Says of each topic how many messages were not sent, or may be stored, and why the first was not.

    Args:
        messages: Those that had not ended when the program did.
        endpoint: Whom they were for.
    """
    told: dict[tuple[str, bool], tuple[int, BaseException | None]] = {}
    for message in messages:
        error = message.future.exception() if message.future.done() else None
        if error is not None or not message.future.done():
            which = message.topic, isinstance(error, OutcomeUnknown)
            count, first = told.get(which, (0, error))
            told[which] = count + 1, first
    for (topic, may_be_stored), (count, error) in told.items():
        _log.error(
            "%s: %s %s for topic %s at %s; the program ended without Producer.close()%s",
            "perhaps not stored" if may_be_stored else "not sent",
            *(count, "message" if count == 1 else "messages"),
            *(topic, endpoint),
            "" if error is None else f": {error}",
        )
