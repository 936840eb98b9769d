"""One process writes a table: a second one is refused, one that was killed leaves its JVM to wait for."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from delta_tables.ledger.writer_lock import WriterLock, await_exit, started
from store_native.errors import Unavailable


def never() -> NoReturn:
    raise AssertionError("there is nothing to wait for")


def file_of(ledger: Path) -> Path:
    return ledger / "_locks" / "deliveries.lock"


def left_by(ledger: Path, holder: Any) -> None:
    """What a holder that was killed left in the file."""
    file_of(ledger).parent.mkdir()
    file_of(ledger).write_bytes(holder if isinstance(holder, bytes) else json.dumps(holder).encode())


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends a moment after its input does."""
    with subprocess.Popen(["sh", "-c", "read x; sleep 0.1"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_a_second_writer_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path, "deliveries")
    lock.acquire()
    code = (
        "import sys; from pathlib import Path; from delta_tables.ledger.writer_lock import WriterLock\n"
        "WriterLock(Path(sys.argv[1]), 'deliveries').acquire()"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "STORE_LOCKED" in refused.stderr
    assert f"another process writes deliveries of this ledger (process {os.getpid()})" in refused.stderr
    with pytest.raises(Unavailable, match="this process itself writes deliveries"):
        WriterLock(tmp_path, "deliveries").acquire()
    lock.release()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_a_jvm_that_lives_on_after_a_clean_end_is_not_waited_for(tmp_path: Path) -> None:
    first = WriterLock(tmp_path, "deliveries")
    first.acquire()
    first.name_jvm(os.getpid())
    first.release()
    assert file_of(tmp_path).read_bytes() == b""
    second = WriterLock(tmp_path, "deliveries", clock=never)
    second.acquire()
    second.release()


def test_the_lock_waits_for_a_jvm_that_outlives_its_killed_holder(tmp_path: Path) -> None:
    jvm = subprocess.Popen(["sleep", "600"])
    code = (
        "import os, sys; from pathlib import Path; from delta_tables.ledger.writer_lock import WriterLock\n"
        "lock = WriterLock(Path(sys.argv[1]), 'deliveries'); lock.acquire()\n"
        "lock.name_jvm(int(sys.argv[2]))\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(jvm.pid)], check=False)
    assert killed.returncode == -signal.SIGKILL
    clock = iter([0.0, 31.0, 62.0])
    with pytest.raises(Unavailable, match=f"JVM {jvm.pid}"):
        WriterLock(tmp_path, "deliveries", clock=lambda: next(clock)).acquire()
    jvm.kill()
    after = WriterLock(tmp_path, "deliveries")
    after.acquire()
    after.release()
    jvm.wait()


def test_the_file_names_the_holder_and_its_jvm(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path, "deliveries")
    lock.acquire()
    assert json.loads(file_of(tmp_path).read_bytes()) == {"pid": os.getpid()}
    for jvm in (os.getppid(), os.getpid()):
        lock.name_jvm(jvm)
        named = {"pid": os.getpid(), "jvm": jvm, "jvm_started": started(jvm)}
        assert json.loads(file_of(tmp_path).read_bytes()) == named
    assert named["jvm_started"] is not None
    lock.release()


@pytest.mark.parametrize(("holder", "named"), [({"pid": 77, "jvm": 78}, "77"), ({}, "?"), (b"", "?")])
def test_a_refusal_names_the_table_the_process_and_the_file(tmp_path: Path, holder: Any, named: str) -> None:
    left_by(tmp_path, holder)
    with file_of(tmp_path).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Unavailable) as refused:
            WriterLock(tmp_path, "deliveries").acquire()
        opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert opened.count(str(file_of(tmp_path))) == 1, "the refused one's is left open"
    assert refused.value.code == "STORE_LOCKED"
    assert f"writes deliveries of this ledger (process {named}):" in refused.value.detail
    assert refused.value.context["path"] == str(file_of(tmp_path))
    assert refused.value.__suppress_context__


def test_a_lock_given_back_is_open_no_more_and_may_be_given_back_again(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path / "not" / "made", "deliveries")
    lock.release()
    lock.acquire()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        lock.release()
        gc.collect()
    assert not [w for w in warned if issubclass(w.category, ResourceWarning)], "closed by chance"
    lock.release()
    lock.acquire()
    lock.release()


@pytest.mark.parametrize("holder", [b"", b"{", b"\xff\xfe", [1], 7, "text", None, {"pid": 1}, {"jvm": None}])
def test_a_file_that_names_no_jvm_is_no_hindrance(tmp_path: Path, holder: Any) -> None:
    left_by(tmp_path, holder)
    lock = WriterLock(tmp_path, "deliveries", clock=never)
    lock.acquire()
    assert json.loads(file_of(tmp_path).read_bytes()) == {"pid": os.getpid()}
    lock.release()


def test_a_process_that_got_the_jvms_number_later_is_not_waited_for(tmp_path: Path) -> None:
    begun = started(os.getpid())
    assert begun is not None
    left_by(tmp_path, {"pid": 1, "jvm": os.getpid(), "jvm_started": begun - 1})
    lock = WriterLock(tmp_path, "deliveries", await_exit=lambda pid, seconds: never())
    lock.acquire()
    lock.release()


def test_a_jvm_that_ends_in_time_is_waited_for_without_spinning(
    tmp_path: Path, jvm: subprocess.Popen[bytes]
) -> None:
    left_by(tmp_path, {"pid": 1, "jvm": jvm.pid, "jvm_started": started(jvm.pid)})
    clock = iter([0.0, *[30.0] * 20])  # not a moment later than it may take
    asked: list[tuple[int, float]] = []

    def wait(pid: int, seconds: float) -> None:
        asked.append((pid, seconds))
        end(jvm)
        await_exit(pid, seconds)

    lock = WriterLock(tmp_path, "deliveries", clock=lambda: next(clock), await_exit=wait)
    lock.acquire()
    assert jvm.poll() is not None, "it may still commit"
    assert asked[0] == (jvm.pid, 1.0)
    assert json.loads(file_of(tmp_path).read_bytes()) == {"pid": os.getpid()}
    lock.release()


def test_a_jvm_that_does_not_end_keeps_the_lock_from_the_next_and_stays_named(
    tmp_path: Path, jvm: subprocess.Popen[bytes]
) -> None:
    holder = {"pid": 1, "jvm": jvm.pid, "jvm_started": started(jvm.pid)}
    left_by(tmp_path, holder)
    clock = iter([5.0, 5.1, 35.0, 35.1])
    waits: list[float] = []
    lock = WriterLock(
        tmp_path,
        "deliveries",
        clock=lambda: next(clock),
        await_exit=lambda pid, seconds: waits.append(seconds),
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(Unavailable, match="STORE_LOCKED"):
            lock.acquire()
        gc.collect()
    assert not [w for w in warned if issubclass(w.category, ResourceWarning)], "closed by chance"
    assert waits == [1.0, 1.0]
    lock.release()
    assert json.loads(file_of(tmp_path).read_bytes()) == holder
    with file_of(tmp_path).open("rb") as free:
        fcntl.flock(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_process_is_waited_for_until_it_has_ended_or_the_time_is_over(
    jvm: subprocess.Popen[bytes],
) -> None:
    await_exit(jvm.pid, 0.01)
    assert jvm.poll() is None
    end(jvm)
    await_exit(jvm.pid, 60.0)
    assert jvm.poll() is not None
    await_exit(jvm.pid, 60.0)  # gone
    opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    assert "anon_inode:[pidfd]" not in opened, "left open"


def test_a_process_is_waited_for_by_one_that_has_many_files_open(jvm: subprocess.Popen[bytes]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2_048), hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] < 1_100:
            opened.append(os.dup(opened[0]))
        await_exit(jvm.pid, 0.01)
        end(jvm)
        await_exit(jvm.pid, 60.0)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert jvm.poll() is not None


def test_the_start_of_a_process_is_its_own_in_ticks_since_boot() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    before = time.clock_gettime(time.CLOCK_BOOTTIME) * ticks
    with subprocess.Popen(["sleep", "600"]) as process:
        after = time.clock_gettime(time.CLOCK_BOOTTIME) * ticks
        begun = started(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert started(process.pid) is None, "a zombie"
    assert started(process.pid) is None
    assert begun is not None
    assert before - 1 <= begun <= after + 1


@pytest.fixture
def rename() -> Iterator[Callable[[bytes], int]]:
    """Gives the process of the tests another name."""
    comm = Path(f"/proc/{os.getpid()}/comm")
    before = comm.read_bytes()
    yield comm.write_bytes
    comm.write_bytes(before)


@pytest.mark.parametrize("name", [b") Z 1 (2) 3", "日本".encode(), b"\xff\xfe"])
def test_a_process_may_have_any_name(name: bytes, rename: Callable[[bytes], int]) -> None:
    begun = started(os.getpid())
    rename(name)
    assert name in Path(f"/proc/{os.getpid()}/stat").read_bytes()
    assert started(os.getpid()) == begun
