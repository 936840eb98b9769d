"""LakeMQ's own top-level packages keep their names, whatever lies beside the user.

Owns the rule of imports.

Invariants: ``jobs``, ``delta_tables`` and the others are the ones that were installed with ``lakemq``, even
when the working directory or PYTHONPATH holds a user's package of that name; the modules of the user's
package are found all the same, as long as ours has none of that name (its ``__init__`` is not run). Nothing
is imported by this.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

NAMES = frozenset(
    {"delta_tables", "ha_replicator", "ingest_api", "jobs", "store_native", "structured_streaming"}
)
_HOME = str(Path(__file__).resolve().parents[1])


def claim() -> None:
    """Makes this process import LakeMQ's packages from where ``lakemq`` is; once is enough."""
    if not any(isinstance(finder, _Own) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Own())
        sys.meta_path.append(_Users())


class _Own(MetaPathFinder):
    """Finds our packages before the path is searched."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [_HOME]) if fullname in NAMES else None


class _Users(MetaPathFinder):
    """Finds the modules of a user's package that has the name of one of ours, after ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if not name or package.partition(".")[0] not in NAMES:
            return None
        folder = package.replace(".", "/")
        return PathFinder.find_spec(fullname, [str(Path(entry, folder)) for entry in sys.path])
