"""A broker that a name server refuses: what it believes, and what it says of it.

Contract: whoever has the broker's place keeps it; only a master of a higher epoch is believed to be one; the
reason is one short line.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha_replicator.http_question import HttpAnswer
from tests.support.registered_broker import ONE, Described, Names, Scene, run


def test_a_broker_whose_place_is_anothers_does_not_take_it_out_at_its_stop() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        promoted = replace(
            scene.broker.registration, store_id="another", epoch=9, address="http://promoted:1"
        )
        names.servers[ONE].tables.register(promoted)
        await scene.change()
        assert "BROKER_CONFLICT" in (scene.failure() or "")
        assert scene.registered() == [False]

    epochs: list[int] = []
    run(names, scenario, on_epoch=epochs.append)
    assert names.addresses(ONE) == {0: "http://promoted:1"}
    assert epochs == [9], "the broker hears that it is the master no more"
    assert [asked.method for asked in names.asked] == ["PUT", "PUT"]


@pytest.mark.parametrize(
    ("code", "epoch", "heard"),
    [
        ("BROKER_CONFLICT", 6, [6]),
        ("BROKER_CONFLICT", 5 + (1 << 20), [5 + (1 << 20)]),
        ("BROKER_CONFLICT", 6 + (1 << 20), []),
        ("BROKER_CONFLICT", 5, []),
        ("BROKER_CONFLICT", 4, []),
        ("BROKER_CONFLICT", "6", []),
        ("BROKER_CONFLICT", None, []),
        ("NO_PERMISSION", 6, []),
    ],
)
def test_only_a_higher_epoch_within_reach_is_believed_and_only_from_who_has_another_master(
    code: str, epoch: object, heard: list[int]
) -> None:
    names, broker = Names(ONE), Described()
    broker.now = replace(broker.registration, epoch=5)
    names.answers[ONE] = [HttpAnswer(409, {"code": code, "epoch": epoch})]

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [False]

    epochs: list[int] = []
    run(names, scenario, broker=broker, on_epoch=epochs.append)
    assert epochs == heard


def test_a_refusal_is_said_with_its_reason() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        failure = scene.failure() or ""
        assert failure.startswith("it answered 403 'NO_PERMISSION': \"the registration does not prove")
        assert scene.registered() == [False]

    run(names, scenario, secret=b"a secret of another cluster")


def test_a_refusal_is_said_in_one_short_line_whatever_was_answered() -> None:
    names = Names(ONE)
    names.answers[ONE] = [HttpAnswer(500, {"code": "C" * 100, "detail": "\n" + "ü" * 300})]

    async def scenario(scene: Scene) -> None:
        failure = scene.failure() or ""
        assert failure.startswith("it answered 500 'CCC")
        assert failure.isascii()
        assert "\n" not in failure
        assert len(failure) == len("it answered 500 : ") + 60 + 300

    run(names, scenario)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "it did not answer in time"),
        (TimeoutError(110, "Connection timed out"), "it did not answer in time"),
        (ConnectionError("its certificate is not accepted"), "its certificate is not accepted"),
        (ValueError("it gave no answer of a broker"), "it gave no answer of a broker"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_failure_is_said_in_words(error: Exception, said: str) -> None:
    names = Names(ONE)
    names.answers[ONE] = [error]

    async def scenario(scene: Scene) -> None:
        assert scene.failure() == said
        assert scene.registered() == [False]

    run(names, scenario)
