"""P2's yardstick: a raw ASGI application that reads a request's body and answers what a send would answer.

Owns nothing else; whatever the broker does beyond this is LakeMQ's own cost. Run by uvicorn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

ANSWER: Final = (
    b'{"status":"SEND_OK","message_id":"7F0000010000123400000000000000A1","offset_message_id":'
    b'"7F00000100001F9A0000000000001234","topic":"bench","broker_name":"broker-a","queue_id":0,'
    b'"queue_offset":1234567,"duplicate":false}'
)
HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
Event = MutableMapping[str, Any]


async def app(
    scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
) -> None:
    """Answers every request."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
