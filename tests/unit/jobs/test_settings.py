"""Settings of a group's job: names that become paths, topics, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delta_tables.ledger import ledger_at
from jobs.frames.frame_handler import FrameHandler
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import InvalidRequest


@pytest.mark.parametrize("group", ["", "a/b", "..", "a b", "x" * 121])
def test_a_group_name_that_could_become_another_path_is_refused(group: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        ConsumeSettings(group, ("t",), HandlerTarget("m:f"), ledger_at(str(tmp_path)))


def test_a_group_reads_its_retry_topic_too_but_not_in_broadcast_mode(tmp_path: Path) -> None:
    ledger = ledger_at(str(tmp_path))
    concurrent = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger)
    broadcast = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger, mode="broadcast")
    assert (concurrent.subscription, broadcast.subscription) == (("t", "%RETRY%g"), ("t",))
    assert concurrent.checkpoint_of("group") == tmp_path / "_checkpoints" / "g" / "group"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"handler": FrameHandler("f", lambda frame: frame)}, "orderly mode takes a handler of messages"),
        ({"send_to": ("u",)}, "verdicts send nothing in orderly mode yet"),
        ({"max_parked": 0}, "--max-parked is 1 or more"),
    ],
)
def test_the_orderly_mode_takes_messages_one_by_one(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at(str(tmp_path))}
    assert ConsumeSettings("g", ("t",), **given, mode="orderly").subscription == ("t", "%RETRY%g")
    with pytest.raises(InvalidRequest, match=said):
        ConsumeSettings("g", ("t",), **(given | changes), mode="orderly")


def test_a_ledger_in_a_catalog_needs_a_checkpoint() -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger_at("main.lmq"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"send_to": ("a b",)}, "TOPIC_ILLEGAL"),
        ({"send_to": ("%RETRY%g",)}, "--send-to: %RETRY%g is no topic of yours"),
        ({"send_to": ("RMQ_SYS_x",)}, "--send-to: RMQ_SYS_x is no topic of yours"),
        ({"send_to": ("u",), "mode": "broadcast"}, "verdicts send nothing in broadcast mode"),
        (
            {"send_to": ("u",), "handler": FrameHandler("f", lambda frame: frame)},
            "verdicts of DataFrames send nothing yet",
        ),
    ],
)
def test_verdicts_send_to_topics_of_the_users_where_there_is_an_outbox(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at(str(tmp_path))}
    assert ConsumeSettings("g", ("t",), **given, send_to=("u", "v")).send_to == ("u", "v")
    with pytest.raises(InvalidRequest, match=said):
        ConsumeSettings("g", ("t",), **(given | changes))
