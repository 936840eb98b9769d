"""What users import: ``from lakemq import Client, Message, Producer``.

Owns the public names and nothing else; whatever needs Spark or the broker lives behind its own
module (``lakemq.spark``, ``lakemq.cli``), so that this import stays small and quick.
"""

from __future__ import annotations

from typing import Any

from lakemq.client import Client, Message
from lakemq.producer import Producer

__all__ = ["Client", "Message", "Producer", "__version__"]


def __getattr__(name: str) -> Any:
    """Reads the version from the installed distribution when somebody asks for it."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("lakemq")
        except PackageNotFoundError:
            return "0+unknown"  # runs from a checkout nobody installed
    raise AttributeError(f"module 'lakemq' has no attribute {name!r}")
