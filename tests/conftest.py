"""Fixtures that tests of several parts share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.support.broker_process import BrokerProcess
from tests.support.examples import examples
from tests.support.peer_brokers import JAVA_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLUSTER = Path(__file__).parent / "cluster"
_THREADS_END_WITHIN_S = 30.0

# A machine that is busy is slow, and that is no defect of the example it was slow at.
settings.register_profile("without deadlines", deadline=None, max_examples=examples(100))
settings.load_profile("without deadlines")


# Brokers of tests write on a disk that is nearly full too: others filled it, and they need little.
os.environ["LAKEMQ_LIMITS_DISK_FULL_RATIO"] = "1"

# Spark's JVMs live for minutes here: the second compiler costs more than its code ever gives back. Without it
# the JVM keeps 48 MB for compiled code; a session of many tests fills them, and nothing is compiled any more.
_FOR_MINUTES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
# What `.ci/spark-classes` has made, if it has: a session costs half of the processor time with it.
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_ARCHIVED = f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _FOR_MINUTES)
# Of 101 s of processor time 8 were the collector's, with the small heap that a JVM begins with.
_COLLECTS_SELDOM = " -XX:MetaspaceSize=256m -XX:InitialRAMPercentage=10 -XX:NewRatio=1"
_OF_SUBMIT = _FOR_MINUTES + _COLLECTS_SELDOM
os.environ.setdefault("SPARK_SUBMIT_OPTS", _OF_SUBMIT + (_ARCHIVED if _ARCHIVE.exists() else ""))
# RocketMQ's JVMs live for seconds.
os.environ.setdefault(JAVA_OPTIONS, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# A run in the background has SIGINT ignored, and what it starts would have so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the time limit of tests that take long; its number is in pyproject.toml."""
    parser.addini("long_timeout", "seconds for a test with Spark or several processes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives tests their time limit, and puts modules that take long first: workers end together then."""
    limit = pytest.mark.timeout(float(config.getini("long_timeout")))
    takes_long = set()
    for item in items:
        with_session = "spark" in getattr(item, "fixturenames", ())
        if with_session or item.get_closest_marker("long") or _CLUSTER in item.path.parents:
            item.add_marker(limit)
            takes_long.add(item.path)
    items.sort(key=lambda item: item.path not in takes_long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Keeps the collector out of the report of a failure.

    ``ast.parse`` of CPython 3.11 raises SystemError when a finalizer that runs inside it parses too, as one
    does whose error is shown with its traceback. pytest would end with an internal error, and name no test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Fails a test whose own threads live on after it: they would disturb the tests behind it.

    Threads of PySpark and Py4J belong to the session of the whole run, and end with it.
    """
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + _THREADS_END_WITHIN_S
    for thread in set(threading.enumerate()) - before:
        if not _belongs_to_spark(thread):
            thread.join(max(deadline - time.monotonic(), 0))
            assert not thread.is_alive(), f"the test left the thread {thread.name} running"


def _belongs_to_spark(thread: threading.Thread) -> bool:
    homes = type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", None)
    return any(home is not None and home.partition(".")[0] in ("py4j", "pyspark") for home in homes)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers with options of the test's own; all are gone after it."""
    started: list[BrokerProcess] = []

    def start(name: str = "broker", **options: Any) -> BrokerProcess:
        process = BrokerProcess(tmp_path / name, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """A real broker on an empty store: .endpoint, .store_path, .client(), .kill(), .restart()."""
    return start_broker()


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for a whole module, for tests that keep to topics of their own."""
    process = BrokerProcess(tmp_path_factory.mktemp("shared-broker"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of a test run, with Delta: starting one costs seconds."""
    from lakemq.spark import session, write_checkpoints_alone

    home = tmp_path_factory.mktemp("spark")
    spark = session(
        "tests",
        home / "warehouse",
        master="local[2, 2]",  # a failed task is run once more, as on a cluster
        **{  # type: ignore[arg-type]  # a name with dots is no parameter's
            "spark.driver.memory": "1g",
            # A query of a test has a few rows: compiling Java for it costs more than running it, a fifth of
            # the session's processor time. The commands that tests start do so, as everybody's do.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.local.dir": str(home / "scratch"),
            "spark.sql.streaming.checkpointLocation": str(home / "checkpoints"),
        },
    )
    write_checkpoints_alone(spark)
    yield spark
    spark.stop()
