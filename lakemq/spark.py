"""Spark for users: ``lakemq.spark.session()`` and ``lakemq.spark.group()``.

Owns the settings of a session, which has what newcomers trip over: the workers' Python, Delta's JARs, UTC; on
one machine few shuffle partitions and no UI besides, on a cluster nothing that is one machine's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from lakemq import sent_files
from lakemq.interrupted_child import killed_when_interrupted
from lakemq.java import require_java
from lakemq.jvm_output import JvmOutput
from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from jobs.spark_group import SparkGroup

DELTA_PACKAGES = {
    "4.0": "io.delta:delta-spark_2.13:4.0.1",
    "4.1": "io.delta:delta-spark_4.1_2.13:4.1.0",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
"""Delta's JAR for each Spark; the first of them goes with Databricks runtime 17.3."""

DELTA_PACKAGE = DELTA_PACKAGES["4.2"]

# What Delta's POM asks for and Spark ships already, often in a newer version: 161 of 174 MB.
SHIPPED_WITH_SPARK = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:*",
    "javax.annotation:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.locationtech.jts:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)

_WORKER_SITE = str(Path(__file__).with_name("worker_site"))
"""On their path, workers start in a third of the time: see its sitecustomize.py."""

# Only Maven Central: Spark's default also looks into ~/.m2, where a POM that Maven left without its
# JAR makes the resolution fail. DEFAULT_ARTIFACT_REPOSITORY names a mirror, as in Spark itself.
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{ivy}/cache"/>
  <resolvers><ibiblio name="central" m2compatible="true"{root}/></resolvers>
</ivysettings>
"""


def session(
    app_name: str = "lakemq",
    warehouse: str | os.PathLike[str] | None = None,
    *,
    master: str = "local[*,4]",
    delta: bool = True,
    starts_into: str | os.PathLike[str] | None = None,
    py_files: Sequence[str | os.PathLike[str]] = (),
    **conf: object,
) -> SparkSession:
    """Returns the Spark session, made on the first call: on this machine, or on a cluster.

    On a cluster (`spark://host:7077`, `yarn`, `k8s://...`) this process is the driver. Each host has lakemq
    installed in the Python that ``spark.pyspark.python`` names, without it at the path of this one's.

    >>> spark = session("orders", **{"spark.driver.memory": "2g"})

    The first call on a machine fetches Delta's JARs (7 files, 13 MB) from Maven Central.

    Args:
        app_name: Shown in Spark's logs and progress.
        warehouse: Where managed tables go; None is ``spark-warehouse`` in the working directory.
        master: Spark's master, threads included, and how often a task may fail: `local[*]` fails a
            query with its first task, where a cluster tries a task four times.
        py_files: Modules, zip files or wheels that are sent to where tasks run, and can be imported there.
        delta: Configures Delta Lake.
        starts_into: A file for what Java, Ivy and Log4j say until the session is there; None is standard
            error. What functions print in the workers later goes to standard error in either case.
        conf: Further settings, by Spark's names; they win over the ones made here, except that
            ``spark.jars.packages`` comes on top of Delta's.

    Raises:
        ImportError: pyspark is not installed; the message names the extra.
        InvalidRequest: There is no Java; the message says what to install.
        InternalError: SYSTEM_ERROR, with ``starts_into``: the JVM did not start; the message says why.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("a Spark session needs: pip install 'lakemq[spark]'") from error

    if SparkSession.getActiveSession() is None:
        require_java()
    # Workers would run the first python3 of the PATH, which has neither pyarrow nor lakemq.
    os.environ["PYSPARK_PYTHON"] = str(conf.get("spark.pyspark.python", sys.executable))
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = _base() | (_delta() if delta else {}) | (_of_one_machine() if is_local(master) else {})
    if warehouse is not None:
        settings["spark.sql.warehouse.dir"] = os.fspath(Path(warehouse).absolute())
    packages = [settings.get("spark.jars.packages"), conf.pop("spark.jars.packages", None)]
    settings |= {name: str(value) for name, value in conf.items()}
    if any(packages):
        settings["spark.jars.packages"] = ",".join(str(package) for package in packages if package)
    builder = SparkSession.builder.master(master).appName(app_name)
    with tempfile.TemporaryDirectory(prefix="lakemq-ivy-") as scratch:
        if delta and "spark.jars.ivySettings" not in settings:
            settings["spark.jars.ivySettings"] = _write_ivy_settings(
                Path(scratch), settings["spark.jars.ivy"]
            )
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _worker_path(), _said_into(starts_into) as jvm:
            _start_jvm({"spark.master": master, "spark.app.name": app_name} | settings, jvm)
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("ERROR")
            _hush(spark.sparkContext)
    sent_files.take_wheels()
    for file in py_files:
        spark.sparkContext.addPyFile(os.fspath(file))
    return spark


def _hush(context: SparkContext) -> None:
    """Keeps PySpark from printing a stack where the JVM has hung up: who runs a stream hears of it."""
    server: Any = context._accumulatorServer  # noqa: SLF001
    if "handle_error" in vars(server):  # a session that was there already
        return
    shown = server.handle_error

    def handle_error(*of_whom: object) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            shown(*of_whom)

    server.handle_error = handle_error


