"""A small send that waits for its flush, in the place where uvicorn keeps the connection's request.

Owns what uvicorn asks of a request: whether the next one has to queue; it hears of a stop and of a lost
client.
"""

from __future__ import annotations


class HeldSend:
    """Takes the place of uvicorn's cycle."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    def __init__(self) -> None:
        self.response_complete = True
        self.disconnected = False
        self.keep_alive = True

    @property
    def message_event(self) -> HeldSend:
        """Called by uvicorn at a stop and when the client is lost."""
        return self

    def set(self) -> None:
        """Nobody waits for this request's body."""
