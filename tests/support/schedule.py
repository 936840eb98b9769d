"""Which worker runs which of the fast tests: a module as a whole, and those with Spark together.

Owns the scheduler of `make test-fast`, which loads it (``-p tests.support.schedule``). Both, this and xdist's
own by files that `make test` has, go by names of tests: xdist's marks of groups (``--dist loadgroup`` of 3.8)
change names, and pytest 9.2 knows its tests by others.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

ROOT = Path(__file__).resolve().parents[2]


@cache
def takes_the_session(module: str, root: Path = ROOT) -> bool:
    """Looks whether tests of a module, by its path from the root, ask for the shared Spark session."""
    return "spark: SparkSession" in (root / module).read_text(encoding="utf-8")


def unit_of(test: str) -> str:
    """Returns the name of what a worker takes as a whole: the module, or all that take the Spark session.

    A second session costs more than a worker beside it gives back.
    """
    module = test.partition("::")[0]
    return "with Spark" if takes_the_session(module) else module


class ModulesWithSparkTogether(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Schedules by `unit_of`."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Takes the place of xdist's own."""
    return ModulesWithSparkTogether(config, log)
