"""Places of directories that others name.

Owns what is refused of them before anything is made there.
"""

from __future__ import annotations

import os.path
from pathlib import Path


def why_no_directory(path: Path) -> str | None:
    """Why no directory can be at a path: a file or a link to nothing is there, or above it; else None."""
    for place in (path, *path.parents):
        if os.path.isdir(place):  # noqa: PTH112  # it raises nothing
            return None
        if os.path.exists(place):  # noqa: PTH110
            if place == path:
                return f"{path} is a file, not a directory"
            return f"{place} is a file, so that there is no {path}"
        if os.path.islink(place):  # noqa: PTH114
            return f"{place} is a link to {os.readlink(place)}, which is not there"  # noqa: PTH115
    return None
