"""The options of a command's Spark session."""

from __future__ import annotations

import argparse
import sys
import zipfile
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
    packed_with(packed)
    read = options_of(
        *(
            "--master",
            "spark://h:7077",
            "--conf",
            "spark.a=b=c",
            "--conf",
            "spark.d=",
            "--py-files",
            f"{module},{packed}",
        ),
        *("--spark-log", "x"),
    )
    assert read == SparkOptions(
        "spark://h:7077", "2g", {"spark.a": "b=c", "spark.d": ""}, (module, packed), Path("x")
    )


@pytest.mark.parametrize(
    "master", ["local", "local[4]", "local[*,4]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:6443"]
)
def test_masters_that_spark_knows(master: str) -> None:
    assert options_of("--master", master).master == master


def test_a_master_that_is_none_and_a_log_that_is_a_directory_are_refused(tmp_path: Path) -> None:
    for master in ("foo", "local[", "local[]", "spark:/h:7077", "h:7077"):
        with pytest.raises(InvalidRequest, match=r"--master: .* is none of Spark's"):
            options_of("--master", master)
    with pytest.raises(InvalidRequest, match=f"--spark-log: {tmp_path} is a directory"):
        options_of("--spark-log", str(tmp_path))


def test_what_is_sent_can_be_imported_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path.cwd())
    module, packed = tmp_path / "billing.py", tmp_path / "more.zip"
    monkeypatch.setattr(sys, "path", [here, "lib", str(packed)])
    SparkOptions(LOCAL, "2g", {}, (module, packed), LOG).make_importable()
    assert sys.path == [str(tmp_path), str(packed), here, "lib"]
    monkeypatch.setattr(sys, "path", ["lib"])
    SparkOptions(LOCAL, "2g", {}, (module, packed), LOG).make_importable()
    assert sys.path == [str(tmp_path), str(packed), here, "lib"], "what is named wins over what lies about"


@pytest.mark.parametrize(
    ("words", "path", "what"),
    [
        (("--conf", "spark.master=yarn"), None, "give it as --master"),
        (("--spark-ui", "--conf", "spark.ui.enabled=false"), None, "spark.ui.enabled: give one"),
        (("--conf", "spark.submit.pyFiles=x.py"), None, "give it as --py-files"),
        (("--conf", "spark.driver.memory=700m"), None, "give it as --driver-memory"),
        (("--conf", "spark.submit.deployMode=cluster"), None, "this process is the driver"),
        *(
            (("--conf", f"{name}=x"), None, f"--conf {name}: names of Spark's settings begin with spark")
            for name in ("master", "app_name", "py_files", "starts_into", "warehouse", "delta", "Spark.a")
        ),
        (("--master", ""), None, "--master: it is empty"),
        (("--master", " "), None, "--master: it is empty"),
        (("--py-files", "nowhere.py"), None, "there is no file nowhere.py"),
        (("--py-files", ","), None, "--py-files: it names no file"),
        (("--py-files", ""), None, "--py-files: it names no file"),
        (("--py-files", "hdfs://x/y.zip"), None, "hdfs://x/y.zip: it takes files of this machine"),
        (("--master", "spark://h:7077"), "/store", "--path: tasks on a cluster do not reach"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], path: str | None, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what):
        options_of(*words, path=path)


def packed_with(file: Path, *members: str) -> Path:
    with zipfile.ZipFile(file, "w") as packed:
        for member in members:
            packed.writestr(member, "")
    return file


def test_only_what_a_worker_can_import_is_sent(tmp_path: Path) -> None:
    for name in ("env.sh", "billing.PY", "billing"):
        (tmp_path / name).touch()
        with pytest.raises(InvalidRequest, match=rf"{name}: it is no module, zip file or wheel"):
            options_of("--py-files", str(tmp_path / name))
    text = tmp_path / "text.whl"
    text.write_text("no zip")
    with pytest.raises(InvalidRequest, match=r"text\.whl: it is not in the form of a zip file"):
        options_of("--py-files", str(text))
    compiled = packed_with(tmp_path / "fast.whl", "fast/__init__.py", "fast/_core.abi3.so")
    with pytest.raises(InvalidRequest, match=r"fast\.whl: it has compiled modules.*install it on each host"):
        options_of("--py-files", str(compiled))
    for name in ("a.whl", "b.egg", "c.ZIP"):
        file = packed_with(tmp_path / name, "billing.py")
        assert options_of("--py-files", str(file)).py_files == (file,)


def test_a_session_has_the_memory_that_was_asked_for() -> None:
    assert options_of("--driver-memory", "700m").driver_memory == "700m"
    assert options_of("--conf", "spark.submit.deployMode=client").conf == {
        "spark.submit.deployMode": "client"
    }


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_this_machine_is_called_local(master: str) -> None:
    assert is_local(master)
    assert options_of("--master", master, path="/store").master == master


@pytest.mark.parametrize("master", ["local-cluster[2,1,1024]", "yarn", "spark://localhost:7077", "k8s://x"])
def test_what_is_a_cluster(master: str) -> None:
    assert not is_local(master)
