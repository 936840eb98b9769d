"""``lakemq serve``: runs a broker until a signal stops it.

Owns the options: one for each setting, by its name, and short ones for the common; ingest_api.server does
the work.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ingest_api.server import serve
from ingest_api.setting_fields import SettingField
from ingest_api.setting_sources import load_settings
from ingest_api.settings import known_settings
from lakemq.cli.subparsers import Subparsers

_SHORT = {
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
    "log.format": ("--log-format", None, "how log lines look"),
    "log.level": ("--log-level", None, "which log lines are written"),
}

_NEVER_ON_A_COMMAND_LINE = ("cluster_secret",)
"""Everybody on a machine can read it; the environment and a file are the ways."""


def register(subparsers: Subparsers) -> None:
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
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")
    others = parser.add_argument_group(
        "further settings", "Each setting of the file is an option by the same name; docs/http.md has them."
    )
    for name, field in known_settings().items():
        if name in _NEVER_ON_A_COMMAND_LINE:
            parser.set_defaults(**{name: None})
        elif name in _SHORT:
            option, metavar, meaning = _SHORT[name]
            _add(parser, tuple(dict.fromkeys((option, f"--{name}"))), field, metavar, f"{meaning} ")
        else:
            _add(others, (f"--{name}",), field, name.rpartition("_")[2].upper(), "")


def _add(
    parser: argparse._ActionsContainer,
    names: tuple[str, ...],
    field: SettingField,
    metavar: str | None,
    meaning: str,
) -> None:
    """Adds a setting's option; one not given is None, and leaves the word to the environment and the file."""
    default = f"default: {field.default}" if field.default not in ("", ()) else "default: none"
    if field.bounds is not None:
        default += f", {field.bounds[0]} to {field.bounds[1]}"
    how: dict[str, Any] = {"dest": field.name, "help": f"{meaning}({default})", "default": None}
    if field.name == "store.faults":  # for tests
        how["help"] = argparse.SUPPRESS
    if field.kind is bool:
        # A flag that is off has one form, so that --insecure has no opposite to be mistaken for it.
        on = field.default is False
        how |= {"action": "store_const", "const": True} if on else {"action": argparse.BooleanOptionalAction}
    elif field.kind is tuple:
        how |= {"action": "append", "metavar": metavar}
    elif field.choices:
        how |= {"choices": field.choices}
    else:
        how |= {"type": field.kind, "metavar": metavar}
    parser.add_argument(*names, **how)


def run(args: argparse.Namespace) -> int:
    """Runs the broker; returns 0 after a graceful stop.

    Raises:
        LakeMQError: A setting is wrong, the port is taken, or the store does not open.
    """
    given = {name: getattr(args, name) for name in known_settings()}
    return serve(load_settings(args.config, given, os.environ), _announce)


def _announce(line: str) -> None:
    print(line, flush=True)
