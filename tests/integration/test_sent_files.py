"""What is sent to where tasks run is what runs there.

Contract: a module that was sent, alone, in a zip file or in a wheel, is imported in place of one of its name
that lies in the working directory, by the command and in Spark's workers alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from lakemq import Message
from lakemq.spark import SHIPPED_WITH_SPARK, delta_package
from tests.support.broker_process import BrokerProcess
from tests.support.consumer_process import START_TIMEOUT_S, ConsumerProcess
from tests.support.dispatch_barrier import await_dispatch

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
HANDLER = """
import pathlib
from importlib import resources
from importlib.metadata import version

import sent_discounts, sent_prices

def handle(message):
    rate = resources.files(__package__).joinpath("rate.txt").read_text()
    with pathlib.Path({seen!r}).open("a") as seen:
        print(message.text, sent_prices.FROM, sent_discounts.FROM, version("sent-shop"), rate, file=seen)
"""
SAW = "0 sent sent 1.0 7"
SCRIPT = """
import sys
from pyspark.sql.functions import udf
from lakemq.spark import session

spark = session(delta=False, master="local[1]", py_files=sys.argv[1:], **{"spark.driver.memory": "1g"})


def from_where(_):
    import sent_discounts, sent_prices, sent_rates

    return f"{sent_prices.FROM} {sent_discounts.FROM} {sent_rates.FROM}"


print("took", spark.range(1).select(udf(from_where)("id")).first()[0])
spark.stop()
"""


def packed(file: Path, **members: str) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return file


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A working directory that has modules by all the names that are sent."""
    directory = tmp_path / "here"
    directory.mkdir()
    for name in ("sent_prices", "sent_discounts", "sent_rates", "sent_shop"):
        (directory / f"{name}.py").write_text("FROM = 'here'\n")
    return directory


@pytest.fixture
def sent(tmp_path: Path) -> tuple[Path, ...]:
    """A module, a zip file and a wheel with the handler, its data and its metadata."""
    directory = tmp_path / "sent"
    directory.mkdir()
    module = directory / "sent_prices.py"
    module.write_text("FROM = 'sent'\n")
    wheel = packed(
        directory / "sent_shop-1.0-py3-none-any.whl",
        **{
            "sent_shop/__init__.py": HANDLER.format(seen=str(tmp_path / "seen")),
            "sent_shop/rate.txt": "7",
            "sent_rates.py": "FROM = 'sent'\n",
            "sent_shop-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sent-shop\nVersion: 1.0\n",
        },
    )
    return module, packed(directory / "more.zip", **{"sent_discounts.py": "FROM = 'sent'\n"}), wheel


def one_message(broker: BrokerProcess, topic: str) -> None:
    client = broker.client()
    client.put_topic(topic, read_queue_nums=1, write_queue_nums=1)
    client.send_many(topic, [Message("0")])
    await_dispatch(client)


def test_a_group_calls_the_handler_of_a_wheel_with_what_was_sent_beside_it(
    shared_broker: BrokerProcess, here: Path, sent: tuple[Path, ...], tmp_path: Path
) -> None:
    one_message(shared_broker, "wheels")
    arguments = (
        *("--group", "wheels", "--topic", "wheels", "--endpoint", shared_broker.endpoint),
        # The worker imports the handler as well as the process beside it.
        *("--from", "earliest", "--isolation", "process", "--available-now"),
        *("--handler", "sent_shop:handle", "--py-files", ",".join(map(str, sent))),
    )
    with ConsumerProcess(here, *arguments) as consumer:
        assert consumer.wait() == 0, consumer.log()
    assert (tmp_path / "seen").read_text().splitlines() == [SAW], consumer.log()


def test_a_function_in_a_session_imports_what_was_sent(here: Path, sent: tuple[Path, ...]) -> None:
    (here / "mine.py").write_text(SCRIPT)
    ended = subprocess.run(
        [sys.executable, "mine.py", *map(str, sent)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_TIMEOUT_S,
    )
    assert ended.stdout.splitlines() == ["took sent sent sent"], ended.stderr[-3_000:]


@pytest.mark.nightly
def test_a_group_under_spark_submit_calls_what_was_sent(
    shared_broker: BrokerProcess, here: Path, sent: tuple[Path, ...], tmp_path: Path
) -> None:
    one_message(shared_broker, "submitted")
    command = (
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", "local[1]", "--py-files", ",".join(map(str, sent)), "--packages", delta_package()),
        *("--exclude-packages", ",".join(SHIPPED_WITH_SPARK)),
        *("--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"),
        *("--conf", "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        *("--conf", "spark.sql.shuffle.partitions=2"),
        str(ROOT / "docs" / "deploy" / "consume.py"),
        *("--group", "submitted", "--topic", "submitted", "--endpoint", shared_broker.endpoint),
        *("--handler", "sent_shop:handle", "--from", "earliest", "--available-now"),
    )
    ended = subprocess.run(
        command,
        cwd=here,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3_000:]
    assert (tmp_path / "seen").read_text().splitlines() == [SAW], ended.stderr[-3_000:]
