"""``lakemq completion``: what a shell needs to complete commands, options and choices.

Owns which options take files; shtab writes the script from the parsers of all commands.
"""

from __future__ import annotations

import argparse

import shtab

from lakemq.cli import app
from lakemq.cli.subparsers import Subparsers

_FILES = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}


def register(subparsers: Subparsers) -> None:
    """Adds the command and its argument."""
    parser = subparsers.add_parser(
        "completion",
        help="print what completes lakemq's commands in a shell",
        description='Prints a script for a shell: eval "$(lakemq completion bash)" completes from then on.',
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    parser = app.whole_parser()
    _name_files(parser)
    print(shtab.complete(parser, args.shell))
    return 0


def _name_files(parser: argparse.ArgumentParser) -> None:
    """Marks the arguments whose metavar says that they are files."""
    for action in parser._actions:  # noqa: SLF001  # argparse has no public list of them
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                _name_files(command)
        elif isinstance(action.metavar, str) and action.metavar in _FILES:
            action.complete = _FILES[action.metavar]  # type: ignore[attr-defined]  # where shtab looks
