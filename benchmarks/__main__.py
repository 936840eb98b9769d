"""`make bench [ONLY=P7]`: measures the goals side by side with real RocketMQ and Kafka brokers.

    python -m benchmarks [--only P1,P7] [--pairs N] [--quick]

Prints one line a measurement, writes benchmarks/results.json and the table and chart of docs/performance.md
(`--quick` writes nothing: its runs are too short to count). It is no test: a missed goal does not fail it.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    appending,
    freshness,
    latency,
    ledger,
    looking_up,
    pulling,
    reading,
    replicating,
    report,
    retrying,
    sending,
    starting,
    waiting,
)
from benchmarks.machine import describe
from benchmarks.measurement import Comparison, Measurement
from benchmarks.scale import FULL, QUICK, Scale
from tests.support.peer_jars import REPOSITORY

GOALS: dict[str, Callable[[Path, Scale], Iterator[Comparison]]] = {
    "P1": sending.single,
    "P2": sending.bare,
    "P3": sending.batches,
    "P4": appending.append,
    "P5": sending.flush_cost,
    "P6": replicating.synchronous,
    "P7": reading.local,
    "P8": reading.over_http,
    "P9": ledger.group_job,
    "P10": freshness.fresh_rows,
    "P11": pulling.pulls,
    "P12": waiting.slow_handler,
    "P13": latency.tail,
    "P14": latency.isolation,
    "P15": starting.starts,
    "P16": starting.memory,
    "P17": retrying.retry_batch,
    "P19": replicating.costs,
    "P20": looking_up.look_ups,
}
RESULTS = REPOSITORY / "benchmarks" / "results.json"
DOCUMENT = REPOSITORY / "docs" / "performance.md"
CHART = REPOSITORY / "docs" / "performance.svg"


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line and measures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="goals, comma separated: P1,P7 (default: all)")
    parser.add_argument("--pairs", type=int, default=None, help="pairs of runs a measurement (default: 6)")
    parser.add_argument(
        "--quick", action="store_true", help="short runs to see that all works; nothing is written"
    )
    parser.add_argument(
        "--directory", type=Path, default=None, help="scratch directory on the disk to measure"
    )
    options = parser.parse_args(arguments)
    wanted = [goal for goal in options.only.split(",") if goal] or list(GOALS)
    unknown = sorted(set(wanted) - set(GOALS))
    if unknown:
        parser.error(f"no such goal: {', '.join(unknown)}; known: {', '.join(GOALS)}")
    scale = QUICK if options.quick else FULL
    scale = dataclasses.replace(scale, pairs=options.pairs or scale.pairs)
    scratch = Path(tempfile.mkdtemp(prefix="lakemq-bench-", dir=options.directory))
    machine = describe(scratch)
    print(", ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    failed = False
    for goal in wanted:
        measurements: list[Measurement] = []
        try:
            for comparison in GOALS[goal](scratch / goal, scale):
                measurements.append(comparison.run(scale.pairs))
        except RuntimeError as error:
            failed = True
            print(
                f"{goal} not measured: {error}\nits logs are in {scratch / goal}", file=sys.stderr, flush=True
            )
        else:
            shutil.rmtree(scratch / goal, ignore_errors=True)
        if measurements and not options.quick:
            rows = report.merge(RESULTS, measurements, machine)
            report.draw(CHART, rows)
            report.write_document(DOCUMENT, CHART, rows)
    if not failed:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
