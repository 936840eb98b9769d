"""What a refused setting is called: its name, its value, what it may be, and where it came from.

Owns the words; settings.py has the rules.

Invariants: one error ends the start with one line, and the line begins with the setting's name as the file
has it, wherever the value came from.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from ingest_api.setting_fields import SettingField
from store_native.errors import InvalidRequest

_TEXTS = {
    "dataclass_type": "must be a table",
    "tuple_type": "must be a list of text",
    "int_type": "must be int",
    "float_type": "must be float",
    "bool_type": "must be bool",
    "string_type": "must be str",
}
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_OUTSIDE = frozenset({"greater_than_equal", "less_than_equal"})


def illegal(name: str, reason: str) -> InvalidRequest:
    """Builds the refusal of a setting."""
    return InvalidRequest("ARGUMENT_ILLEGAL", f"{name}: {reason}", setting=name)


def explained(
    error: ValidationError, known: Mapping[str, SettingField], origin: Callable[[str], str]
) -> InvalidRequest:
    """Builds the refusal of the first wrong value.

    Args:
        error: What the model found.
        known: Every setting.
        origin: Says of a setting's name where its value came from; empty for the file, which has the name.
    """
    found = error.errors(include_url=False)[0]
    name = ".".join(part for part in found["loc"] if isinstance(part, str))
    source = origin(name)
    return illegal(name, _reason(name, dict(found), known) + (f" ({source})" if source else ""))


def _reason(name: str, found: Mapping[str, Any], known: Mapping[str, SettingField]) -> str:
    kind, value = found["type"], found["input"]
    if kind in _UNKNOWN:
        return f"no such setting; known here: {', '.join(_siblings(name, known))}"
    if kind in _OUTSIDE and (bounds := known[name].bounds) is not None:
        return f"is {value}, it lies between {bounds[0]} and {bounds[1]}"
    if kind == "literal_error":
        return f"must be one of {', '.join(known[name].choices)}, is {reprlib.repr(value)}"
    if kind == "value_error":
        return str(found["ctx"]["error"])
    if kind == "multiple_of":
        return f"is {value}, it must be a multiple of {found['ctx']['multiple_of']}"
    return f"{_TEXTS.get(kind, found['msg'])}, is {reprlib.repr(value)}"


def _siblings(name: str, known: Mapping[str, SettingField]) -> list[str]:
    table = name.rpartition(".")[0]
    if table:
        return sorted(other.rpartition(".")[2] for other in known if other.startswith(f"{table}."))
    return sorted({other.partition(".")[0] for other in known})
