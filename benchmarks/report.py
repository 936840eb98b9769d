"""What a bench leaves behind: results.json, the table in docs/performance.md, and a chart of the ratios.

Owns their form. A partial run (`--only P7`) replaces its own measurements and keeps the others, each with the
date and the machine it was measured on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from benchmarks.measurement import Measurement, median

BEGIN: Final = "<!-- bench:begin (written by make bench) -->"
END: Final = "<!-- bench:end -->"
BAR_HEIGHT: Final = 18
ROW_HEIGHT: Final = 26
LABEL_WIDTH: Final = 250
PLOT_WIDTH: Final = 420
LARGEST_RATIO: Final = 5.0
_KEY: Final = "figures"
"""Of results.json, which keeps what earlier commits wrote."""


def merge(path: Path, measurements: list[Measurement], machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Writes results.json and returns all its measurements in the goals' order."""
    kept: list[dict[str, Any]] = []
    if path.exists():
        measured = {measurement.goal_id for measurement in measurements}
        kept = [row for row in json.loads(path.read_text())[_KEY] if row["goal_id"] not in measured]
    rows = [measurement.to_json() | {"machine": machine} for measurement in measurements]
    merged = sorted(kept + rows, key=lambda row: int(row["goal_id"][1:]))
    path.write_text(json.dumps({_KEY: merged}, indent=1) + "\n")
    return merged


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the Markdown table."""
    lines = [
        "| # | Measurement | Promise | LakeMQ | Against | Other side | Ratio (min-max) | Goal | |",
        "|---|---|---|---:|---|---:|---|---:|---|",
    ]
    for row in rows:
        goal = "" if row["goal"] is None else f"{'<=' if row['at_most'] else '>='} {row['goal']:g}"
        verdict = {True: "held", False: "**missed**", None: ""}[row["held"]]
        spread = f"{_SIGN[row['relation']]}{row['value']:.2f} ({row['value_min']:.2f}-{row['value_max']:.2f})"
        cells = [row["goal_id"], row["name"], row["promise"], _rate(row, "ours"), row["against"]]
        cells += [_rate(row, "theirs"), spread, goal, verdict]
        lines.append(_row(cells))
    return "\n".join(lines)


def machines(rows: list[dict[str, Any]]) -> str:
    """Returns what all measurements have in common, and a table of what changed from goal to goal."""
    described = {row["goal_id"]: {name: str(value) for name, value in row["machine"].items()} for row in rows}
    names = list(dict.fromkeys(name for machine in described.values() for name in machine))
    values = {name: {machine.get(name, "") for machine in described.values()} for name in names}
    common = ", ".join(f"{name} {values[name].pop()}" for name in names if len(values[name]) == 1)
    differing = [name for name in names if len(values[name]) > 1]
    lines = [_row(["#", *differing]), "|---" * (len(differing) + 1) + "|"]
    lines += [_row([goal, *(machine.get(n, "") for n in differing)]) for goal, machine in described.items()]
    return "\n".join([f"{common}.", *(["", *lines] if differing else [])])


_SIGN: Final = {"ratio": "", "difference": "difference ", "value": "value "}


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def write_document(path: Path, chart: Path, rows: list[dict[str, Any]]) -> None:
    """Puts table, machines and chart between the markers of docs/performance.md.

    Raises:
        ValueError: The document has no markers.
    """
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path} has no markers {BEGIN} ... {END}")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    middle = (
        f"\n{table(rows)}\n\n![Ratios beside their goals]({chart.name})\n\nMeasured on: {machines(rows)}\n"
    )
    path.write_text(before + BEGIN + middle + END + after)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draws one bar a measurement, a tick at its goal, a line at 1 (as fast as the other side)."""
    rows = [row for row in rows if row["relation"] == "ratio"]
    height = ROW_HEIGHT * len(rows) + 50
    width = LABEL_WIDTH + PLOT_WIDTH + 70
    largest = min(
        LARGEST_RATIO, max((max(row["value"], row["goal"] or 0) for row in rows), default=1.0) * 1.1
    )
    scale = PLOT_WIDTH / largest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12" role="img">',
        "<title>Measured ratios beside their goals</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    one = LABEL_WIDTH + scale
    parts.append(f'<line x1="{one:.1f}" y1="10" x2="{one:.1f}" y2="{height - 30}" stroke="#888888"/>')
    parts.append(f'<text x="{one:.1f}" y="{height - 14}" text-anchor="middle" fill="#555555">1.0</text>')
    for index, row in enumerate(rows):
        parts += _bar(row, 14 + index * ROW_HEIGHT, scale)
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n")


def _bar(row: dict[str, Any], top: int, scale: float) -> list[str]:
    colour = {True: "#2e7d32", False: "#c62828", None: "#607d8b"}[row["held"]]
    length = min(row["value"], LARGEST_RATIO) * scale
    label = escape(f"{row['goal_id']} {row['name']}")
    middle = top + BAR_HEIGHT - 5
    parts = [
        f'<text x="{LABEL_WIDTH - 8}" y="{middle}" text-anchor="end">{label}</text>',
        f'<rect x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>',
        f'<text x="{LABEL_WIDTH + length + 6:.1f}" y="{middle}">{row["value"]:.2f}</text>',
    ]
    if row["goal"] is not None:
        goal = LABEL_WIDTH + min(row["goal"], LARGEST_RATIO) * scale
        parts.append(
            f'<line x1="{goal:.1f}" y1="{top - 3}" x2="{goal:.1f}" y2="{top + BAR_HEIGHT + 3}" '
            'stroke="#000000" stroke-width="2"/>'
        )
    return parts


def _rate(row: dict[str, Any], side: str) -> str:
    if not row[side]:
        return ""
    middle = median(row[side])
    return f"{middle:,.0f} {row['unit']}" if middle >= 100 else f"{middle:.3g} {row['unit']}"
