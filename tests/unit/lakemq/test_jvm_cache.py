"""What a session leaves for the next: it saves time where it fits, and is never in the way."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import pytest

from lakemq.jvm_cache import UNUSED_DAYS, JvmCache, cache_home

WHOLE = (0xF00BABA8).to_bytes(4, "little") + b"classes"


class Machine:
    """A Java, a Spark and a cache directory; `cache` is what a process that starts a JVM makes."""

    def __init__(self, directory: Path) -> None:
        self.home = directory / "cache"
        self.spark = directory / "pyspark" / "jars"
        self.spark.mkdir(parents=True)
        self.java = directory / "java"
        (self.java / "bin").mkdir(parents=True)
        (self.java / "bin" / "java").write_text("#!")

    def cache(self, package: str = "delta:1", **variables: str) -> JvmCache:
        return JvmCache(self.home, self.spark, package, {"JAVA_HOME": str(self.java), **variables})

    def folder(self) -> Path:
        (folder,) = self.home.glob("spark-*")
        return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def written(options: str) -> Path:
    """Where a JVM with these options is to write an archive."""
    found = re.search(r'"-XX:ArchiveClassesAtExit=([^"]+)"', options)
    assert found, options
    return Path(found[1])


def mapped(options: str) -> Path:
    """Which archive a JVM with these options maps."""
    found = re.search(r'"-XX:SharedArchiveFile=([^"]+)"', options)
    assert found, options
    return Path(found[1])


def test_jars_are_found_again_while_they_are_there_as_they_were(machine: Machine, tmp_path: Path) -> None:
    jar = tmp_path / "delta.jar"
    jar.write_bytes(b"12345")
    assert machine.cache().jars() == []
    machine.cache().keep_jars([str(jar)])
    assert machine.cache().jars() == [str(jar)]
    assert machine.cache("delta:2").jars() == []
    jar.write_bytes(b"123")
    assert machine.cache().jars() == []
    jar.unlink()
    assert machine.cache().jars() == []


@pytest.mark.parametrize("text", ["", "[", "[1]", "7", '{"/there/is/none": 1}', '{"a": []}'])
def test_a_list_that_is_none_is_as_good_as_none(machine: Machine, text: str) -> None:
    machine.cache().keep_jars([])
    (machine.folder() / "jars.json").write_text(text)
    assert machine.cache().jars() == []


def test_the_first_jvm_writes_an_archive_and_later_ones_map_it(machine: Machine) -> None:
    with machine.cache().archive() as (options, inherited):
        (lock,) = inherited
        held = os.dup(lock)  # by the JVM, until it has ended
        place = written(options)
    place.write_bytes(WHOLE[:2])
    with machine.cache().archive() as others:
        assert others == ("", ()), "one JVM at a time writes, and what it has not finished is not mapped"
    place.write_bytes(WHOLE)
    os.close(held)
    for _ in range(2):
        with machine.cache().archive() as (options, inherited):
            assert (mapped(options).read_bytes(), inherited) == (WHOLE, ())


def test_an_archive_that_a_killed_jvm_left_is_written_anew(machine: Machine) -> None:
    with machine.cache().archive() as (options, _):
        written(options).write_bytes(bytes(4) + WHOLE)
    with machine.cache().archive() as (options, inherited):
        assert inherited
        assert not written(options).exists()


def test_another_java_or_spark_has_another_archive(machine: Machine) -> None:
    with machine.cache().archive() as (options, _):
        first = written(options)
    os.utime(machine.spark, (1, 1))
    with machine.cache().archive() as (options, _):
        second = written(options)
    os.utime(machine.java / "bin" / "java", (1, 1))
    with machine.cache().archive() as (options, _):
        third = written(options)
    assert len({first, second, third}) == 3


def test_who_names_an_archive_keeps_it(machine: Machine) -> None:
    for option in ("-XX:SharedArchiveFile=mine", "-XX:ArchiveClassesAtExit=mine", "-Xshare:off"):
        with machine.cache(SPARK_SUBMIT_OPTS=f"-Xss4m {option}").archive() as given:
            assert given == ("", ())


def test_a_directory_that_cannot_be_written_is_done_without(machine: Machine) -> None:
    machine.home.write_text("a file")
    machine.cache().keep_jars(["/x.jar"])
    assert machine.cache().jars() == []
    with machine.cache().archive() as given:
        assert given == ("", ())


def test_a_folder_that_nobody_uses_any_more_is_deleted_for_a_new_one(machine: Machine) -> None:
    machine.cache("used").keep_jars([])
    used = machine.folder()
    with machine.cache("old").archive():
        pass
    (old,) = set(machine.home.glob("spark-*")) - {used}
    long_ago = old.stat().st_mtime - UNUSED_DAYS * 86_400 - 10
    os.utime(old, (long_ago, long_ago))
    machine.cache("new").keep_jars([])
    assert used.exists()
    assert not old.exists()


def test_the_lock_is_left_when_no_jvm_holds_it(machine: Machine) -> None:
    with machine.cache().archive():
        pass
    with (machine.folder() / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_caches_are_where_the_user_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_home({}) == tmp_path / ".cache" / "lakemq"
    assert cache_home({"XDG_CACHE_HOME": "/c"}) == Path("/c/lakemq")
