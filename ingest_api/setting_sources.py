"""Where settings come from: a TOML file, the environment, the command line.

Owns their order and their names: ``http.port`` in the file is ``LAKEMQ_HTTP_PORT`` in the environment and
``--http.port`` on the command line.

Invariants: what is wrong is refused by its full name before a socket or a file is opened, wherever it came
from; a typing error is no silent default. Other ``LAKEMQ_`` variables (the client's ``LAKEMQ_ENDPOINT``) are
passed over: nobody can tell whose they are. One that is nearly a setting's (``LAKEMQ_NAMESERVER``) or a
table's name (``LAKEMQ_LOG``) is refused with the names it may have meant.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_settings import (
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsError,
)

from ingest_api.process_settings import ProcessSettings
from ingest_api.setting_errors import explained, illegal
from ingest_api.setting_fields import SettingField
from ingest_api.settings import Settings, known_settings

Model = TypeVar("Model", bound=ProcessSettings)

# difflib's ratio: one letter of a setting's name amiss, and not another setting's name or another program's.
_NEARLY = 0.9


def load_settings(
    config: Path | None, overrides: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Settings:
    """Builds a broker's settings; see :func:`load`."""
    return load(Settings, config, overrides, environment)


def load(
    model: type[Model],
    config: Path | None,
    overrides: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> Model:
    """Builds the settings: defaults, then the file, then the environment, then the command line.

    Args:
        model: Those of a broker, or of a name server.
        config: A TOML file with the tables ``[http]``, ``[store]``, ``[limits]``, ``[log]``, or None.
        overrides: Dotted names (``http.port``) to values; None counts as not given.
        environment: Variables such as ``LAKEMQ_HTTP_PORT``; None means there are none.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL with the name in question.
    """
    known = known_settings(model)
    _check_variables(known, environment or {})
    given = {name: value for name, value in overrides.items() if value is not None}
    options = InitSettingsSource(model, _nested(given))
    file = InitSettingsSource(model, {} if config is None else _read(known, config))
    variables = EnvSettingsSource(model)
    variables.env_vars = {
        name.lower(): text for name, text in (environment or {}).items() if name == name.upper()
    }

    class Loaded(model):  # type: ignore[misc, valid-type]  # a class given
        @classmethod
        def settings_customise_sources(
            cls, *_: object, **__: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return options, variables, file

    def origin(name: str) -> str:
        variable = _variable(name)
        return f"--{name}" if name in given else variable if variable in (environment or {}) else ""

    try:
        return model(**dict(Loaded()))
    except ValidationError as error:
        raise explained(error, known, origin) from None
    except SettingsError:
        # Python reads no number of thousands of digits.
        longest = max(
            (name for name in environment or {} if name.startswith("LAKEMQ_")),
            key=lambda name: len((environment or {})[name]),
        )
        raise illegal(longest, "is no value of a setting: it is too long") from None


def _check_variables(known: Mapping[str, SettingField], environment: Mapping[str, str]) -> None:
    """Refuses one that is nearly a setting's, and one of a table: pydantic would take it for the whole."""
    for table in dict.fromkeys(name.partition(".")[0] for name in known if "." in name):
        variable = _variable(table)
        if (text := environment.get(variable)) is None:
            continue
        fields = [field for name, field in known.items() if name.startswith(f"{table}.")]
        meant = [field for field in fields if _may_be(text, field)] or fields
        names = ", ".join(_variable(field.name) for field in meant)
        raise illegal(variable, f"is no setting, [{table}] is a table of them; it may have meant {names}")
    variables = {_variable(name) for name in known}
    for variable in sorted(environment.keys() - variables):
        if variable.startswith("LAKEMQ_") and (near := get_close_matches(variable, variables, 1, _NEARLY)):
            raise illegal(variable, f"is no setting; it may have meant {near[0]}")


def _variable(name: str) -> str:
    return f"LAKEMQ_{name.replace('.', '_').upper()}"


def _may_be(text: str, field: SettingField) -> bool:
    if field.choices:
        return text.lower() in field.choices
    if field.kind is bool:
        return text.lower() in ("true", "false", "yes", "no", "on", "off")
    is_number = text.replace(".", "", 1).isdecimal()
    return is_number if field.kind in (int, float) else field.kind is str and not is_number


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for dotted, value in values.items():
        table, _, name = dotted.rpartition(".")
        (tree.setdefault(table, {}) if table else tree)[name] = value
    return tree


def _read(known: Mapping[str, SettingField], config: Path) -> dict[str, Any]:
    try:
        with config.open("rb") as file:
            tree = tomllib.load(file)
    except OSError as error:
        raise illegal("--config", f"cannot read {config}: {error.strerror}") from error
    except (RecursionError, ValueError) as error:  # TOMLDecodeError, not UTF-8, a number of too many digits
        raise illegal("--config", f"{config} is not TOML: {error}") from error
    _check_form(known, tree)
    return tree


def _check_form(known: Mapping[str, SettingField], tree: Mapping[str, Any]) -> None:
    """Refuses what the model would take from another source: names in another case, a list as one text."""
    tops = {name.partition(".")[0] for name in known}
    tables = {name.partition(".")[0] for name in known if "." in name}
    for top, values in tree.items():
        if top in tables and not isinstance(values, dict):
            raise illegal(top, f"must be a table, is {values!r}")  # also where another source has one
        if top in known and known[top].kind is tuple and isinstance(values, str):
            raise illegal(top, "must be a list of text")
        if top not in tops and top.lower() in tops:
            raise illegal(top, f"is not known; it is written {top.lower()}")
        for name, value in values.items() if isinstance(values, dict) else ():
            field = known.get(f"{top}.{name}")
            if field is not None and field.kind is tuple and isinstance(value, str):
                raise illegal(f"{top}.{name}", "must be a list of text")
