"""Settings as options of a command: one for each, by its name, and short ones for the common.

Owns how a setting looks on a command line.

Invariants: an option that is not given is None, and leaves the word to the environment and the file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ingest_api.process_settings import ProcessSettings
from ingest_api.setting_fields import SettingField
from ingest_api.setting_sources import load
from ingest_api.settings import known_settings
from lakemq.terminal.failure import WrongUsage, described
from store_native.errors import InvalidRequest

Model = TypeVar("Model", bound=ProcessSettings)

Short = Mapping[str, tuple[str, str | None, str]]
"""Setting to its short option, its metavar and what it means."""

_NEVER_ON_A_COMMAND_LINE = ("cluster_secret",)
"""Everybody on a machine can read it; the environment and a file are the ways."""


def add_settings(parser: argparse.ArgumentParser, settings: Mapping[str, SettingField], short: Short) -> None:
    """Adds ``--config`` and an option for every setting."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with settings")
    others = parser.add_argument_group(
        "further settings", "Each setting of the file is an option by the same name; docs/http.md has them."
    )
    for name, field in settings.items():
        if name in _NEVER_ON_A_COMMAND_LINE:
            parser.set_defaults(**{name: None})
        elif name in short:
            option, metavar, meaning = short[name]
            _add(parser, tuple(dict.fromkeys((option, f"--{name}"))), field, metavar, f"{meaning} ")
        else:
            _add(others, (f"--{name}",), field, name.rpartition("_")[2].upper(), "")


def load_given(model: type[Model], args: argparse.Namespace) -> Model:
    """Builds the settings of a process from its command line, its environment and its file.

    Raises:
        WrongUsage: One that is an option here is wrong, or does not go with another.
        InvalidRequest: ARGUMENT_ILLEGAL, another one is.
    """
    given = {name: getattr(args, name) for name in known_settings(model)}
    try:
        return load(model, args.config, given, os.environ)
    except InvalidRequest as error:
        # A refusal names all settings that it is about.
        if any(name in error.detail for name, value in given.items() if value is not None):
            raise WrongUsage(described(error)) from error
        raise


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
