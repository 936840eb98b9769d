"""What belongs to a lane follows from the store's sharding key, and from nothing that senders call alike."""

from __future__ import annotations

import pyarrow as pa

from delta_tables.deliveries import SHARDING_KEY_PROPERTY
from jobs.group.orderly.lane import SHARDING_KEY, with_carried_key

PROPERTIES = pa.map_(pa.string(), pa.string())


def carried(key: str | None, properties: dict[str, str] | None, *, retried: bool) -> dict[str, str] | None:
    pairs = None if properties is None else list(properties.items())
    batch = pa.record_batch(
        [pa.array([key], pa.string()), pa.array([pairs], PROPERTIES)], names=[SHARDING_KEY, "properties"]
    )
    (found,) = with_carried_key(batch, retried=retried).column("properties").to_pylist()
    return None if found is None else dict(found)


def test_the_key_goes_into_a_property_and_a_retry_keeps_it() -> None:
    first = carried("k", {"a": "1"}, retried=False)
    assert first == {"a": "1", SHARDING_KEY_PROPERTY: "k"}
    assert carried(None, first, retried=True) == first
    assert carried("k", None, retried=False) == {SHARDING_KEY_PROPERTY: "k"}


def test_a_senders_property_of_that_name_is_no_key() -> None:
    assert carried(None, {"a": "1", SHARDING_KEY_PROPERTY: "mine"}, retried=False) == {"a": "1"}
    assert carried("k", {SHARDING_KEY_PROPERTY: "mine"}, retried=False) == {SHARDING_KEY_PROPERTY: "k"}
    assert carried(None, None, retried=False) is None
