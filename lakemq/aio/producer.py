"""The calls of the producer, awaited.

Owns nothing but which calls there are: each is the one of :class:`lakemq.Producer`, on a thread.

Invariants: as lakemq.Producer's; a send that is cancelled while it runs goes on to its end all the same.

Threads: one event loop; sends run on those of threads.py, flush and close on asyncio's own, so that they keep
their time-outs where all of those are taken.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Self

from lakemq import producer as synchronous
from lakemq.aio.client import Client
from lakemq.aio.threads import CallThreads
from lakemq.client import Message, SendResult
from lakemq.client.deadline import Deadline
from lakemq.client.message import Body
from lakemq.client.transport import check_retry_until
from lakemq.lanes import QueueSelector

MOST_SENDS = 16


class Producer:
    """Sends messages to a broker, or to the brokers of a cluster, for one event loop.

    >>> async with Producer("http://127.0.0.1:8090", "orders") as producer:
    ...     await producer.send({"id": 17}, tags="created", keys=["17"])  # stored when it returns
    ...     future = await producer.send_later({"id": 18})                # stored when it is done
    ...     await future

    Args:
        endpoint: As for :class:`lakemq.Producer`; or a client of ``lakemq.aio`` to share, with its threads.
        topic: Where messages go that name no topic of their own.
        most_sends: How many calls are under way at a time; further ones wait, a ``send`` as long as it may
            last, then it raises Unavailable, and nothing was sent. A shared client has its own.
        **options: Those of :class:`lakemq.Producer`.
    """

    def __init__(
        self,
        endpoint: str | Client | None = None,
        topic: str | None = None,
        *,
        most_sends: int = MOST_SENDS,
        **options: Any,
    ) -> None:
        self._owns_threads = not isinstance(endpoint, Client)
        if isinstance(endpoint, Client):
            self._threads = endpoint.threads
            self._producer = synchronous.Producer(endpoint.synchronous, topic, **options)
        else:
            self._threads = CallThreads(most_sends, "producer")
            self._producer = synchronous.Producer(endpoint, topic, **options)

    async def send(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        idempotency_key: str | None = None,
        retry_until: float | None = None,
        select_queue: QueueSelector | None = None,
        **fields: Any,
    ) -> SendResult:
        """Sends one message now and returns where it is stored; as :meth:`lakemq.Producer.send`."""
        send = partial(
            self._producer.send,
            body,
            topic=topic,
            idempotency_key=idempotency_key,
            retry_until=retry_until,
            select_queue=select_queue,
            **fields,
        )
        check_retry_until(retry_until)
        within_s = self._producer.send_timeout_s if retry_until is None else retry_until
        return await self._threads.run_within(within_s, send)

    async def send_one_way(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        select_queue: QueueSelector | None = None,
        **fields: Any,
    ) -> None:
        """Sends one message and waits for no flush and no slave; as :meth:`lakemq.Producer.send_one_way`."""
        send = partial(self._producer.send_one_way, body, topic=topic, select_queue=select_queue, **fields)
        await self._threads.run_within(self._producer.send_timeout_s, send)

    async def send_later(
        self,
        body: Body | Message,
        *,
        topic: str | None = None,
        select_queue: QueueSelector | None = None,
        **fields: Any,
    ) -> asyncio.Future[SendResult]:
        """Puts one message into the next batch, as :meth:`lakemq.Producer.send_later`.

        Returns at once but while the buffer is full, or other calls have all threads. Messages that are to be
        stored in an order are put in it by one task, each behind the one before.
        """
        put = partial(self._producer.send_later, body, topic=topic, select_queue=select_queue, **fields)
        future = await self._threads.run(put)
        return asyncio.wrap_future(future)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the synchronous one's
        """Sends what is waiting and returns when each of its futures has ended.

        It does not wait for a thread behind other calls, nor does :meth:`close`.

        Raises:
            TimeoutError: As :meth:`lakemq.Producer.flush`.
        """
        await asyncio.to_thread(self._producer.flush, timeout)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the synchronous one's
        """Flushes, and ends the producer's thread; further sends raise Closed.

        Args:
            timeout: Seconds; None waits as long as the sends take. When the time is over, what send_later
                was given ends as :meth:`lakemq.Producer.close` says, and a send under way goes on.
        """
        deadline = None if timeout is None else Deadline(timeout)
        await asyncio.to_thread(self._producer.close, timeout)
        if self._owns_threads:
            await self._threads.close(None if deadline is None else max(0.0, deadline.left()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
