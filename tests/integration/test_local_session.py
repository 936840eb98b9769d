"""A user's `lakemq.spark.session()` leaves no stacks behind; checkpoints written alone start no process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """\
import sys
import lakemq
from pyspark.sql.functions import udf
from lakemq.spark import session, write_checkpoints_alone

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
write_checkpoints_alone(spark)
print("kept", spark.newSession().conf.get("spark.sql.streaming.checkpointFileManagerClass", None))
stream = spark.readStream.format("lakemq").option("endpoint", sys.argv[1]).option("subscribe", "t")
query = stream.option("startingOffsets", "earliest").load().writeStream.format("noop")
query.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""

READLINK = """\
#!/bin/sh
echo "$@" >> "{noted}"
"""


def test_work_that_is_cut_short_leaves_no_stack_and_a_checkpoint_starts_no_process(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    first_of_path, noted = tmp_path / "bin", tmp_path / "noted"
    first_of_path.mkdir()
    (first_of_path / "readlink").write_text(READLINK.format(noted=noted))
    (first_of_path / "readlink").chmod(0o755)
    ended = subprocess.run(
        [sys.executable, "mine.py", broker.endpoint],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{first_of_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["read 1", "zipped False", "took [0, 1]", "kept None"]
    for word in ("BrokenPipeError", "ConnectionResetError", "Traceback", "\tat "):
        assert word not in ended.stderr, ended.stderr
    assert (tmp_path / "checkpoint/commits/0").exists()
    asked = noted.read_text() if noted.exists() else ""
    assert "checkpoint" not in asked, asked
