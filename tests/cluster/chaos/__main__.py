"""`make chaos [ONLY=R1] [ROUNDS=100]`: runs chaos scenarios one after the other with the same options."""

from __future__ import annotations

import argparse
import sys

from tests.cluster.chaos import r1

SCENARIOS = {"R1": r1.main}


def main() -> int:
    """Runs the scenarios asked for; options not known here go to each of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.chaos", description=__doc__)
    parser.add_argument("--only", default="", help="scenarios, comma separated (default: all)")
    options, rest = parser.parse_known_args()
    wanted = [name for name in options.only.split(",") if name] or list(SCENARIOS)
    unknown = sorted(set(wanted) - set(SCENARIOS))
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; known: {', '.join(SCENARIOS)}")
    return max(SCENARIOS[name](rest) for name in wanted)


if __name__ == "__main__":
    sys.exit(main())
