"""A consumer group that runs in the test's process while the test does things to it.

Owns the thread of the test's steps; the group runs on the main thread, whose session it takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

from jobs.consume import consume
from jobs.runtime.run_loop import RunLoop
from jobs.settings import ConsumeSettings


def consume_while(settings: ConsumeSettings, spark: SparkSession, steps: Callable[[], None]) -> None:
    """Runs a group from before the first step until the last one has returned or failed.

    Args:
        settings: The group's.
        spark: The session.
        steps: Called once all streams of the group have started.

    Raises:
        BaseException: What ended the group, or else the steps.
    """
    failures: list[BaseException] = []
    threads: list[threading.Thread] = []

    def started(loop: RunLoop) -> None:
        def run() -> None:
            try:
                steps()
            except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
                failures.append(error)
            finally:
                loop.stop()

        threads.append(threading.Thread(target=run))
        threads[0].start()

    try:
        consume(settings, lambda: spark, started=started)
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
