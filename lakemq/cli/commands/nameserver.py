"""``lakemq nameserver``: runs a name server until a signal stops it.

Owns the short options of the common settings; ingest_api.name_server does the work.
"""

from __future__ import annotations

import argparse

from ingest_api.name_server import serve_names
from ingest_api.process_settings import NameServerSettings
from ingest_api.settings import known_settings
from lakemq.cli import stdin_end
from lakemq.cli.setting_options import Short, add_settings, load_given
from lakemq.cli.subparsers import Subparsers

_SHORT: Short = {
    "http.host": ("--host", "HOST", "address to listen on"),
    "http.port": ("--port", "PORT", "port to listen on, 0 for a free one"),
    "cluster_secret_file": (
        "--cluster-secret-file",
        "FILE",
        "what brokers prove that they know; without one only those of this machine register",
    ),
    "http.insecure": (
        "--insecure",
        None,
        "allow an address other machines reach, although questions are not authenticated yet",
    ),
    "http.allowed_hosts": (
        "--allowed-host",
        "NAME",
        "a further name by which requests may reach the name server (may be repeated)",
    ),
    "heartbeat_timeout_s": ("--heartbeat-timeout", "SECONDS", "a broker silent for longer is dropped"),
    "tls.cert": (
        "--tls-cert",
        "FILE",
        "certificate, in PEM form: every port speaks TLS then",
    ),
    "tls.key": ("--tls-key", "FILE", "the certificate's private key"),
    "tls.ca": (
        "--tls-ca",
        "FILE",
        "authorities whose certificates are believed; none: the system's",
    ),
    "log.format": ("--log-format", None, "how log lines look"),
    "log.level": ("--log-level", None, "which log lines are written"),
}


def register(subparsers: Subparsers) -> None:
    """Adds the command and its options."""
    parser = subparsers.add_parser(
        "nameserver",
        help="run a name server",
        usage="lakemq nameserver [--port PORT] [option ...]",
        description=(
            "Runs a name server until SIGTERM or Ctrl-C. Brokers register with it (lakemq serve --nameserver "
            "URL), clients ask it who holds a topic. Several need not know of each other."
        ),
    )
    stdin_end.add_option(parser)
    add_settings(parser, known_settings(NameServerSettings), _SHORT)


def run(args: argparse.Namespace) -> int:
    """Runs the name server; returns 0 after a graceful stop.

    Raises:
        WrongUsage: An option is wrong.
        LakeMQError: Another setting is wrong, or the port is taken.
    """
    stdin_end.watch(args)
    return serve_names(load_given(NameServerSettings, args), _announce)


def _announce(line: str) -> None:
    print(line, flush=True)
