"""A run of chaos from the command line: how many rounds, whose choices they repeat, what it says and leaves.

Owns the arguments of every kind of chaos, what is refused of them, and the directory of a run: it is removed
when all held, and stays to be looked at when a rule was broken.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


class ChaosFailure(AssertionError):
    """A rule was broken; the text says which, in which round, and where the files are."""


def add_rounds(parser: argparse.ArgumentParser) -> None:
    """Adds ``--rounds``, of which there is one at least, and ``--seed``."""
    parser.add_argument("--rounds", type=_count, default=10)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices; timing still differs")


def run_from_command_line(
    name: str,
    options: argparse.Namespace,
    run: Callable[[int, int, Path], int],
    *,
    directory: Path | None = None,
    shape: str = "",
) -> int:
    """Runs what the arguments say; returns the exit code.

    Args:
        name: Of the kind of chaos.
        options: With what `add_rounds` added.
        run: Takes the number of rounds, the seed and the directory; returns how many acknowledged messages
            it has checked, or raises ChaosFailure.
        directory: Where the stores are kept, for good; None: in one of the run's own.
        shape: What else the run's first line says.
    """
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 30)
    home = directory or Path(tempfile.mkdtemp(prefix=f"lakemq-{name.lower()}-"))
    what = f"{name} rounds={options.rounds} seed={seed}"
    print(f"{what}{shape and ' ' + shape} directory={home}", flush=True)
    begun = time.monotonic()
    try:
        checked = run(options.rounds, seed, home)
    except ChaosFailure as failure:
        print(f"{name} failed: {failure}", file=sys.stderr)
        return 1
    seconds = time.monotonic() - begun
    print(
        f"{name} rounds={options.rounds} acknowledged={checked} lost=0 phantom=0 seconds={seconds:.0f} held"
    )
    if directory is None:
        shutil.rmtree(home)
    return 0


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} tries nothing: 1 at least")
    return count
