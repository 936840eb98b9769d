"""A wake-up is no message; a retry is one, whatever properties its sender gave it."""

from __future__ import annotations

import pyarrow as pa

from jobs.redelivery.original_position import ORIGIN
from jobs.redelivery.wake_up import without_wake_ups


def test_only_a_wake_up_is_left_out() -> None:
    properties: list[dict[str, str]] = [
        {"LMQ_WAKE_UP": "1"},
        {"LMQ_WAKE_UP": "1", ORIGIN: "broker-a/0/5/1"},
        {"a": "1"},
    ]
    rows = pa.record_batch(
        [
            pa.array([list(of.items()) for of in properties], pa.map_(pa.string(), pa.string())),
            pa.array([0, 1, 2]),
        ],
        names=["properties", "number"],
    )
    assert without_wake_ups(rows).column("number").to_pylist() == [1, 2]
