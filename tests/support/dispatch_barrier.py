"""Waits, without a timer, until what was acknowledged can be read.

A send is acknowledged when it is on disk; a moment later the dispatcher makes it readable. The
dispatcher works in the order of the log, so once a message sent afterwards can be read, everything
before it has its queue and index entries.
"""

from __future__ import annotations

from lakemq import Client

_TOPIC = "test-barrier"
_WAIT_MS = 30_000


def await_dispatch(client: Client) -> None:
    """Returns when everything acknowledged before this call can be read and found.

    Raises:
        AssertionError: The broker did not get there in time.
    """
    sent = client.send(_TOPIC, "barrier", queue_id=0)
    pulled = client.pull(_TOPIC, 0, sent.queue_offset, wait_ms=_WAIT_MS)
    assert pulled.status == "FOUND", f"the dispatcher is more than {_WAIT_MS} ms behind"
