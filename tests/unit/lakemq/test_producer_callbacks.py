"""Callbacks of futures that use the producer, close it or raise."""

from __future__ import annotations

from asyncio import CancelledError
from concurrent.futures import Future

import pytest

from lakemq import Message
from lakemq.client import Closed, InvalidRequest, OutcomeUnknown, Unavailable
from tests.support.producers import FOR_EVER_MS, bodies, in_callback, producer_of
from tests.support.scripted_network import ScriptedNetwork
from tests.support.turns import Turns


def test_a_callback_that_closes_the_producer_does_not_lose_what_waits(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, batch_bytes=1)
    producer._owns_client = True  # noqa: SLF001 - as one it made itself, which would have a real network
    first = producer.send_later("first")
    request = network.arrived()
    first.add_done_callback(lambda _: producer.close())
    second = producer.send_later("second")
    network.decide_all("answered", request)
    assert turns.result(second).queue_offset == 1
    assert network.closed, "by the sender, since nobody else waits for its end"
    producer.close()


@pytest.mark.parametrize("ends", [SystemExit(3), KeyboardInterrupt(), CancelledError(), GeneratorExit()])
def test_a_callback_that_ends_its_program_does_not_end_the_sender(
    turns: Turns, caplog: pytest.LogCaptureFixture, ends: BaseException
) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, batch_bytes=1)
    first = producer.send_later("first")
    request = network.arrived()

    def end(_: object) -> None:
        raise ends

    first.add_done_callback(end)
    second = producer.send_later("second")
    network.decide_all("answered", request)
    assert turns.result(second).queue_offset == 1
    assert f"{ends!r}: the producer goes on" in caplog.text
    producer.close()


def test_a_callback_that_closes_in_a_close_that_gave_up_waits_for_nobody(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, retry_until=60.0)
    in_flight = producer.send_later("in flight")
    request = network.arrived()
    unsent = producer.send_later("unsent")
    closed = [in_callback(future, producer.close) for future in (in_flight, unsent)]
    producer.close(0)
    assert closed == [[None], [None]]
    assert isinstance(unsent.exception(0), Closed)
    network.decide_all("answered", request)
    turns.settle()


def test_a_callback_that_flushes_is_refused_and_nothing_waits_for_it(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0, batch_bytes=1)
    first = producer.send_later("first")
    request = network.arrived()
    refused = [in_callback(first, flush) for flush in (producer.flush, lambda: producer.flush(5.0))]
    second = producer.send_later("second")
    network.decide_all("answered", request)
    assert turns.result(second).queue_offset == 1
    for error in refused:
        assert isinstance(error[0], InvalidRequest)
        assert error[0].code == "ARGUMENT_ILLEGAL"
        assert "in a future's callback" in error[0].detail
    producer.close()


def test_a_callback_that_flushes_in_a_close_that_gave_up_is_refused_too(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=FOR_EVER_MS)
    refused = in_callback(producer.send_later("x"), producer.flush)
    closing = turns.submit(producer.close, 0)
    turns.result(closing)
    assert isinstance(refused[0], InvalidRequest)


def test_a_callback_waits_for_no_room_and_may_put_what_fits(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    line = len(Message("x").to_line())
    options = {"linger_ms": 0, "batch_bytes": 1, "max_pending_bytes": line}
    producer = producer_of(turns, network.client(), **options)
    first = producer.send_later("1")
    request = network.arrived()
    refused = in_callback(first, lambda: producer.send_later("no"))
    second = producer.send_later("2")
    put = in_callback(second, lambda: producer.send_later("3"))
    network.decide_all("answered", request)
    turns.result(second)
    assert isinstance(refused[0], Unavailable)
    assert refused[0].code == "SYSTEM_BUSY"
    assert refused[0].context["sent"] is False
    assert f"{line} bytes wait to be sent" in refused[0].detail
    assert isinstance(put[0], Future)
    assert turns.result(put[0]).queue_offset == 2
    producer.close()
    assert bodies(network.stored["t"]) == ["1", "2", "3"]


def test_an_answer_that_comes_after_a_close_that_gave_up_disturbs_nobody(turns: Turns) -> None:
    network = ScriptedNetwork(turns)
    producer = producer_of(turns, network.client(), linger_ms=0)
    future = producer.send_later("x")
    request = network.arrived()
    producer.close(0)
    error = future.exception(0)
    assert isinstance(error, OutcomeUnknown)
    assert error.idempotency_key == request.key
    network.decide_all("answered", request)
    producer.flush()
    assert network.stored == {"t": request.lines}
    producer.close()
