"""``--until-stdin-ends``: a broker or name server that stops when the process that started it is gone.

Owns the option and what it does.

Threads: one that reads standard input until its end; what it reads is thrown away.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading

_STDIN = 0
_PIECE_BYTES = 4_096


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option to a command."""
    parser.add_argument(
        "--until-stdin-ends",
        action="store_true",
        help="also stop, as at SIGTERM, when standard input ends: a pipe from a process that was killed does",
    )


def watch(args: argparse.Namespace) -> None:
    """Watches standard input, where that was asked for."""
    if args.until_stdin_ends:
        threading.Thread(target=_stop_at_end, name="lakemq-stdin", daemon=True).start()


def _stop_at_end() -> None:
    while os.read(_STDIN, _PIECE_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
