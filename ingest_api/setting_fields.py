"""The settings as a flat list: every name with its type, default and bounds.

Owns the walk over the model; the command line and errors take the names from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import Interval


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting.

    Attributes:
        name: As in the file, with its table: ``http.port``.
        kind: Of its value: str, bool, int, float, or tuple for a list of text.
        choices: Its values, when it has only some.
        bounds: Smallest and largest value of a number, both allowed.
    """

    name: str
    kind: type
    default: Any
    choices: tuple[str, ...] = ()
    bounds: tuple[float, float] | None = None


def setting_fields(settings: Any) -> Mapping[str, SettingField]:
    """Returns every setting by its name.

    Args:
        settings: A model whose values are the defaults.
    """
    return {field.name: field for field in _walk(settings, type(settings).model_fields, "")}


def _walk(section: Any, names: Any, prefix: str) -> Iterator[SettingField]:
    hints = get_type_hints(type(section), include_extras=True)
    for name in names:
        value = getattr(section, name)
        if is_dataclass(value):
            yield from _walk(value, [field.name for field in fields(value)], f"{name}.")
        else:
            yield _field(f"{prefix}{name}", hints[name], value)


def _field(name: str, hint: Any, default: Any) -> SettingField:
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)  # type: ignore[assignment]  # a list does
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    interval = next((entry for entry in metadata if isinstance(entry, Interval)), None)
    bounds = None if interval is None else (interval.ge, interval.le)
    return SettingField(name, type(default), default, choices, bounds)  # type: ignore[arg-type]  # both ends
