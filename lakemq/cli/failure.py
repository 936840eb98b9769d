"""How a command says that it cannot go on; app.py prints the text and picks the exit code."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command could not do what it was asked; exit code 1. The text is for a person."""


class WrongUsage(Exception):
    """The arguments do not fit together in a way argparse cannot see; exit code 2."""
