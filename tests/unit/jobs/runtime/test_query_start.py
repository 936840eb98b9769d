"""The start of a job that was given one broker's address and then a name server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from jobs.runtime.checkpoint import StreamCheckpoint
from jobs.runtime.group_brokers import GroupBrokers
from jobs.runtime.query_start import StartingOffsets, start_of
from store_native.errors import InvalidRequest
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets

UNNAMED: StartingOffsets = {"t": {"0": 5}}
DECIDED: StartingOffsets = {"t": {"broker-a/0": 7, "broker-b/0": 8}}


class Brokers:
    several = True


def started(checkpoint: StreamCheckpoint, *, several: bool = True) -> StartingOffsets:
    brokers = Brokers()
    brokers.several = several
    return start_of(checkpoint, cast(GroupBrokers, brokers), lambda: DECIDED)


def of_one_broker(directory: Path, *, planned: int = -1, log_version: str = "v1") -> StreamCheckpoint:
    """A checkpoint of a release that knew one broker."""
    checkpoint = StreamCheckpoint(directory)
    checkpoint.start(lambda: {"offsets": UNNAMED})
    end = Offsets(1, {"t": "id"}, {MessageQueue("t", "broker-b", 0): 9}).to_json()
    for batch in range(planned + 1):
        (directory / "offsets").mkdir(exist_ok=True)
        (directory / "offsets" / str(batch)).write_text("\n".join([log_version, "{}", json.dumps(end)]))
    return checkpoint


def test_one_broker_goes_on_as_before_whatever_it_is_called(tmp_path: Path) -> None:
    assert started(of_one_broker(tmp_path / "old"), several=False) == UNNAMED
    checkpoint = StreamCheckpoint(tmp_path / "new")
    checkpoint.start(lambda: {"offsets": {"t": {"broker-a/0": 5}}})
    assert started(checkpoint, several=False) == UNNAMED
    assert started(checkpoint) == {"t": {"broker-a/0": 5}}


def test_a_start_that_nothing_was_read_from_is_decided_anew(tmp_path: Path) -> None:
    assert started(of_one_broker(tmp_path)) == DECIDED
    assert started(StreamCheckpoint(tmp_path), several=False) == DECIDED, "it is remembered"


def test_a_start_is_the_brokers_whose_queues_were_read(tmp_path: Path) -> None:
    assert started(of_one_broker(tmp_path, planned=0)) == {"t": {"broker-b/0": 5}}


def test_whose_start_it_is_is_not_guessed(tmp_path: Path) -> None:
    checkpoint = of_one_broker(tmp_path, planned=0, log_version="v9")
    with pytest.raises(InvalidRequest, match="start the job once with its broker's address"):
        started(checkpoint)
    checkpoint.reach(0, ClusterOffsets({}))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    assert started(checkpoint) == UNNAMED, "it is needed no more"
