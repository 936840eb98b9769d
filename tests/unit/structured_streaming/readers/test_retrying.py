"""The source's retries: a broker that comes back is asked again, one that refuses is not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lakemq.client import Client, Lease
from store_native.errors import InvalidRequest, LakeMQError, Unavailable
from structured_streaming.readers.base import StoreReader
from structured_streaming.readers.retrying import RetryingReader
from structured_streaming.source.query_lease import hold, query_lease

AWAY = Unavailable("SERVICE_NOT_AVAILABLE", "no connection")


class Restarting:
    """A store that fails a few times before each answer."""

    broker_name, store_id, ahead = "broker-a", "s", True

    def __init__(self, *errors: LakeMQError) -> None:
        self._errors = errors
        self._left = list(errors)

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any) -> str:
            if self._left:
                raise self._left.pop(0)
            self._left = list(self._errors)
            return name

        return call


def test_every_question_is_asked_again_until_the_broker_is_back() -> None:
    reader = RetryingReader(cast(StoreReader, Restarting(AWAY)), retry_timeout_s=60)
    assert (reader.broker_name, reader.store_id, reader.ahead) == ("broker-a", "s", True)
    answers = [
        reader.epoch(),
        reader.topics(),
        reader.topic_id("t"),
        reader.bounds("t"),
        reader.offset_by_time("t", 0, 1),
        reader.read("t", 0, 0, 1, ["body"], "*"),
    ]
    assert answers == ["epoch", "topics", "topic_id", "bounds", "offset_by_time", "read"]


def test_a_refusal_is_final_and_retries_end() -> None:
    with pytest.raises(InvalidRequest):
        RetryingReader(cast(StoreReader, Restarting(InvalidRequest("TOPIC_ILLEGAL", ""))), 60).bounds("t")
    with pytest.raises(Unavailable):
        RetryingReader(cast(StoreReader, Restarting(*[AWAY] * 1000)), 0.01).bounds("t")


def test_a_query_whose_lease_went_through_other_hands_has_lost_it() -> None:
    class Broker:
        epoch = 1

        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            return Lease(self.epoch, 0)

        def release_lease(self, group: str, owner: str) -> None: ...

    broker = Broker()
    lease = query_lease(cast(Client, broker), "g", ttl_ms=3_600_000)
    assert (hold(lease), lease.renew()) == (1, 1)
    broker.epoch = 3
    with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
        lease.renew()
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="LEASE_CONFLICT"):
            hold(lease)
    lease.release()


def test_another_querys_lease_is_waited_out_and_a_renewal_is_the_end_of_waiting() -> None:
    class Broker:
        def __init__(self, renewed_by_ms: int) -> None:
            self.asked, self._by = 0, renewed_by_ms

        def acquire_lease(self, group: str, owner: str, ttl_ms: int) -> Lease:
            self.asked += 1
            if self.asked > 2:
                return Lease(2, 0)
            until = self.asked * self._by
            raise InvalidRequest("LEASE_CONFLICT", "held", owner="spark/a/1/b", expires_at=until)

        def release_lease(self, group: str, owner: str) -> None: ...

    dying = query_lease(cast(Client, Broker(renewed_by_ms=1)), "g", ttl_ms=3_600_000)
    assert hold(dying) == 2
    dying.release()
    alive = query_lease(cast(Client, Broker(renewed_by_ms=5_000)), "g", ttl_ms=3_600_000)
    with pytest.raises(InvalidRequest, match="consumed by spark/a/1/b; one query per group") as refused:
        hold(alive)
    assert refused.value.context["owner"] == "spark/a/1/b"
