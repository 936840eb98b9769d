"""A tag expression, read before what it is for begins.

Owns the question; the broker reads the expression (`store_native/src/filter/tags.rs`), which nobody asks it
to where a topic has no message yet.
"""

from __future__ import annotations

from lakemq.client.client import Client
from store_native.errors import InvalidRequest


def refuse_illegal_tags(client: Client, topic: str, queue_id: int, tags: str) -> None:
    """Has a broker read the expression of an option ``--tags``.

    Raises:
        InvalidRequest: FILTER_ILLEGAL.
        LakeMQError: The broker does not answer.
    """
    if tags == "*":
        return
    try:
        # The broker reads the expression before the messages.
        client.pull(topic, queue_id, 0, max=1, max_bytes=1, tags=tags)
    except InvalidRequest as error:
        if error.code == "FILTER_ILLEGAL":
            raise InvalidRequest(error.code, f"--tags: {error.detail}") from error
