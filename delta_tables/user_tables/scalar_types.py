"""The types of single values that a column of a user's table may have, and how a value is kept as JSON.

Owns text, whole and floating numbers, decimals, booleans, dates, times with and without a zone, and binary.
Pure.

Invariants: what is kept is read back as the same value; a value that a type does not hold exactly is refused,
but for a float in a column of single precision, which is rounded.

Processes: executors.
"""

from __future__ import annotations

import base64
import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

Json = Any

_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_LARGEST_SINGLE = 3.4028235677973366e38
"""The first double that single precision has no finite number for."""
_DECIMAL = re.compile(r"decimal\((\d+), *(\d+)\)")
_EXACT = Context(prec=200)
_MOST_SHOWN_BITS = 256


class ValueType(ABC):
    """A type of values."""

    @property
    @abstractmethod
    def arrow(self) -> pa.DataType:
        """The type in Arrow."""

    @abstractmethod
    def kept(self, value: Any) -> Json:
        """The JSON of a value that is not None.

        Raises:
            TypeError, ValueError: It is none of the type.
        """

    @abstractmethod
    def read(self, kept: Json) -> Any:
        """The value of its JSON, for Arrow.

        Raises:
            TypeError, ValueError: It was kept by another type.
        """


@dataclass(frozen=True)
class Scalar(ValueType):
    """A type of single values.

    Attributes:
        name: as Delta writes it.
        in_arrow: in Arrow.
        to_json: keeps a value.
        from_json: reads what was kept.
    """

    name: str
    in_arrow: pa.DataType
    to_json: Callable[[Any], Json]
    from_json: Callable[[Json], Any]

    @property
    def arrow(self) -> pa.DataType:
        """The type in Arrow."""
        return self.in_arrow

    def kept(self, value: Any) -> Json:
        """The JSON of a value."""
        return self.to_json(value)

    def read(self, kept: Json) -> Any:
        """The value of its JSON."""
        return self.from_json(kept)


def text_of_most(length: int) -> ValueType:
    """A text of so many characters at most: a VARCHAR."""

    def kept(value: Any) -> str:
        text = _text(value)
        if len(text) > length:
            raise ValueError(f"{length:,} characters at most, not {len(text):,}")
        return text

    return Scalar("string", pa.string(), kept, _text)


def scalar_of(name: str) -> ValueType | None:
    """The type of a name; None for one that rows have no values of."""
    if name in _BITS:
        bits = _BITS[name]
        return Scalar(name, getattr(pa, f"int{bits}")(), _whole(bits), _whole(bits))
    if decimal := _DECIMAL.fullmatch(name):
        return _decimal(name, int(decimal[1]), int(decimal[2]))
    return _SCALARS.get(name)


def _whole(bits: int) -> Callable[[Any], int]:
    def kept(value: Any) -> int:
        if isinstance(value, bool):
            raise TypeError("a whole number, not bool")
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"a whole number, not {type(value).__name__}") from None
        if not -(1 << bits - 1) <= number < 1 << bits - 1:
            size = number.bit_length()
            shown = str(number) if size <= _MOST_SHOWN_BITS else f"a number of {size:,} bits"
            raise ValueError(f"{shown} has no place in {bits} bits")
        return number

    return kept


def _decimal(name: str, precision: int, scale: int) -> ValueType:
    def kept(value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise TypeError(f"a Decimal or a whole number, not {type(value).__name__}")
        number = Decimal(value)
        if not number.is_finite():
            raise ValueError(f"a decimal is a number, not {number}")
        if number and number.adjusted() >= precision - scale:
            raise ValueError(f"{number} has more digits than {name}")
        exact = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        if exact != number:
            raise ValueError(f"{number} has more digits behind the point than {name}")
        return format(exact, "f")

    def read(text: Json) -> Decimal:
        return Decimal(kept(Decimal(_text(text) if not isinstance(text, int) else text)))

    return Scalar(name, pa.decimal128(precision, scale), kept, read)


def _float(largest: float | None) -> Callable[[Any], Json]:
    def kept(value: Any) -> Json:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"a number, not {type(value).__name__}")
        try:
            number = float(value)
        except OverflowError:
            raise ValueError("the number is larger than any float") from None
        if isinstance(value, int) and int(number) != value:
            raise ValueError("a float does not hold the whole number exactly")
        if math.isfinite(number):
            if largest is not None and abs(number) >= largest:
                raise ValueError(f"{number} is larger than any float of single precision")
            return number
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"

    return kept


def _read_float(kept: Json) -> float:
    if isinstance(kept, str) and kept not in ("NaN", "Infinity", "-Infinity"):
        raise TypeError("a number, not str")
    return float(kept)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text, not {type(value).__name__}")
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"half a character, which is no UTF-8: {text!r}") from None
    return text


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"True or False, not {type(value).__name__}")
    return value


def _binary(value: Any) -> str:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(f"bytes, not {type(value).__name__}")
    return base64.b64encode(bytes(value)).decode()


def _date(value: Any) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError(f"a date, not {type(value).__name__}")
    return value.isoformat()


def _time(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"a datetime with a zone, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValueError(f"{value} has no zone: give it one, such as datetime.UTC")
    try:
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    except OverflowError:
        raise ValueError(f"{value} is before or behind all times in UTC") from None


def _local_time(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"a datetime without a zone, not {type(value).__name__}")
    if value.tzinfo is not None:
        raise ValueError(f"{value} has a zone, and the column's times have none")
    return value.isoformat(timespec="microseconds")


def _read_time(zoned: bool) -> Callable[[Json], datetime]:
    def read(kept: Json) -> datetime:
        found = datetime.fromisoformat(_text(kept))
        if (found.tzinfo is not None) is not zoned:
            raise ValueError(f"{kept} was kept by another type")
        return found

    return read


_SCALARS = {
    scalar.name: scalar
    for scalar in (
        Scalar("string", pa.string(), _text, _text),
        Scalar("float", pa.float32(), _float(_LARGEST_SINGLE), _read_float),
        Scalar("double", pa.float64(), _float(None), _read_float),
        Scalar("boolean", pa.bool_(), _bool, _bool),
        Scalar("binary", pa.binary(), _binary, lambda kept: base64.b64decode(_text(kept), validate=True)),
        Scalar("date", pa.date32(), _date, lambda kept: date.fromisoformat(_text(kept))),
        Scalar("timestamp", pa.timestamp("us", "UTC"), _time, _read_time(zoned=True)),
        Scalar("timestamp_ntz", pa.timestamp("us"), _local_time, _read_time(zoned=False)),
    )
}
