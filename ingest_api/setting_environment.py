"""Settings from environment variables: ``LAKEMQ_HTTP_PORT`` is ``http.port``.

Owns the names and how their text becomes a value; what a value may be is checked with all the others.

Invariants: a variable that begins like a section's and names no setting of it is refused, so that a typing
error is no silent default. Other ``LAKEMQ_`` variables (the client's ``LAKEMQ_ENDPOINT``) are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_origin, get_type_hints

PREFIX = "LAKEMQ_"


def read_environment(settings: Any, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the environment sets, as nested tables.

    Args:
        settings: A ``Settings``; its fields say which names there are and of which type.
        environment: Names to texts, such as ``os.environ``.
    """
    tree: dict[str, Any] = {}
    types = get_type_hints(type(settings))
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        name = f"{PREFIX}{entry.name.upper()}"
        if is_dataclass(value):
            hints = get_type_hints(type(value))
            found = {
                variable[len(name) + 1 :].lower(): text
                for variable, text in environment.items()
                if variable.startswith(f"{name}_")
            }
            if found:
                tree[entry.name] = {key: _value(text, hints.get(key)) for key, text in found.items()}
        elif name in environment:
            tree[entry.name] = _value(environment[name], types[entry.name])
    return tree


def _value(text: str, wanted: Any) -> Any:
    """Reads a text as its setting's type; one that is none stays text, and is refused as such."""
    if wanted is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if get_origin(wanted) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    if wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            return text
    return text
