"""When a broker asks its name servers.

Contract: a heartbeat every 30 s; a change at once, but the next not before 1 s; after a failure again in 1 s,
then less and less often; at most one question to each name server; one that is down or slow costs the others
nothing; a stop waits for no more than the goodbyes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ha_replicator.http_question import HttpAnswer
from ha_replicator.nameserver import Registrar
from tests.support.registered_broker import ADDRESS, ONE, TWO, Described, Names, Scene, run


def reasons(caplog: pytest.LogCaptureFixture, words: str) -> list[tuple[str, str | None]]:
    """Returns the name server and the reason of each line of the log with these words."""
    fields = [record.__dict__["fields"] for record in caplog.records if words in record.getMessage()]
    return [(said["url"], said.get("reason")) for said in fields]


def test_a_heartbeat_goes_out_every_thirty_seconds() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.advance(95)
        assert names.times() == [0, 30, 60, 90]

    run(names, scenario)


def test_heartbeats_come_as_often_as_was_asked() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.advance(2)
        assert names.times() == [0, 0.5, 1, 1.5, 2], "more often than changes may, too"

    run(names, scenario, every_s=0.5)


def test_a_change_goes_out_at_once_and_the_next_heartbeat_is_counted_from_it() -> None:
    names = Names(ONE, TWO)

    async def scenario(scene: Scene) -> None:
        await scene.advance(12.5)
        scene.registrar.changed()
        await scene.advance(40)
        assert [round(asked.at, 6) for asked in names.asked_of(ONE)] == [0, 12.5, 42.5]
        assert [round(asked.at, 6) for asked in names.asked_of(TWO)] == [0, 12.5, 42.5]

    run(names, scenario)


def test_changes_that_follow_each_other_wait_for_a_second_and_go_out_together() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        for _ in range(4):
            await scene.advance(0.125)
            scene.registrar.changed()
        await scene.advance(20)
        assert names.times() == [0, 1]

    run(names, scenario)


def test_what_changes_while_a_question_is_under_way_is_told_after_it() -> None:
    names = Names(ONE)
    names.silent[ONE] = asyncio.Event()

    async def scenario(scene: Scene) -> None:
        scene.broker.now = replace(scene.broker.registration, data_version="2")
        scene.registrar.changed()
        await scene.advance(2.5)
        assert names.times() == [0], "one question at a time"
        names.silent[ONE].set()
        await scene.advance(20)
        assert [asked.content["data_version"] for asked in names.asked] == ["1", "2"]
        assert names.times() == [0, 3.5]

    run(names, scenario)


def test_after_failures_it_asks_less_and_less_often_and_after_a_success_begins_anew() -> None:
    names = Names(ONE)
    names.down.add(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.advance(100)
        assert names.times() == [0, 1, 3, 7, 15, 31, 61, 91]
        names.down.clear()
        await scene.advance(30)
        names.down.add(ONE)
        await scene.advance(40)
        assert names.times()[8:] == [121, 151, 152, 154, 158, 166]

    run(names, scenario)


def test_a_first_pause_may_be_shorter_than_what_is_between_changes() -> None:
    names = Names(ONE)
    names.down.add(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.advance(4)
        assert names.times() == [0, 0.25, 0.75, 1.75, 3.75]

    run(names, scenario, first_pause_s=0.25)


def test_a_change_is_told_at_once_to_who_failed_too() -> None:
    names = Names(ONE)
    names.down.add(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.advance(20)
        scene.registrar.changed()
        await scene.advance(2)
        assert names.times() == [0, 1, 3, 7, 15, 20]

    run(names, scenario)


def test_a_name_server_that_is_down_costs_the_other_nothing_and_receives_all_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names(ONE, TWO)

    async def scenario(scene: Scene) -> None:
        names.down.add(ONE)
        await scene.advance(70)
        assert scene.registered() == [False, True]
        assert scene.failure() == "Connection refused"
        assert [asked.at for asked in names.asked_of(TWO)] == [0, 30, 60]
        names.down.clear()
        await scene.advance(30)
        assert scene.registered() == [True, True]
        assert scene.failure() is None
        assert names.asked_of(ONE)[-1].with_table, "it may have lost all it knew"
        assert names.servers[ONE].tables.route("t") is not None

    run(names, scenario)
    assert reasons(caplog, "not registered") == [(ONE, "Connection refused")], "not one for each try"
    assert reasons(caplog, "takes registrations again") == [(ONE, None)]


def test_a_failure_for_another_reason_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    names = Names(ONE)
    names.answers[ONE] = [TimeoutError(), TimeoutError(), ValueError("no answer of a broker")]

    async def scenario(scene: Scene) -> None:
        await scene.advance(20)
        assert scene.registered() == [True]

    run(names, scenario)
    said = reasons(caplog, "not registered")
    assert said == [(ONE, "it did not answer in time"), (ONE, "no answer of a broker")]


def test_what_goes_well_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.advance(70)

    run(names, scenario)
    assert caplog.text == ""


def test_a_name_server_that_does_not_answer_keeps_no_other_waiting() -> None:
    names = Names(ONE, TWO)
    names.silent[ONE] = asyncio.Event()

    async def scenario(scene: Scene) -> None:
        await scene.advance(31)
        assert scene.registered() == [False, True]
        assert [asked.at for asked in names.asked_of(TWO)] == [0, 30]
        assert [asked.at for asked in names.asked_of(ONE)] == [0]

    run(names, scenario)


@pytest.mark.parametrize(
    "failure", [ConnectionRefusedError(111, "Connection refused"), TimeoutError(), ValueError("no answer")]
)
def test_a_stop_says_goodbye_to_all_though_one_fails(failure: Exception) -> None:
    names = Names(ONE, TWO)

    async def scenario(scene: Scene) -> None:
        names.answers[ONE] = [failure]

    run(names, scenario)
    assert [(asked.endpoint, asked.method) for asked in names.asked[2:]] == [(ONE, "DELETE"), (TWO, "DELETE")]
    assert names.addresses(ONE) == {0: ADDRESS}, "it forgets by itself"
    assert names.addresses(TWO) == {}


def test_a_stop_asks_nothing_of_who_never_had_the_broker() -> None:
    names = Names(ONE, TWO)
    names.answers[ONE] = [HttpAnswer(500, {})]

    async def scenario(scene: Scene) -> None:
        assert scene.registered() == [False, True]

    run(names, scenario)
    assert [(asked.endpoint, asked.method) for asked in names.asked[2:]] == [(TWO, "DELETE")]


def test_after_a_stop_nothing_is_asked_and_a_second_stop_does_nothing() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        await scene.registrar.stop()
        assert scene.registered() == [False]
        await scene.registrar.stop()
        scene.registrar.changed()
        await scene.advance(100)
        assert [asked.method for asked in names.asked] == ["PUT", "DELETE"]

    run(names, scenario)


def test_a_stop_does_not_wait_for_a_registration_that_is_under_way() -> None:
    names = Names(ONE)
    names.silent[ONE] = asyncio.Event()

    async def scenario(scene: Scene) -> None:
        await scene.registrar.stop()
        assert [asked.method for asked in names.asked] == ["PUT"]
        assert scene.tasks() == set(), "it is over, not only told to end"

    run(names, scenario)


def test_pauses_that_a_change_cut_short_leave_nothing_behind() -> None:
    names = Names(ONE)

    async def scenario(scene: Scene) -> None:
        at_first = len(scene.tasks())
        for _ in range(10):
            await scene.change()
        await scene.advance(1)
        assert len(scene.tasks()) <= at_first + 2

    run(names, scenario)


def test_a_stop_before_the_start_does_nothing() -> None:
    names = Names(ONE)
    registrar = Registrar([ONE], Described(), None, question=names.ask)
    asyncio.run(registrar.stop())
    assert names.asked == []
