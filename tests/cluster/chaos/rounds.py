"""The arguments that every kind of chaos takes: how many rounds, and whose choices they repeat.

Owns what is refused of them.
"""

from __future__ import annotations

import argparse


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """Adds ``--rounds``, of which there is one at least, and ``--seed``."""
    parser.add_argument("--rounds", type=_count, default=10)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices; timing still differs")


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} tries nothing: 1 at least")
    return count
