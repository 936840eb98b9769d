"""One process writes a table: a second one is refused, one that was killed leaves its JVM to wait for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from delta_tables.ledger.writer_lock import WriterLock
from store_native.errors import Unavailable


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
    with pytest.raises(Unavailable, match="another process writes deliveries"):
        WriterLock(tmp_path, "deliveries").acquire()
    lock.release()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0


def test_a_jvm_that_lives_on_after_a_clean_end_is_not_waited_for(tmp_path: Path) -> None:
    first = WriterLock(tmp_path, "deliveries")
    first.acquire()
    first.name_jvm(os.getpid())
    first.release()
    second = WriterLock(tmp_path, "deliveries", clock=lambda: 0.0)
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
