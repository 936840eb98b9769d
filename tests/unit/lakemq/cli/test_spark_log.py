"""The path of Spark's log reaches Log4j as it is."""

from __future__ import annotations

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
