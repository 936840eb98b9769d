"""Which values a column of a user's table takes: single ones, structs, arrays and maps of these.

Owns the types that hold others, and the reading of a type out of Delta's schema. Pure.

Invariants: those of scalar_types.py; an error names the place of the value.

Processes: executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delta_tables.user_tables.scalar_types import Json, ValueType, scalar_of


@dataclass(frozen=True)
class Field:
    """A column, or a field of a struct.

    Attributes:
        name: its name, in upper and lower case as the table has it.
        type: its type.
        nullable: whether it may be null.
    """

    name: str
    type: ValueType
    nullable: bool = True

    def kept(self, value: Any) -> Json:
        """The JSON of its value; errors name the field."""
        return _within(self.name, self.type.kept, self.nullable, value)

    def read(self, kept: Json) -> Any:
        """The value of its JSON; errors name the field."""
        return _within(self.name, self.type.read, self.nullable, kept)


@dataclass(frozen=True)
class Struct(ValueType):
    """A struct: a mapping of the fields' names; one that is left out is null."""

    fields: tuple[Field, ...]

    @property
    def arrow(self) -> pa.DataType:
        """The struct in Arrow."""
        return pa.struct([pa.field(field.name, field.type.arrow) for field in self.fields])

    def kept(self, value: Any) -> Json:
        """An object with the fields that are not null."""
        given = _of(Mapping, value, "a mapping")
        if unknown := [name for name in given if name not in {field.name for field in self.fields}]:
            raise ValueError(f"there is no field {unknown[0]!r}")
        made = {field.name: field.kept(given.get(field.name)) for field in self.fields}
        return {name: kept for name, kept in made.items() if kept is not None}

    def read(self, kept: Json) -> Any:
        """A dictionary of all fields."""
        given = _of(dict, kept, "a mapping")
        if unknown := [name for name in given if name not in {field.name for field in self.fields}]:
            raise ValueError(f"there is no field {unknown[0]!r}")
        return {field.name: field.read(given.get(field.name)) for field in self.fields}


@dataclass(frozen=True)
class Array(ValueType):
    """An array: a list or tuple."""

    element: Field

    @property
    def arrow(self) -> pa.DataType:
        """The array in Arrow."""
        return pa.list_(self.element.type.arrow)

    def kept(self, value: Any) -> Json:
        """A list."""
        return [self.element.kept(item) for item in _of((list, tuple), value, "a list")]

    def read(self, kept: Json) -> Any:
        """A list."""
        return [self.element.read(item) for item in _of(list, kept, "a list")]


@dataclass(frozen=True)
class Map(ValueType):
    """A map: a mapping whose keys are of any type, kept as pairs."""

    key: Field
    value: Field

    @property
    def arrow(self) -> pa.DataType:
        """The map in Arrow."""
        return pa.map_(self.key.type.arrow, self.value.type.arrow)

    def kept(self, value: Any) -> Json:
        """A list of pairs."""
        pairs = _of(Mapping, value, "a mapping").items()
        return [[self.key.kept(key), self.value.kept(item)] for key, item in pairs]

    def read(self, kept: Json) -> Any:
        """A list of pairs, as Arrow takes them."""
        return [(self.key.read(key), self.value.read(item)) for key, item in _of(list, kept, "a map")]


def type_of(described: Any) -> ValueType | None:
    """The type that Delta's schema describes; None for one that rows have no values of.

    Args:
        described: its JSON: a name, or an object for a struct, an array or a map.
    """
    if isinstance(described, str):
        return scalar_of(described)
    kind = described["type"]
    if kind == "struct":
        fields = [(field, type_of(field["type"])) for field in described["fields"]]
        known = tuple(Field(f["name"], made, f["nullable"]) for f, made in fields if made is not None)
        return Struct(known) if len(known) == len(fields) else None
    if kind == "array":
        element = type_of(described["elementType"])
        return None if element is None else Array(Field("element", element, described["containsNull"]))
    if kind == "map":
        key, value = type_of(described["keyType"]), type_of(described["valueType"])
        if key is not None and value is not None:
            return Map(
                Field("key", key, nullable=False), Field("value", value, described["valueContainsNull"])
            )
    return None


def _within(name: str, convert: Callable[[Any], Any], nullable: bool, value: Any) -> Any:
    if value is None:
        if not nullable:
            raise ValueError(f"{name}: it must not be null")
        return None
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


def _of(kind: Any, value: Any, what: str) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{what}, not {type(value).__name__}")
    return value
