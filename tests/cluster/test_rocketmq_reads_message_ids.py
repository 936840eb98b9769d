"""RocketMQ's own decoder reads host and time out of the message ids that LakeMQ makes."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

from tests.support.peer_brokers import ROCKETMQ_TOOL, run_java
from tests.support.peer_jars import classes
from tests.support.stores import open_store


def test_rocketmqs_decoder_reads_host_and_time_out_of_an_id(tmp_path: Path) -> None:
    before = int(time.time() * 1000)
    with closing(open_store(tmp_path / "store", store_host=("10.1.2.3", 10911))) as store:
        sent = [store.append_message("t", b"x") for _ in range(3)]
        answers = [json.loads(one.answer("SEND_OK")) for one in sent]
    after = int(time.time() * 1000)
    ids = [answer["message_id"] for answer in answers]
    rows = run_java(
        classes(ROCKETMQ_TOOL, "rocketmq"), "RocketTool", "ids", "--ids", ",".join(ids), home=tmp_path
    )
    assert [row["message_id"] for row in rows] == ids
    assert {row["host"] for row in rows} == {"10.1.2.3"}
    assert all(before <= row["time"] <= after for row in rows)
