"""The path of Spark's log reaches Log4j as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakemq.cli.spark_log import configuration


def value_of(name: str, path: str) -> str:
    lines = configuration(Path(path)).splitlines()
    return next(line.partition(" = ")[2] for line in lines if line.startswith(f"{name} = "))


def test_path_that_means_something_to_log4j_or_to_properties_is_escaped() -> None:
    path = "/a b/ü/${env:HOME}/50%d\\x/spark.log"
    name = value_of("appender.file.fileName", path)
    assert name == "/a\\u0020b/\\u00fc/$${env:HOME}/50%d\\u005cx/spark.log"
    assert value_of("appender.file.filePattern", path) == name.replace("%", "%%") + ".%i"


def test_log_is_bounded() -> None:
    assert value_of("appender.file.policies.size.size", "/x") == "10MB"
    assert value_of("appender.file.strategy.max", "/x") == "2"


def test_log_on_a_full_disk_says_nothing_on_the_terminal() -> None:
    code = """
import logging, pathlib
from lakemq.cli.spark_log import move_py4j_to
move_py4j_to(pathlib.Path("/dev/full"))
try:
    raise OSError("no space")
except OSError:
    logging.getLogger("py4j.clientserver").exception("with a stack")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stderr == ""


def test_what_py4j_logs_with_and_without_its_name_is_in_the_file_alone(tmp_path: Path) -> None:
    code = f"""
import logging, pathlib
from lakemq.cli.spark_log import move_py4j_to
logging.basicConfig(format="%(levelname)s %(message)s")
move_py4j_to(pathlib.Path({str(tmp_path / "spark.log")!r}))
logging.getLogger("py4j.java_gateway").error("of its name")
exec(compile("logging.error('of nobody')", "/site-packages/py4j/java_gateway.py", "exec"))
logging.error("ours, of nobody")
logging.getLogger("jobs").warning("ours")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stderr == "ERROR ours, of nobody\nWARNING ours\n"
    assert (tmp_path / "spark.log").read_text() == "of its name\nof nobody\n"
