"""RocketMQ's own broker, started on a store that LakeMQ wrote, serves every message to RocketMQ's own client.

Contract (store format): the directory is byte-compatible. RocketMQ gets a copy, delivers the delayed messages
that were still waiting, finds by key, sees the same offsets, and LakeMQ opens the store again afterwards.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.known_messages import (
    DELIVERED,
    GROUP,
    MESSAGES,
    OFFSETS,
    PENDING,
    TOPICS,
    Content,
    Place,
    bounds,
    content,
    from_tool,
    read,
    wait_delivered,
    write,
)
from tests.support.peer_brokers import RocketMQ
from tests.support.stores import COMMITLOG_FILE_SIZE, copy_store, open_store, rocketmq_sizes

Written = tuple[Path, dict[Place, Content], dict[tuple[str, int], tuple[int, int]]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A cleanly closed store, what LakeMQ read in it, and its queue bounds."""
    path = tmp_path_factory.mktemp("lakemq") / "store"
    with closing(write(path)) as store:
        wait_delivered(store)
        return path, read(store), bounds(store)


def _rocketmq(directory: Path, store: Path) -> RocketMQ:
    return RocketMQ(
        directory, store=store, commitlog_file_size=COMMITLOG_FILE_SIZE, settings=rocketmq_sizes()
    )


def _served(rocketmq: RocketMQ, count: int) -> dict[Place, Content]:
    """Pulls everything once the delayed messages are there too."""
    return from_tool(rocketmq.tool("dump", topics=",".join(TOPICS), at_least=count))


def test_rocketmq_serves_every_message_of_a_cleanly_closed_store(written: Written, tmp_path: Path) -> None:
    source, expected, queue_bounds = written
    assert {message.number for message in expected.values()} == set(range(MESSAGES)) - PENDING
    assert all(message == content(message.number) for message in expected.values())
    used = [path for path in (source / "commitlog").iterdir() if path.read_bytes()[:8] != bytes(8)]
    assert len(used) > 1, "the log must have rolled"
    store = copy_store(source, tmp_path / "store")
    with _rocketmq(tmp_path / "rocketmq", store) as rocketmq:
        served = _served(rocketmq, MESSAGES)
        assert {place: served.get(place) for place in expected} == expected
        delivered_by_rocketmq = {place: served[place] for place in served.keys() - expected.keys()}
        assert sorted(message.number for message in delivered_by_rocketmq.values()) == sorted(PENDING)
        assert all(message == content(message.number) for message in delivered_by_rocketmq.values())

        for row in rocketmq.tool("offsets", topics=",".join(TOPICS)):
            queue = row["topic"], row["queue_id"]
            low, high = queue_bounds.get(queue, (0, 0))
            extra = sum(1 for place in delivered_by_rocketmq if place[:2] == queue)
            assert (row["min_offset"], row["max_offset"]) == (low, high + extra), queue

        by_key = rocketmq.tool("query", topic=TOPICS[0], keys=f"key-0,key-3,key-{min(DELIVERED) + 2000}")
        assert sorted(int(row["properties"]["number"]) for row in by_key) == [0, 3, min(DELIVERED) + 2000]
        shared = rocketmq.tool("query", topic=TOPICS[1], keys="shared-1")
        assert len(shared) == sum(
            1
            for place, message in served.items()
            if place[0] == TOPICS[1] and "shared-1" in message.keys.split()
        )
        rocketmq.tool("produce", topics=TOPICS[0], count=50, first=MESSAGES)
    with closing(open_store(store)) as again:
        after = read(again)
        assert {place: after.get(place) for place in served} == served
        assert len(after) == len(served) + 50
        assert sorted(again.group_offsets(GROUP)) == OFFSETS
        end = again.append_message(TOPICS[2], b"after rocketmq").end_offset
        assert again.wait_flushed(end, 5000)


@pytest.mark.nightly
def test_rocketmq_serves_every_message_of_a_store_whose_writer_was_killed(tmp_path: Path) -> None:
    source = tmp_path / "store"
    command = [sys.executable, "-m", "tests.support.known_messages", str(source)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (source / "abort").exists()
    with _rocketmq(tmp_path / "rocketmq", copy_store(source, tmp_path / "copy")) as rocketmq:
        served = _served(rocketmq, MESSAGES)
        rocketmq.kill_broker()  # a graceful stop takes RocketMQ ten seconds
    assert {message.number for message in served.values()} == set(range(MESSAGES))
    assert all(message == content(message.number) for message in served.values())
    with closing(open_store(source)) as store:
        ours = read(store)
    undelayed = {
        place: message for place, message in served.items() if message.number not in DELIVERED | PENDING
    }
    assert {place: ours.get(place) for place in undelayed} == undelayed
