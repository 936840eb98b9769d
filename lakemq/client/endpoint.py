"""Where the broker is: the option, the environment variable, the default.

Owns their names and their order.
"""

from __future__ import annotations

import argparse
import os

ENDPOINT_VARIABLE = "LAKEMQ_ENDPOINT"
DEFAULT_ENDPOINT = "http://127.0.0.1:8090"


def chosen_endpoint(given: str | None) -> str:
    """Returns the address to use: what was given, else the environment's, else the default."""
    return given or os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    """Adds ``--endpoint`` to a command or a job."""
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help=f"the broker (default: the environment's {ENDPOINT_VARIABLE}, else {DEFAULT_ENDPOINT})",
    )
