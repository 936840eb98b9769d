"""Which worker runs which tests of `make test`: two of three workers have the modules with Spark.

Owns the scheduler of `make test` and `make test-all`, which load it (``-p tests.support.session_schedule``).
A session's start, and whatever its JVM does for the first time, costs more processor time than a worker gives
back that has the last of these modules. As by xdist's ``--dist loadfile`` a worker takes whole modules.

Invariants: a worker whose only modules left are others' is done; of a worker that died others take the tests
that it had not begun, never that in which it died, and never a module that it had finished: who is given
such a one waits for ever for a test of it to end.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

from tests.support.schedule import takes_the_session

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

_SHARE = 2 / 3


class FewSessions(LoadFileScheduling):  # type: ignore[misc]  # it has no types
    """Gives modules with Spark to workers that have had some, and to new ones as long as these are few."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Returns the test in which a worker died, None if none was left; those after it go to others."""
        modules = self.assigned_work[node]
        died_in = next(
            ((tests, test) for tests in modules.values() for test, ended in tests.items() if not ended), None
        )
        if died_in is None:
            super().remove_node(node)
            return None
        tests, test = died_in
        tests[test] = True
        for module in [module for module, tests in modules.items() if all(tests.values())]:
            del modules[module]
        super().remove_node(node)
        return str(test)

    def _reschedule(self, node: WorkerController) -> None:
        if self.workqueue and self._next(node) is None:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        module = self._next(node)
        if module is not None:  # else there was nothing else to begin with
            self.workqueue.move_to_end(module, last=False)
        super()._assign_work_unit(node)

    def _next(self, node: WorkerController) -> str | None:
        """Which module a worker is to have next: one with Spark where it may."""
        with_spark = [str(module) for module in self.workqueue if self._takes_the_session(module)]
        if with_spark and self._may_have_a_session(node):
            return with_spark[0]
        others = [str(module) for module in self.workqueue if module not in with_spark]
        return others[0] if others else None

    def _may_have_a_session(self, node: WorkerController) -> bool:
        have = {
            other
            for other, modules in self.assigned_work.items()
            if any(self._takes_the_session(module) for module in modules)
        }
        return node in have or len(have) < ceil(_SHARE * len(self.nodes))

    def _takes_the_session(self, module: str) -> bool:
        return takes_the_session(module, self.config.rootpath)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Takes the place of xdist's own."""
    return FewSessions(config, log)
