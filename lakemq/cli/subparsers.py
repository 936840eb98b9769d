"""Where a command's module puts its parsers.

Owns the type of the argument of every ``register``; imports nothing that costs a start.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - the one there is
