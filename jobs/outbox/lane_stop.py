"""Why a lane of the outbox ended before its end, on its way from the executors to the driver.

Owns the telling apart of what passes by itself (a broker is away, the time of a pass is over) and what a
broker refuses, and the accumulator that tasks add to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from lakemq.client.errors import may_pass
from store_native.errors import LakeMQError, Unavailable, from_code

Why = Literal["time", "away", "refused"]


@dataclass(frozen=True)
class LaneStop:
    """The end of one lane's pass.

    Attributes:
        why: its time is over; waiting helps; the broker refuses it, and will again.
        code: the error's, of the last two.
        detail: its sentence.
        message: what names the first message that was not taken: columns of `refused_sends`.
    """

    why: Why
    code: str = ""
    detail: str = ""
    message: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, error: LakeMQError, message: dict[str, Any]) -> LaneStop:
        """The stop for an error."""
        why: Why = "away" if may_pass(error) else "refused"
        return cls(why, error.code, error.detail, tuple(message.items()))

    @property
    def error(self) -> LakeMQError:
        """The error to say; one that passes is known by its class, whatever it was."""
        return (
            Unavailable(self.code, self.detail) if self.why == "away" else from_code(self.code, self.detail)
        )


class _Stops(AccumulatorParam[list[LaneStop]]):
    def zero(self, value: list[LaneStop]) -> list[LaneStop]:
        return []

    def addInPlace(self, value1: list[LaneStop], value2: list[LaneStop]) -> list[LaneStop]:
        value1.extend(value2)
        return value1


class LaneStops:
    """The stops of one pass; pickled with its tasks, which call it."""

    def __init__(self, spark: SparkSession) -> None:
        """Makes an empty one, on the driver."""
        self._found = spark.sparkContext.accumulator([], _Stops())

    def __call__(self, stop: LaneStop) -> None:
        """Adds a stop; runs on an executor."""
        self._found.add([stop])

    @property
    def found(self) -> list[LaneStop]:
        """All stops, what a broker refuses first: waiting does not help there."""
        order: tuple[Why, ...] = ("refused", "away", "time")
        return sorted(self._found.value, key=lambda stop: order.index(stop.why))
