"""The calls of the client, awaited.

Owns nothing but which calls there are: each is the one of :class:`lakemq.Client`, on a thread.

Invariants: as lakemq.Client's; a call that is cancelled while it runs goes on to its end all the same, so
what it sends may be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from lakemq import client as synchronous
from lakemq.aio.threads import CallThreads
from lakemq.client.endpoint import Endpoint
from lakemq.client.transport import check_retry_until

P = ParamSpec("P")
R = TypeVar("R")


def _awaited(
    method: Callable[Concatenate[synchronous.Client, P], R],
) -> Callable[Concatenate[Client, P], Coroutine[Any, Any, R]]:
    """Makes a call of the synchronous client one that is awaited."""

    async def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        until: Any = kwargs.get("retry_until")
        check_retry_until(until)
        return await self.threads.run_within(
            self.synchronous.call_timeout_s if until is None else until,
            partial(method, self.synchronous, *args, **kwargs),
        )

    return update_wrapper(call, method)


class Client:
    """Speaks to a LakeMQ broker, or to the brokers of a cluster, for one event loop.

    >>> async with Client("http://127.0.0.1:8090") as client:
    ...     result = await client.send("orders", {"id": 17}, keys=["17"])
    ...     message = await client.message(result.message_id)

    Args:
        endpoint, timeout_s, retries, retry_until, avoid_slow, ca_file, compression: As
            :class:`lakemq.Client`'s.
        pool_size: How many calls are under way at a time, a long poll among them. A further one waits as long
            as it may last, then raises Unavailable, and nothing of it was done; so a call ends within twice
            its time.

    Attributes:
        synchronous: The client that makes the requests.
        threads: Where it makes them.
    """

    def __init__(
        self,
        endpoint: Endpoint | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 2,
        pool_size: int = 16,
        retry_until: float | None = None,
        avoid_slow: bool = False,
        ca_file: str | None = None,
        compression: str = "none",
    ) -> None:
        self.synchronous = synchronous.Client(
            endpoint,
            timeout_s=timeout_s,
            retries=retries,
            pool_size=pool_size,
            retry_until=retry_until,
            avoid_slow=avoid_slow,
            ca_file=ca_file,
            compression=compression,
        )
        self.threads = CallThreads(pool_size, "client")
        self._is_of_broker = False

    send = _awaited(synchronous.Client.send)
    send_message = _awaited(synchronous.Client.send_message)
    send_one_way = _awaited(synchronous.Client.send_one_way)
    send_many = _awaited(synchronous.Client.send_many)
    send_ndjson = _awaited(synchronous.Client.send_ndjson)
    send_arrow = _awaited(synchronous.Client.send_arrow)

    pull = _awaited(synchronous.Client.pull)
    pull_arrow = _awaited(synchronous.Client.pull_arrow)
    queues = _awaited(synchronous.Client.queues)
    message_queues = _awaited(synchronous.Client.message_queues)
    offset_by_time = _awaited(synchronous.Client.offset_by_time)
    message = _awaited(synchronous.Client.message)
    query = _awaited(synchronous.Client.query)

    topics = _awaited(synchronous.Client.topics)
    topic = _awaited(synchronous.Client.topic)
    put_topic = _awaited(synchronous.Client.put_topic)
    delete_topic = _awaited(synchronous.Client.delete_topic)
    order_conf = _awaited(synchronous.Client.order_conf)
    order_topic = _awaited(synchronous.Client.order_topic)
    groups = _awaited(synchronous.Client.groups)
    group = _awaited(synchronous.Client.group)
    put_group = _awaited(synchronous.Client.put_group)
    delete_group = _awaited(synchronous.Client.delete_group)
    group_offsets = _awaited(synchronous.Client.group_offsets)
    commit_offsets = _awaited(synchronous.Client.commit_offsets)
    count_batch = _awaited(synchronous.Client.count_batch)
    reset_offsets = _awaited(synchronous.Client.reset_offsets)
    acquire_lease = _awaited(synchronous.Client.acquire_lease)
    release_lease = _awaited(synchronous.Client.release_lease)

    route = _awaited(synchronous.Client.route)
    never_answered = _awaited(synchronous.Client.never_answered)
    cluster = _awaited(synchronous.Client.cluster)
    is_cluster = _awaited(synchronous.Client.is_cluster)
    replication = _awaited(synchronous.Client.replication)
    promote = _awaited(synchronous.Client.promote)
    ready = _awaited(synchronous.Client.ready)
    metrics = _awaited(synchronous.Client.metrics)

    async def brokers(self, topic: str | None = None) -> dict[str, Client]:
        """Returns a client for each broker; they live as long as this one, and share its threads.

        To close one of them closes nothing: that is for this one.
        """
        found = await self._run(partial(self.synchronous.brokers, topic))
        return {name: self._over(broker) for name, broker in found.items()}

    async def broker(self, name: str) -> Client:
        """Returns the client of one broker; see :meth:`brokers`."""
        return self._over(await self._run(partial(self.synchronous.broker, name)))

    @property
    def endpoint(self) -> str:
        """As :attr:`lakemq.Client.endpoint`."""
        return self.synchronous.endpoint

    async def close(self) -> None:
        """Closes the connections; returns when what is under way has ended. Further calls raise Closed."""
        if self._is_of_broker:
            return
        self.synchronous.close()
        await self.threads.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.endpoint!r})"

    async def _run(self, call: Callable[[], R]) -> R:
        return await self.threads.run_within(self.synchronous.call_timeout_s, call)

    def _over(self, broker: synchronous.Client) -> Client:
        client = type(self).__new__(type(self))
        client.__dict__.update(synchronous=broker, threads=self.threads, _is_of_broker=True)
        return client
