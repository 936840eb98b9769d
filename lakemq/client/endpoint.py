"""Where the brokers are, and who vouches for them: option, environment variable, default.

Owns their names and their order, and how a list of addresses is written.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from store_native.errors import InvalidRequest

ENDPOINT_VARIABLE = "LAKEMQ_ENDPOINT"
CA_FILE_VARIABLE = "LAKEMQ_CA_FILE"
DEFAULT_ENDPOINT = "http://127.0.0.1:8090"

Endpoint = str | Sequence[str]
"""One address, several in one text with commas between them, or a sequence of addresses."""


def chosen_endpoints(given: Endpoint | None) -> tuple[str, ...]:
    """Returns the addresses to use: what was given, else the environment's, else the default.

    >>> chosen_endpoints("http://a:9876, http://b:9876")
    ('http://a:9876', 'http://b:9876')

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, there are nothing but commas.
    """
    said = given or os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT
    parts = said.split(",") if isinstance(said, str) else said
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not found:
        raise InvalidRequest("ARGUMENT_ILLEGAL", f"{said!r} names no endpoint such as {DEFAULT_ENDPOINT}")
    return found


def chosen_ca_file(given: str | None) -> str | None:
    """Returns whose certificates are believed: what was given, else the environment's; None: the system's."""
    return given or os.environ.get(CA_FILE_VARIABLE) or None


def name_of_ca_file(ca_file: str | None, given_as: str = "ca_file") -> str:
    """Returns what a user set to choose the file: the environment's variable, else what it is given as."""
    return CA_FILE_VARIABLE if ca_file and ca_file == os.environ.get(CA_FILE_VARIABLE) else given_as


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    """Adds ``--endpoint`` to a command or a job."""
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="the broker; or name servers or brokers, separated by commas "
        f"(default: the environment's {ENDPOINT_VARIABLE}, else {DEFAULT_ENDPOINT})",
    )
