"""How wrong usage is said: the error, and where the usage is.

Owns those two lines; a usage of twenty lines would push the error off the screen.

Invariants: what was typed and is no argument is named, whatever else is wrong. An option has its whole name,
so that a later one that begins alike changes nothing.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from lakemq.terminal.guard import one_line

USAGE = 2
"""The exit code."""

_MISSING = "the following arguments are required: "
_MISSING_ANY = re.compile(rf"{_MISSING}|one of the arguments .* is required")
_NEAR = 0.75
"""How like another one an option is that may be meant."""


class Parser(argparse.ArgumentParser):
    """The command line's parser; those of its commands and verbs are made as one too."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.allow_abbrev = False
        self._given: Sequence[str] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Called by argparse, of a command's parser too; remembers what was given."""
        self._given = args
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Called by argparse for what it cannot parse: ends the process with code 2."""
        if message == f"{_MISSING}verb":
            choices = [action.choices for action in self._actions if isinstance(action.choices, dict)]
            message = f"a verb is missing: {', '.join(verb for verbs in choices for verb in verbs)}"
        elif _MISSING_ANY.match(message) and (unknown := self._unknown()):
            message = f"{_listed(unknown)}; {message}{self._guess(unknown[0], message)}"
        self.exit(USAGE, f"{self.prog}: error: {one_line(message)}\nSee '{self.prog} --help' for usage.\n")

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Complains about arguments that the command does not have; names the option that may be meant."""
        self.error(f"{_listed(unknown)}{self._guess(unknown[0])}")

    def _guess(self, unknown: str, missing: str = "") -> str:
        options = [option for action in self._actions for option in action.option_strings]
        named = unknown.partition("=")[0]
        near = difflib.get_close_matches(named, options, n=1, cutoff=_NEAR)
        if named.startswith("--"):
            near += [option for option in options if option.startswith(named)]
        elif not named.startswith("-"):
            may_be = {"--input": True, "--group": "--group" in missing}
            near = [f"{option} {unknown}" for option in options if may_be.get(option)]
        return f"; did you mean {near[0]}?" if near else ""

    def _unknown(self) -> Sequence[str]:
        """What of the given arguments is none; argparse does not look for it where others are missing."""
        all_of_them: list[Any] = [*self._actions, *self._mutually_exclusive_groups]
        needed = [each for each in all_of_them if each.required]
        for each in needed:
            each.required = False
        try:
            return super().parse_known_args(self._given, argparse.Namespace())[1]
        finally:
            for each in needed:
                each.required = True


def _listed(unknown: Sequence[str]) -> str:
    return f"unrecognized arguments: {' '.join(unknown)}"
