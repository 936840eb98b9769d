"""P4: records of 1 KB appended in batches of 100 in Rust, against memcpy and CRC into such a mapping.

Owns only the call: the measurement is store_native/examples/append_bench.rs, built with the store itself,
one JSON line a run: {"rate": messages/s}.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measurement import Comparison, Measurement
from benchmarks.scale import Scale
from tests.support.peer_jars import REPOSITORY

EXAMPLE = "append_bench"


def append(directory: Path, scale: Scale) -> Iterator[Comparison]:
    """Yields P4."""
    manifest = REPOSITORY / "store_native" / "Cargo.toml"
    # Without its Python part the store links no interpreter.
    command = ["cargo", "run", "--release", "--quiet", "--no-default-features"]
    command += ["--manifest-path", str(manifest), "--example", EXAMPLE, "--"]

    def measure(side: str) -> float:
        arguments = [side, str(directory / side), str(scale.appended)]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=900, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{EXAMPLE} {side}: {done.stderr[-1500:]}")
        return float(json.loads(done.stdout.splitlines()[-1])["rate"])

    directory.mkdir(parents=True, exist_ok=True)
    against = "memcpy + CRC into the same mapping"
    measurement = Measurement("P4", "rust-append", 0.7, "messages/s", "in the log, not flushed", against)
    yield Comparison(measurement, lambda: measure("append"), lambda: measure("copy"))
