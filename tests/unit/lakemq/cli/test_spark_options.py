"""The options of a command's Spark session."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from lakemq.cli.spark_options import LOCAL, SparkOptions, add_spark_options, spark_options
from lakemq.spark import is_local
from store_native.errors import InvalidRequest

LOG = Path("spark.log")


def options_of(*words: str, path: str | None = None) -> SparkOptions:
    parser = argparse.ArgumentParser()
    add_spark_options(parser, "somewhere")
    args = parser.parse_args(words)
    args.path = path
    return spark_options(args, LOG)


def test_without_a_word_it_is_this_machine() -> None:
    assert options_of() == SparkOptions(LOCAL, "2g", {}, (), LOG)
    assert options_of("--spark-ui") == SparkOptions(LOCAL, "2g", {}, (), LOG, ui=True)


def test_settings_and_files_are_read(tmp_path: Path) -> None:
    module, packed = tmp_path / "billing.py", tmp_path / "more.zip"
    module.touch()
    packed.touch()
    read = options_of(
        *(
            "--master",
            "spark://h:7077",
            "--conf",
            "a=b=c",
            "--conf",
            "d=",
            "--py-files",
            f"{module},{packed}",
        ),
        *("--spark-log", "x"),
    )
    assert read == SparkOptions("spark://h:7077", "2g", {"a": "b=c", "d": ""}, (module, packed), Path("x"))


def test_what_is_sent_can_be_imported_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    module, packed = tmp_path / "billing.py", tmp_path / "more.zip"
    SparkOptions(LOCAL, "2g", {}, (module, packed), LOG).make_importable()
    assert sys.path[:2] == [str(tmp_path), str(packed)]


@pytest.mark.parametrize(
    ("words", "path", "what"),
    [
        (("--conf", "spark.master=yarn"), None, "give it as --master"),
        (("--spark-ui", "--conf", "spark.ui.enabled=false"), None, "spark.ui.enabled: give one"),
        (("--conf", "spark.submit.pyFiles=x.py"), None, "give it as --py-files"),
        (("--py-files", "nowhere.py"), None, "there is no file nowhere.py"),
        (("--master", "spark://h:7077"), "/store", "--path: tasks on a cluster do not reach"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], path: str | None, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        options_of(*words, path=path)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_this_machine_is_called_local(master: str) -> None:
    assert is_local(master)
    assert options_of("--master", master, path="/store").master == master


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "yarn", "spark://localhost:7077", "k8s://x"])
def test_what_is_a_cluster(master: str) -> None:
    assert not is_local(master)
