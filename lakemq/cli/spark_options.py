"""The Spark that a command runs in: on this machine, or on a cluster.

Owns the options of the session. Its log is spark_log.py's.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakemq.argument_types import memory
from lakemq.cli import spark_log
from lakemq.cli.options import pair
from lakemq.spark import is_local, write_checkpoints_alone
from store_native.errors import InvalidRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores of this machine; a task is tried four times, as on a cluster."""

_OWN = {
    "spark.master": "--master",
    "spark.submit.pyFiles": "--py-files",
    "spark.driver.memory": "--driver-memory",
}
_MASTER = re.compile(r"local(\[.+\]|-cluster\[.+\])?|yarn|[a-z][a-z0-9]*://.+")
"""The forms that Spark and its cluster managers know; which address, they say."""
_PACKED = (".zip", ".egg", ".whl")
_COMPILED = (".so", ".pyd", ".dylib")


@dataclass(frozen=True)
class SparkOptions:
    """What a command's line says of its session.

    Attributes:
        master: Spark's.
        driver_memory: Of the JVM of this process.
        conf: Settings by Spark's names.
        py_files: What is sent to where tasks run.
        log: The file that gets all that Spark says.
        ui: Spark serves its own page, whose address is said.
    """

    master: str
    driver_memory: str
    conf: dict[str, str]
    py_files: tuple[Path, ...]
    log: Path
    ui: bool = False

    def make_importable(self) -> None:
        """Has this process find what is in the files that are sent, too, before the working directory's."""
        if not self.py_files:
            return
        places = [str((file.parent if file.suffix == ".py" else file).absolute()) for file in self.py_files]
        here = str(Path.cwd())
        rest = sys.path if here in sys.path else [here, *sys.path]
        sys.path[:] = dict.fromkeys((*places, *rest))

    def session(self, app_name: str) -> SparkSession:
        """Starts Spark, and says so: it takes a while."""
        conf = {"spark.driver.memory": self.driver_memory, **self.conf}
        if self.ui:
            conf["spark.ui.enabled"] = "true"
        made = spark_log.session(
            app_name, self.log, master=self.master, py_files=[str(file) for file in self.py_files], conf=conf
        )
        if is_local(self.master):
            write_checkpoints_alone(made)
        if self.ui:
            print(f"Spark's page is {made.sparkContext.uiWebUrl}", flush=True)
        return made


def add_spark_options(parser: argparse.ArgumentParser, default_log: str) -> None:
    """Adds the options of the session.

    Args:
        parser: The command's.
        default_log: Where Spark's log goes without its option, in words.
    """
    parser.add_argument(
        "--master",
        default=LOCAL,
        metavar="URL",
        help="where tasks run: this machine, or a cluster's spark://HOST:7077, yarn, k8s://... "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=pair,
        metavar="NAME=VALUE",
        help="a setting of Spark (may be repeated)",
    )
    parser.add_argument(
        "--py-files",
        metavar="FILES",
        help="modules, zip files or wheels of this machine, separated by commas, that are sent to where "
        "tasks run, such as the handler",
    )
    parser.add_argument(
        "--driver-memory",
        type=memory,
        default="2g",
        metavar="SIZE",
        help="memory of the JVM of this process, 512m at the least (default: %(default)s)",
    )
    parser.add_argument(
        "--spark-ui",
        action="store_true",
        help="serve Spark's own page of jobs and streams, and say its address: port 4040, or the next one "
        "that is free (on a cluster it is there without this option)",
    )
    parser.add_argument(
        "--spark-log", type=Path, metavar="FILE", help=f"where Spark's log goes (default: {default_log})"
    )


def spark_options(args: argparse.Namespace, default_log: Path) -> SparkOptions:
    """Reads the options of the session.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL; a file is not there, or tasks elsewhere cannot read the store.
    """
    conf = dict(args.conf)
    _check_conf(conf)
    if not args.master.strip():
        raise _illegal("--master: it is empty; without the option tasks run on this machine")
    if not _MASTER.fullmatch(args.master.strip()):
        raise _illegal(
            f"--master: {args.master!r} is none of Spark's: local[N], local[*], spark://HOST:PORT, yarn, "
            "k8s://URL"
        )
    py_files = _py_files(args.py_files)
    if args.path is not None and not is_local(args.master):
        raise _illegal(
            "--path: tasks on a cluster do not reach a store of this machine; give --endpoint alone"
        )
    if args.spark_ui and conf.get("spark.ui.enabled", "true") != "true":
        raise _illegal("--spark-ui and --conf spark.ui.enabled: give one")
    log = args.spark_log or default_log
    if log.is_dir():
        raise _illegal(f"--spark-log: {log} is a directory, not a file")
    return SparkOptions(args.master, args.driver_memory, conf, py_files, log, ui=args.spark_ui)


def _check_conf(conf: Mapping[str, str]) -> None:
    for name in conf:
        if not name.startswith("spark."):
            raise _illegal(f"--conf {name}: names of Spark's settings begin with spark.")
        if name in _OWN:
            raise _illegal(f"--conf {name}: give it as {_OWN[name]}")
    if conf.get("spark.submit.deployMode", "client") != "client":
        raise _illegal(
            "--conf spark.submit.deployMode: this process is the driver; spark-submit starts one elsewhere"
        )


def _py_files(text: str | None) -> tuple[Path, ...]:
    if text is None:
        return ()
    names = [name for name in text.split(",") if name]
    if not names:
        raise _illegal("--py-files: it names no file")
    for name in names:
        if "://" in name:
            raise _illegal(f"--py-files {name}: it takes files of this machine")
        _check_py_file(Path(name))
    return tuple(map(Path, names))


def _check_py_file(file: Path) -> None:
    if not file.is_file():
        raise _illegal(f"--py-files: there is no file {file}")
    if file.suffix == ".py":
        return
    if file.suffix.lower() not in _PACKED:
        raise _illegal(f"--py-files {file}: it is no module, zip file or wheel (.py, .zip, .egg, .whl)")
    try:
        with zipfile.ZipFile(file) as packed:
            members = packed.namelist()
    except zipfile.BadZipFile:
        raise _illegal(f"--py-files {file}: it is not in the form of a zip file") from None
    if file.suffix.lower() == ".whl" and any(member.endswith(_COMPILED) for member in members):
        raise _illegal(
            f"--py-files {file}: it has compiled modules, which Python does not import from within a file; "
            "install it on each host"
        )


def _illegal(what: str) -> InvalidRequest:
    return InvalidRequest("ARGUMENT_ILLEGAL", what)
