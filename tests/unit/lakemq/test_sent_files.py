"""The place of what was sent on a process's path, in processes of their own: imports are for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

ROOT = Path(__file__).resolve().parents[3]
WORKER = """
import io
from pyspark.serializers import UTF8Deserializer, write_int, write_with_length
from pyspark.worker_util import setup_spark_files

told = io.BytesIO()
write_with_length({root!r}.encode(), told)
write_int(1, told)
write_with_length(b"more.zip", told)
told.seek(0)
setup_spark_files(told)
"""
"""What a worker does with what the JVM tells it of."""
SHOW = "import sent_prices, sent_discounts; print(sent_prices.FROM, sent_discounts.FROM)\n"
LOAD = """
from jobs.handler.loader import HandlerTarget

print(HandlerTarget("sent_prices:shout", "auto", ({beside!r},)).load().function(None))
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory that has modules by the names of those that are sent to its directory sent."""
    sent = tmp_path / "sent"
    sent.mkdir()
    for file in (tmp_path / "sent_prices.py", tmp_path / "sent_discounts.py", sent / "sent_prices.py"):
        file.write_text(f"FROM = {file.parent.name!r}\ndef shout(message):\n    return FROM.upper()\n")
    with zipfile.ZipFile(sent / "more.zip", "w") as archive:
        archive.writestr("sent_discounts.py", "FROM = 'sent'\n")
    return tmp_path


def run(here: Path, code: str, **env: str) -> str:
    """Runs code as Python runs a module: the working directory comes first, then PYTHONPATH."""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        env={"PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_worker_of_our_daemon_takes_what_was_sent_before_the_working_directory(here: Path) -> None:
    worker = WORKER.format(root=str(here / "sent"))
    assert run(here, worker + SHOW) == f"{here.name} {here.name}", "PySpark's own order"
    first = "from lakemq import sent_files; sent_files.leave_first_place()\n"
    assert run(here, first + worker + SHOW) == "sent sent"


@pytest.mark.parametrize("root", ["sent", "./sent", "{here}/sent"])
def test_a_handler_in_a_worker_of_any_daemon_is_what_was_sent(root: str, here: Path) -> None:
    worker = WORKER.format(root=root.format(here=here))
    load = LOAD.format(beside=str(here))
    assert run(here, f"import sys; del sys.path[0]\n{worker}{load}{SHOW}").split() == ["SENT", "sent", "sent"]
    assert run(here, worker + load + SHOW).split() == ["SENT", "sent", "sent"]


def test_a_driver_of_spark_submit_takes_what_was_sent_before_the_working_directory(here: Path) -> None:
    spark = here / "spark"
    sent = (str(here / "sent"), str(here / "sent" / "more.zip"))
    env = {
        "PYTHONPATH": os.pathsep.join((*sent, str(spark / "python" / "lib" / "pyspark.zip"), str(ROOT))),
        "SPARK_HOME": str(spark),
    }
    load = LOAD.format(beside=str(here)) + SHOW
    assert run(here, load, PYSPARK_GATEWAY_PORT="1", **env).split() == ["SENT", "sent", "sent"]
    assert run(here, load, **env).split() == [here.name.upper(), here.name, here.name], "a user's PYTHONPATH"


def test_a_package_that_was_sent_hides_none_of_ours(here: Path) -> None:
    (here / "sent" / "jobs.py").write_text("raise ImportError('of the user')\n")
    claim = "from lakemq import own_packages; own_packages.claim()\n"
    load = LOAD.format(beside=str(here))
    assert run(here, claim + WORKER.format(root=str(here / "sent")) + load) == "SENT"


def test_a_wheel_is_taken_as_a_zip_file_is(here: Path) -> None:
    shown = run(
        here,
        "from lakemq import sent_files; sent_files.take_wheels(); sent_files.take_wheels()\n"
        "from pyspark import SparkContext; print(*SparkContext.PACKAGE_EXTENSIONS)",
    )
    assert shown == ".zip .egg .jar .whl"


def test_without_spark_the_path_stays_as_it_is(here: Path) -> None:
    shown = run(
        here,
        "import sys; before = list(sys.path)\n"
        "from lakemq import sent_files; sent_files.put_first()\n"
        "print(sys.path == before, 'pyspark' in sys.modules)",
    )
    assert shown == "True False"