def active() -> SparkSession | None:
    """Returns this thread's session, as a notebook or a task of a cluster has one; None without one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return None
    return SparkSession.getActiveSession()


def is_local(master: str) -> bool:
    """Says whether a Spark master is this process's own machine, not a cluster.

    >>> is_local("local[*,4]"), is_local("spark://10.0.0.1:7077")
    (True, False)
    """
    return master.split("[")[0] == "local"


def write_checkpoints_alone(spark: SparkSession) -> None:
    """Has a session's queries write checkpoints of this machine's disks for half of an empty batch's time.

    Spark's default renames through Hadoop's FileContext, which starts eight ``readlink`` for each file where
    Hadoop's native library is missing, as it is in PySpark. Both look whether a name is taken, then rename;
    here two writers at the same moment more often both find it free, so this is for queries that have a lock
    or a lease, as those of ``lakemq consume`` and ``lakemq archive``. A setting of the user's stays.
    """
    import pyspark

    name = "spark.sql.streaming.checkpointFileManagerClass"
    if spark.conf.get(name, None) is None:
        version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
        package = "streaming.checkpointing" if version >= (4, 1) else "streaming"
        spark.conf.set(name, f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager")


def group(name: str, **options: object) -> SparkGroup:
    """Returns a consumer group whose handler is a function of DataFrames; its `run` starts it.

    >>> billing = group("billing", topic="orders", ledger="./ledger", available_now=True)
    >>> billing.run(lambda orders: orders.selectExpr("*", "if(tags = 'test', 'DEAD', 'ACK') AS verdict"))

    Args:
        name: The consumer group.
        options: Those of ``lakemq consume`` by their names in Python, values as the command line has them:
            ``topic`` (one or a list), ``ledger``, ``endpoint``, ``from_="earliest"``,
            ``max_reconsume_times=3``, ``retry_delays="1s,10s"``, ``available_now=True`` and so on.

    It runs in the active Spark session, else in one that `session` makes.

    Raises:
        InvalidRequest: An option is unknown or wrong.
    """
    from jobs.spark_group import SparkGroup

    def running() -> SparkSession:
        from pyspark.sql import SparkSession

        return SparkSession.getActiveSession() or session(f"lakemq group {name}")

    return SparkGroup(name, options, running)


@contextmanager
def _said_into(file: str | os.PathLike[str] | None) -> Iterator[dict[str, int]]:
    """Yields how a JVM is to be started so that a file gets what it says, within this block."""
    if file is None:
        yield {}
        return
    output = JvmOutput(file)
    try:
        yield {"stdout": output.writer, "stderr": output.writer}  # Ivy writes to both
    except Exception as error:
        output.pass_on()
        raise from_code("SYSTEM_ERROR", f"Spark did not start: {output.reason()}") from error
    output.pass_on()


def _start_jvm(settings: dict[str, str], how: dict[str, int]) -> None:
    """Starts the JVM, unless there is one, in a process group of its own.

    A signal to this process's group (``timeout``, a supervisor) is for this process: a JVM that got it too
    would be gone before the batch under way is committed. It ends with this process all the same, when the
    pipe to its standard input closes.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(settings.items()))
        with killed_when_interrupted():
            gateway = launch_gateway(conf, {"start_new_session": True, **how})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _worker_path() -> Iterator[None]:
    """Has the JVM, if one is started, hand our directory on to all its workers.

    spark.executorEnv.PYTHONPATH would not do: workers that plan a data source do not get it.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (_WORKER_SITE, before)))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _base() -> dict[str, str]:
    return {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # A third faster between Python worker and JVM than TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        # PySpark's own prints a stack for each worker that a stopped query leaves behind.
        "spark.python.daemon.module": "lakemq.spark_daemon",
        # 15 s by default for the JVM's and Python's sockets to meet: a busy laptop takes longer
        # (CANNOT_OPEN_SOCKET).
        "spark.python.authenticate.socketTimeout": "120s",
        # 10 ms by default: an idle query without a trigger interval asks the broker that often.
        "spark.sql.streaming.pollingDelay": "100ms",
        "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
    }


def _of_one_machine() -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        # 200 by default: on one machine each is a task of some milliseconds with nothing to do.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        # 10,000 by default, and VACUUM lists even an empty table in as many tasks: a minute of a core.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def delta_package() -> str:
    """Returns Delta's JAR for the PySpark that is installed; for one not known yet, the newest."""
    import pyspark

    return DELTA_PACKAGES.get(".".join(pyspark.__version__.split(".")[:2]), DELTA_PACKAGE)


def _delta() -> dict[str, str]:
    return {
        "spark.jars.packages": delta_package(),
        "spark.jars.excludes": ",".join(SHIPPED_WITH_SPARK),
        "spark.jars.ivy": str(Path.home() / ".ivy2.5.2"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # 128 MiB by default: each time small files of a ledger are put together, the one they grow to is
        # written anew.
        "spark.databricks.delta.autoCompact.maxFileSize": str(16 << 20),
    }


def _write_ivy_settings(directory: Path, ivy: str) -> str:
    # Without a root Ivy takes Maven Central.
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    path = directory / "ivysettings.xml"
    path.write_text(_IVY_SETTINGS.format(ivy=ivy, root=root))
    return str(path)
