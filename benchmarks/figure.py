"""One measured ratio: pairs of runs in the order A B B A, the median of the pairs' ratios, and the goal.

Owns the arithmetic and the order of runs, so that a machine that slows down during a bench slows both sides.
Called by every module that measures.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Measure = Callable[[], float]
"""Runs one side once and returns its rate (larger is better)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A ratio and where it comes from.

    Attributes:
        goal_id: P1..P9 of the goals.
        name: what was measured, short and without spaces.
        goal: the ratio that was aimed at; None for a figure that is only told.
        unit: of the rates.
        promise: what both sides promised when they answered.
        ours: rate of each pair, LakeMQ.
        theirs: rate of each pair, the other side.
        against: the other side.
    """

    goal_id: str
    name: str
    goal: float | None
    unit: str
    promise: str
    against: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Returns one ratio a pair."""
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        """Returns the median of the pairs' ratios."""
        return statistics.median(self.ratios)

    @property
    def held(self) -> bool | None:
        """Tells whether the goal is held; None without a goal."""
        return None if self.goal is None else round(self.ratio, 2) >= self.goal

    def line(self) -> str:
        """Returns the one line `make bench` prints."""
        verdict = "" if self.goal is None else f" goal={self.goal:g} {'held' if self.held else 'missed'}"
        return f"{self.goal_id} {self.name} ratio={self.ratio:.2f}{verdict}"

    def to_json(self) -> dict[str, Any]:
        """Returns what results.json holds."""
        return {
            "goal_id": self.goal_id,
            "name": self.name,
            "against": self.against,
            "promise": self.promise,
            "unit": self.unit,
            "ratio": round(self.ratio, 4),
            "ratio_min": round(min(self.ratios), 4),
            "ratio_max": round(max(self.ratios), 4),
            "goal": self.goal,
            "held": self.held,
            "ours": [round(rate, 1) for rate in self.ours],
            "theirs": [round(rate, 1) for rate in self.theirs],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is needed to measure one figure.

    Attributes:
        figure: takes the rates.
        ours, theirs: the sides.
        warm_ups: unmeasured runs of each side; a JVM that compiles while it is measured needs more than one.
    """

    figure: Figure
    ours: Measure
    theirs: Measure
    warm_ups: int = 1

    def run(self, pairs: int) -> Figure:
        """Runs both sides `pairs` times, A B B A A B B A ..., after the unmeasured ones."""
        for _ in range(self.warm_ups):
            self.ours()
            self.theirs()
        for pair in range(pairs):
            if pair % 2 == 0:
                self.figure.ours.append(self.ours())
                self.figure.theirs.append(self.theirs())
            else:
                self.figure.theirs.append(self.theirs())
                self.figure.ours.append(self.ours())
        print(self.figure.line(), flush=True)
        return self.figure


def median(values: list[float]) -> float:
    """Returns the median (the report's word for a side's rate)."""
    return statistics.median(values)
