"""A user's `lakemq.spark.session()` leaves no stacks behind."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """\
import sys
import lakemq
from pyspark.sql.functions import udf
from lakemq.spark import session

spark = session(delta=False, master="local[2]", **{"spark.driver.memory": "1g"})
lakemq.Client(sys.argv[1]).send("t", "x")
source = spark.read.format("lakemq").option("endpoint", sys.argv[1]).option("subscribe", "t").load()
print("read", source.count())


def zipped(_):
    import pyspark

    return ".zip" in pyspark.__file__  # compiled anew in each worker: a second


print("zipped", spark.range(1).select(udf(zipped, "boolean")("id")).first()[0])
# The JVM closes the sockets of workers that have more to give than it wants.
same = udf(lambda number: number, "bigint")
print("took", [row[0] for row in spark.range(0, 3_000_000, 1, 1).select(same("id")).take(2)])
spark.stop()
"""


def test_work_that_is_cut_short_leaves_no_stack(broker: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, "mine.py", broker.endpoint],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["read 1", "zipped False", "took [0, 1]"]
    for word in ("BrokenPipeError", "ConnectionResetError", "Traceback", "\tat "):
        assert word not in ended.stderr, ended.stderr


SECOND = """\
import sys
import lakemq.spark

spark = lakemq.spark.session(master="local[1]", starts_into=sys.argv[1])
arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print([str(option).split("=")[0] for option in arguments if "rchive" in option])
print(spark._jvm.Class.forName("org.apache.spark.sql.delta.DeltaLog", False, spark._jvm.Thread.currentThread()
      .getContextClassLoader()).getSimpleName())
"""


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.nightly
def test_the_second_session_of_a_machine_asks_no_ivy_and_maps_the_classes_of_the_first(
    tmp_path: Path,
) -> None:
    own = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    said = []
    for run in ("first", "second"):
        log = tmp_path / f"{run}.log"
        ended = subprocess.run(
            [sys.executable, "-c", SECOND, str(log)],
            env={**own, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert ended.returncode == 0, ended.stderr
        said.append((ended.stdout.splitlines(), ":: resolving dependencies" in log.read_text()))
        (lock,) = (tmp_path / "cache").glob("lakemq/spark-*/lock")
        wait_until(partial(_is_free, lock), 300)  # the JVM writes when it ends
    assert said == [
        (["['-XX:ArchiveClassesAtExit']", "DeltaLog"], True),
        (["['-XX:SharedArchiveFile']", "DeltaLog"], False),
    ]
