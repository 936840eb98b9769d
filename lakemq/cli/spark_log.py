"""The Spark session of a command, whose own log goes into a named file, not over the terminal.

Owns the file's form and bounds (10 MB and two older ones) and the name it has beside a checkpoint. A person
reads one sentence; the stacks of Java that go with it are in the file.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark.log"
_CONF = """\
status = fatal
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {path}
appender.file.filePattern = {pattern}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def session(
    app_name: str, log: Path, *, master: str, py_files: Sequence[str], conf: Mapping[str, str]
) -> SparkSession:
    """Starts Spark, and says so: it takes a while.

    Args:
        app_name: Shown in Spark's log.
        log: The file that gets all that Spark says from its start.
        master, py_files, conf: As of :func:`lakemq.spark.session`.
    """
    from lakemq import spark

    print(f"Spark starts; its log is {log}", flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    move_py4j_to(log)  # first: it logs a Ctrl-C while the session is made
    settings: dict[str, Any] = dict(conf)
    made = spark.session(app_name, master=master, py_files=py_files, starts_into=log, **settings)
    move_to(log, made)
    return made


class _QuietFile(logging.FileHandler):
    """A log whose disk may be full: what ends the command is said by its last line."""

    def handleError(self, record: logging.LogRecord) -> None:
        """See :meth:`logging.Handler.handleError`, which prints both stacks."""


def move_py4j_to(path: Path) -> None:
    """Sends what Py4J logs in this process, some of it as nobody, into a file from now on."""
    file = _QuietFile(path, encoding="utf-8", delay=True)
    py4j = logging.getLogger("py4j")
    py4j.addHandler(file)
    py4j.propagate = False

    def is_somebody_elses(record: logging.LogRecord) -> bool:
        if Path(record.pathname).parent.name != "py4j":
            return True
        file.handle(record)
        return False

    logging.getLogger().addFilter(is_somebody_elses)  # it sees what is logged without a name, nothing else


def move_to(path: Path, spark: SparkSession) -> None:
    """Sends the log of Spark's JVM into a file from now on.

    Args:
        path: The file; it is appended to.
        spark: A session whose JVM is ours.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    with tempfile.NamedTemporaryFile("w", suffix=".properties", encoding="latin-1") as conf:
        conf.write(configuration(path))
        conf.flush()
        log4j = jvm.org.apache.logging.log4j.core.config.Configurator
        log4j.reconfigure(jvm.java.io.File(conf.name).toURI())


def configuration(path: Path) -> str:
    """Writes Log4j's properties for a file, whatever characters are in its path."""
    plain = str(path.absolute()).replace("$", "$$")  # Log4j looks ${...} up
    return _CONF.format(path=_escaped(plain), pattern=_escaped(plain.replace("%", "%%")))


def _escaped(text: str) -> str:
    r"""Writes a value as Java's properties files want it: backslashes and beyond ASCII as \uXXXX."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(
        chr(code) if 0x20 < code < 0x7F and code != ord("\\") else f"\\u{code:04x}" for code in codes
    )
