"""The type of argparse's collection of commands, or of a noun's verbs, which argparse has no public name for.

Owns that name; imports nothing that costs a start.
"""

from __future__ import annotations

import argparse
from typing import TypeAlias

from lakemq.cli.parser import Parser

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: SLF001 - the one there is
