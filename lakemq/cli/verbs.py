"""The verbs of a noun (``lakemq topic create``): their parsers, and how a verb that asks the broker runs.

Owns which arguments every verb has.

Invariants: a verb's parser carries its action; what the action returns is the exit code, None is 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from lakemq.cli import options
from lakemq.cli.subparsers import Subparsers
from lakemq.client import Client
from lakemq.client.endpoint import add_endpoint


def add_verb(
    verbs: Subparsers, name: str, action: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    """Adds a verb that needs no broker; returns its parser for further arguments."""
    parser = verbs.add_parser(name, help=text, description=text)
    parser.set_defaults(action=action)
    return parser


def add_broker_verb(
    verbs: Subparsers, name: str, action: Callable[[Client, argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    """Adds a verb that asks the broker: it has ``--endpoint`` and ``--format`` and gets a client."""
    parser = add_verb(verbs, name, partial(_with_client, action), text)
    add_endpoint(parser)
    options.add_format(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the verb that was parsed; returns the exit code."""
    code: int | None = args.action(args)
    return code or 0


def _with_client(
    action: Callable[[Client, argparse.Namespace], int | None], args: argparse.Namespace
) -> int | None:
    with options.connect(args) as client:
        return action(client, args)
