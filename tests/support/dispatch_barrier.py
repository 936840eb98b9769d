"""Waits, without a timer, until what is in the log can be read.

Who has the answer to a send with sync flush can read it already. What was answered before that (async flush,
one-way, 202), got no answer or was sent by others is in the log before a message that is sent afterwards: the
dispatcher works in that order, so once this one can be read, everything before it has its queue and index
entries.
"""

from __future__ import annotations

from lakemq import Client

_TOPIC = "test-barrier"
_WAIT_MS = 30_000


def await_dispatch(client: Client) -> None:
    """Returns when everything stored before this call can be read and found.

    Raises:
        AssertionError: The broker did not get there in time.
    """
    sent = client.send(_TOPIC, "barrier", queue_id=0)
    pulled = client.pull(_TOPIC, 0, sent.queue_offset, wait_ms=_WAIT_MS)
    assert pulled.status == "FOUND", f"the dispatcher is more than {_WAIT_MS} ms behind"
