"""Positions in the queues of several brokers, and the two forms a checkpoint keeps them in."""

from __future__ import annotations

import json

import pytest

from store_native.errors import LakeMQError
from structured_streaming.cluster_offsets import ClusterOffsets
from structured_streaming.offsets import MessageQueue, Offsets

A0 = MessageQueue("orders", "broker-a", 0)
A1 = MessageQueue("orders", "broker-a", 1)
B0 = MessageQueue("orders", "broker-b", 0)
OF_A = Offsets(1, {"orders": "id-a"}, {A1: 7, A0: 12})
OF_B = Offsets(3, {"orders": "id-b"}, {B0: 5})


def test_several_brokers_have_the_second_form_in_one_order() -> None:
    several = ClusterOffsets({"broker-b": OF_B, "broker-a": OF_A})
    text = json.dumps(several.to_json())
    assert text == (
        '{"v": 2, "brokers": {'
        '"broker-a": {"epoch": 1, "topics": {"orders": {"id": "id-a", "queues": {"0": 12, "1": 7}}}}, '
        '"broker-b": {"epoch": 3, "topics": {"orders": {"id": "id-b", "queues": {"0": 5}}}}}}'
    )
    assert ClusterOffsets.from_json(json.loads(text)) == several
    assert several.queues == {A0: 12, A1: 7, B0: 5}


def test_one_broker_keeps_the_first_form_however_it_was_found() -> None:
    assert ClusterOffsets({"broker-a": OF_A}).to_json() == OF_A.to_json()
    assert ClusterOffsets.from_json(OF_A.to_json()) == ClusterOffsets({"broker-a": OF_A})


def test_an_old_checkpoint_without_a_queue_says_nothing_of_any_broker() -> None:
    assert ClusterOffsets.from_json({"v": 1, "epoch": 1, "topics": {}}) == ClusterOffsets({})


@pytest.mark.parametrize(
    "value", [{"v": 3}, {"v": 2}, {"v": 2, "brokers": {"a": {}}}, {"v": 2, "brokers": {"a": 1}}, 7, None]
)
def test_what_is_no_offset_is_refused(value: object) -> None:
    with pytest.raises(LakeMQError, match="ARGUMENT_ILLEGAL"):
        ClusterOffsets.from_json(value)  # type: ignore[arg-type]
