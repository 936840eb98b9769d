"""One measurement: pairs of runs in the order A B B A, what each says, their median, the goal.

Owns the arithmetic and the order of runs, so that a machine that slows down during a bench slows both sides.
A measurement is a ratio of the two sides, or the difference between them, or (one side only) a value with a
limit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Measure = Callable[[], float]
"""Runs one side once and returns its rate, or for a measurement with `at_most` its time or size."""

Relation = Literal["ratio", "difference", "value"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is compared, and where it comes from.

    Attributes:
        goal_id: P1..P20 of the goals.
        name: what was measured, short and without spaces.
        goal: what was aimed at; None for a measurement that is only reported.
        unit: of both sides.
        promise: what both sides promised when they answered.
        against: the other side.
        at_most: the goal is an upper limit (times, sizes) and not a lower one (rates).
        relation: what a pair says: ours / theirs, ours - theirs, or ours alone.
        ours: what LakeMQ did, one number a pair.
        theirs: what the other side did, one number a pair; empty for a value.
    """

    goal_id: str
    name: str
    goal: float | None
    unit: str
    promise: str
    against: str
    at_most: bool = False
    relation: Relation = "ratio"
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """Returns what each pair says."""
        if self.relation == "value":
            return self.ours
        pairs = zip(self.ours, self.theirs, strict=True)
        if self.relation == "difference":
            return [mine - other for mine, other in pairs]
        return [mine / other for mine, other in pairs]

    @property
    def value(self) -> float:
        """Returns the median over the pairs."""
        return statistics.median(self.values)

    @property
    def held(self) -> bool | None:
        """Tells whether the goal is held; None without a goal."""
        if self.goal is None:
            return None
        value = round(self.value, 2)
        return value <= self.goal if self.at_most else value >= self.goal

    def line(self) -> str:
        """Returns the one line `make bench` prints."""
        sign = "<=" if self.at_most else ">="
        verdict = "" if self.goal is None else f" goal{sign}{self.goal:g} {'held' if self.held else 'missed'}"
        return f"{self.goal_id} {self.name} {self.relation}={self.value:.2f}{verdict}"

    def to_json(self) -> dict[str, Any]:
        """Returns what results.json holds."""
        return {
            "goal_id": self.goal_id,
            "name": self.name,
            "against": self.against,
            "promise": self.promise,
            "unit": self.unit,
            "relation": self.relation,
            "value": round(self.value, 4),
            "value_min": round(min(self.values), 4),
            "value_max": round(max(self.values), 4),
            "goal": self.goal,
            "at_most": self.at_most,
            "held": self.held,
            "ours": [round(one, 4) for one in self.ours],
            "theirs": [round(one, 4) for one in self.theirs],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is needed for one measurement.

    Attributes:
        measurement: takes the rates.
        ours, theirs: the sides; no `theirs` for a measurement that is a value.
        warm_ups: unmeasured runs of each side; a JVM that compiles while it is measured needs more than one.
    """

    measurement: Measurement
    ours: Measure
    theirs: Measure | None
    warm_ups: int = 1

    def run(self, pairs: int) -> Measurement:
        """Runs both sides `pairs` times, A B B A A B B A ..., after the unmeasured ones."""
        sides = [(self.measurement.ours, self.ours)]
        if self.theirs is not None:
            sides.append((self.measurement.theirs, self.theirs))
        for _ in range(self.warm_ups):
            for _, measure in sides:
                measure()
        for _ in range(pairs):
            for measured, measure in sides:
                measured.append(measure())
            sides.reverse()
        print(self.measurement.line(), flush=True)
        return self.measurement


def median(values: list[float]) -> float:
    """Returns the median (the report's word for a side's rate)."""
    return statistics.median(values)
