"""The client and the producer for programs of asyncio: ``from lakemq.aio import Client, Producer``.

Owns the public names of the package. Names, arguments, results and errors are those of ``lakemq.Client`` and
``lakemq.Producer``, whose requests these are: each call under way takes a thread.

    client.py     the calls of the client, awaited
    producer.py   those of the producer
    threads.py    where they run meanwhile
"""

from __future__ import annotations

from lakemq.aio.client import Client
from lakemq.aio.producer import Producer

__all__ = ["Client", "Producer"]
