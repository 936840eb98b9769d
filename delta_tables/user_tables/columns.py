"""The columns of a user's table, and a row for them.

Owns which columns a row may name, and the JSON that a row is kept as until it is written. Pure.

Invariants: a row that passes fits the table as it was looked at, but for conditions that the table sets on
values (CHECK).

Processes: executors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from delta_tables.user_tables.scalar_types import ValueType, text_of_most
from delta_tables.user_tables.value_types import Field, Struct, type_of

_MADE = ("delta.generationExpression", "delta.identity.start")
_CHARS = "__CHAR_VARCHAR_TYPE_STRING"


@dataclass(frozen=True)
class TableColumns:
    """The columns that rows may name.

    Attributes:
        fields: in the table's order.
        described: these, as Delta's schema has them in JSON.
        not_taken: why a row may not name another one, by its name.
    """

    fields: tuple[Field, ...]
    described: str
    not_taken: Mapping[str, str]

    @classmethod
    def of(cls, schema: str) -> TableColumns:
        """Reads Delta's schema.

        Args:
            schema: its JSON.

        Raises:
            ValueError: A column must not be null, and rows have no values of its type.
        """
        fields: list[Field] = []
        taken: list[dict[str, Any]] = []
        not_taken: dict[str, str] = {}
        for column in json.loads(schema)["fields"]:
            name, made = column["name"], _type_of(column)
            if any(key in column["metadata"] for key in _MADE):
                not_taken[name] = "the table makes its values"
            elif made is not None:
                fields.append(Field(name, made, column["nullable"]))
                taken.append({**column, "nullable": True, "metadata": {}})
            elif column["nullable"]:
                not_taken[name] = "rows have no values of its type"
            else:
                raise ValueError(f"{name} must not be null, and rows have no values of its type")
        return cls(tuple(fields), json.dumps({"type": "struct", "fields": taken}), not_taken)

    def kept(self, row: Mapping[str, Any]) -> str:
        """The JSON of a row, without what is null.

        Raises:
            TypeError, ValueError: It does not fit the table, with the column.
        """
        if unknown := [name for name in row if name not in self._names]:
            raise ValueError(self._unknown(unknown[0]))
        return json.dumps(self._row.kept(row), ensure_ascii=False, separators=(",", ":"))

    def batch(self, kept: list[str]) -> pa.RecordBatch:
        """Rows out of their JSON, with all columns.

        Raises:
            TypeError, ValueError: One does not fit the table any more, with the column.
        """
        rows = [json.loads(text) for text in kept]
        for row in rows:
            if unknown := [name for name in row if name not in self._names]:
                raise ValueError(self._unknown(unknown[0]))
        values = [self._row.read(row) for row in rows]
        return pa.RecordBatch.from_arrays(
            [pa.array([value[f.name] for value in values], f.type.arrow) for f in self.fields],
            names=[field.name for field in self.fields],
        )

    @property
    def spark_schema(self) -> dict[str, Any]:
        """The columns as Spark reads a schema out of JSON, each of which may be null: Delta checks that."""
        made: dict[str, Any] = json.loads(self.described)
        return made

    @cached_property
    def _row(self) -> Struct:
        return Struct(self.fields)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields)

    def _unknown(self, name: str) -> str:
        if name in self.not_taken:
            return f"{name}: {self.not_taken[name]}"
        return f"the table has no column {name!r}: it has {', '.join(field.name for field in self.fields)}"


def _type_of(column: Mapping[str, Any]) -> ValueType | None:
    chars = column["metadata"].get(_CHARS)
    if chars is not None and chars.startswith(("varchar(", "char(")):
        return text_of_most(int(chars.partition("(")[2].rstrip(")")))
    if chars is not None:  # one inside another type: what is too long would hold up the table
        return None
    return type_of(column["type"])
