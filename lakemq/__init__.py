"""What users import: ``from lakemq import Client, Message, Producer``.

Owns the public names and nothing else; whatever needs Spark or the broker lives behind its own
module (``lakemq.spark``, ``lakemq.cli``), and the names are loaded when they are asked for, so that
this import stays small and quick: commands such as ``lakemq sql`` need no HTTP client.

    client/            the HTTP client; aio/ has it and the producer for asyncio
    producer.py        sends, gathered for a moment: send_queue.py and pending_messages.py have what waits,
                       senders.py the threads, batch_sender.py what an answer makes of a batch; lanes.py
                       knows where they go, producer_numbers.py how long and how much, unsent_messages.py
                       what is said of those that a program left behind
    upload/            sends files and streams
    handler.py         what a consumer's handler sees and says
    spark.py           a local Spark session, groups of DataFrames; java.py, jvm_output.py, spark_daemon.py,
                       interrupted_child.py, own_packages.py, sent_files.py and worker_site/ are what it needs
    cli/               the ``lakemq`` command; __main__.py is ``python -m lakemq``
    terminal/          what a person sees of it
    quickstart/        the whole path once
    broker_process.py  a broker as a child process; local_cluster.py is a cluster of them
    duration.py        `500ms`, `7d`; argument_types.py reads them, and numbers within bounds, for argparse
    tls/               certificates, and connections behind them
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would be imported before Ctrl-C is taken care of (cli/start.py)
if TYPE_CHECKING:
    from typing import Any

    from lakemq.client import Client, Message
    from lakemq.producer import Producer

__all__ = ["Client", "Message", "Producer", "__version__"]


_HOMES = {"Client": "lakemq.client", "Message": "lakemq.client", "Producer": "lakemq.producer"}


def __getattr__(name: str) -> Any:
    """Loads a public name when somebody asks for it; the version is the installed distribution's."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("lakemq")
        except PackageNotFoundError:
            return "0+unknown"  # runs from a checkout nobody installed
    raise AttributeError(f"module 'lakemq' has no attribute {name!r}")
