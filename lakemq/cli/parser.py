"""How wrong usage is said: the error, and where the usage is.

Owns those two lines; a usage of twenty lines would push the error off the screen.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

USAGE = 2
"""The exit code."""


class Parser(argparse.ArgumentParser):
    """The command line's parser; those of its commands and verbs are made as one too."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse for what it cannot parse: ends the process with code 2."""
        if message == "the following arguments are required: verb":
            choices = [action.choices for action in self._actions if isinstance(action.choices, dict)]
            message = f"a verb is missing: {', '.join(verb for verbs in choices for verb in verbs)}"
        self.exit(USAGE, f"{self.prog}: error: {message}\nSee '{self.prog} --help' for usage.\n")
