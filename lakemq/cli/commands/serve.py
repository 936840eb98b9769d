"""``lakemq serve``: runs a broker until a signal stops it.

Owns the short options of the common settings; ingest_api.server does the work.
"""

from __future__ import annotations

import argparse

from ingest_api.server import serve
from ingest_api.settings import Settings, known_settings
from lakemq.cli import stdin_end
from lakemq.cli.setting_options import Short, add_settings, load_given
from lakemq.cli.subparsers import Subparsers

_SHORT: Short = {
    "store.path": ("--store", "DIR", "the store's directory"),
    "http.host": ("--host", "HOST", "address to listen on"),
    "http.port": ("--port", "PORT", "port to listen on, 0 for a free one"),
    "store.flush": (
        "--flush",
        None,
        "sync: answer when the message is on disk; async: when it is in the system's memory",
    ),
    "broker_name": ("--broker-name", "NAME", "the broker's name"),
    "cluster": ("--cluster", "NAME", "the cluster's name"),
    "replication.role": ("--role", None, "what the broker is to the others of its name"),
    "replication.broker_id": ("--broker-id", "N", "0 for the master, others for its slaves"),
    "replication.ha_port": ("--ha-port", "PORT", "port for slaves, 0 for a free one, -1 for none"),
    "replication.ha_protocol": ("--ha-protocol", None, "what master and slaves speak"),
    "replication.master": ("--master", "URL", "a slave's: where its master's API answers"),
    "replication.min_in_sync": (
        "--min-in-sync",
        "N",
        "a synchronous master's: so many slaves must have a message",
    ),
    "nameservers": ("--nameserver", "URL", "a name server to register with (may be repeated)"),
    "cluster_secret_file": (
        "--cluster-secret-file",
        "FILE",
        "what brokers prove to each other that they know",
    ),
    "http.insecure": (
        "--insecure",
        None,
        "allow an address other machines reach, although requests are not authenticated yet",
    ),
    "http.allowed_hosts": (
        "--allowed-host",
        "NAME",
        "a further name by which requests may reach the broker (may be repeated)",
    ),
    "tls.cert": ("--tls-cert", "FILE", "certificate, in PEM form: every port speaks TLS then"),
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
        "serve",
        help="run a broker",
        usage="lakemq serve [--store DIR] [--port PORT] [option ...]",
        description=(
            "Runs a broker on one store until SIGTERM or Ctrl-C. "
            "Options win over LAKEMQ_* variables (LAKEMQ_HTTP_PORT), those over the file, "
            "the file over the defaults."
        ),
    )
    stdin_end.add_option(parser)
    add_settings(parser, known_settings(), _SHORT)


def run(args: argparse.Namespace) -> int:
    """Runs the broker; returns 0 after a graceful stop.

    Raises:
        WrongUsage: An option is wrong.
        LakeMQError: Another setting is wrong, the port is taken, or the store does not open.
    """
    stdin_end.watch(args)
    return serve(load_given(Settings, args), _announce)


def _announce(line: str) -> None:
    print(line, flush=True)
