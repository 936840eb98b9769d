"""The version of the installed distribution.

Owns what is said where nothing is installed.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def lakemq_version() -> str:
    """Returns the version; ``0+unknown`` when the package runs without being installed."""
    try:
        return version("lakemq")
    except PackageNotFoundError:
        return "0+unknown"
