"""``lakemq serve``: runs a broker until it is told to stop.

Owns the options and how they become settings; ingest_api.server does the work.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ingest_api.server import serve
from ingest_api.settings import load_settings


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command and its options."""
    parser = subparsers.add_parser(
        "serve",
        help="run a broker",
        description=(
            "Runs a broker on one store until SIGTERM or Ctrl-C. "
            "Options win over LAKEMQ_* variables (LAKEMQ_HTTP_PORT), those over the file, "
            "the file over the defaults."
        ),
    )
    parser.add_argument("--store", metavar="DIR", help="the store's directory (default: ./store)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on, 0 for a free one (default: 8090)")
    parser.add_argument(
        "--flush",
        choices=("sync", "async"),
        help="sync: answer when the message is on disk (default); async: when it is in the system's memory",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with further settings")
    parser.add_argument("--broker-name", metavar="NAME", help="the broker's name (default: broker-a)")
    parser.add_argument("--cluster", metavar="NAME", help="the cluster's name (default: DefaultCluster)")
    parser.add_argument(
        "--insecure",
        action="store_const",
        const=True,
        help="allow an address other machines reach, although requests are not authenticated yet",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        metavar="NAME",
        help="a further name by which requests may reach the broker (may be repeated)",
    )
    parser.add_argument("--log-format", choices=("plain", "json"), help="how log lines look (default: plain)")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="default: info")


def run(args: argparse.Namespace) -> int:
    """Runs the broker; returns 0 after a graceful stop.

    Raises:
        LakeMQError: A setting is wrong, the port is taken, or the store does not open.
    """
    settings = load_settings(
        args.config,
        {
            "store.path": args.store,
            "http.host": args.host,
            "http.port": args.port,
            "store.flush": args.flush,
            "broker_name": args.broker_name,
            "cluster": args.cluster,
            "http.insecure": args.insecure,
            "http.allowed_hosts": args.allowed_host,
            "log.format": args.log_format,
            "log.level": args.log_level,
        },
        os.environ,
    )
    return serve(settings, _announce)


def _announce(line: str) -> None:
    print(line, flush=True)
