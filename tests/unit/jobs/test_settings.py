"""Settings of a group's job: names that become paths, topics, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delta_tables.ledger import ledger_at
from delta_tables.user_tables.path_table import PathTable
from jobs.frames.frame_handler import FrameHandler
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from store_native.errors import InvalidRequest
from structured_streaming.subscription import Subscription

U = PathTable("u", "/u")


@pytest.mark.parametrize("group", ["", "a/b", "..", "a b", "x" * 121])
def test_a_group_name_that_could_become_another_path_is_refused(group: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        ConsumeSettings(group, ("t",), HandlerTarget("m:f"), ledger_at(str(tmp_path)))


def test_a_group_reads_its_retry_topic_too_but_not_in_broadcast_mode(tmp_path: Path) -> None:
    ledger = ledger_at(str(tmp_path))
    concurrent = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger)
    broadcast = ConsumeSettings("g", ("t",), HandlerTarget("m:f"), ledger, mode="broadcast")
    assert concurrent.subscription == Subscription(frozenset({"t", "%RETRY%g"}))
    assert broadcast.subscription == Subscription(frozenset({"t"}))
    assert concurrent.checkpoint_of("group") == tmp_path / "_checkpoints" / "g" / "group"


def patterned(pattern: str, **changes: Any) -> ConsumeSettings:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at("a-ledger")}
    return ConsumeSettings("g|x", (), topic_pattern=pattern, **(given | changes))


def test_a_pattern_takes_whole_names_of_users_topics_and_the_groups_own_retry_topic() -> None:
    existing = ["eu-a", "eu-b", "neu-a", "eu-a2x", "us", "%RETRY%g|x", "%RETRY%g", "%RETRY%x"]
    existing += ["%DLQ%g|x", "RMQ_SYS_TRACE_TOPIC", "TBW102"]
    found = patterned("eu-.|us").subscription.matching(existing)
    assert found == ["%RETRY%g|x", "eu-a", "eu-b", "us"]
    assert patterned(".*").subscription.matching(existing)[1:] == ["eu-a", "eu-a2x", "eu-b", "neu-a", "us"]
    assert patterned("%.*").subscription.matching(existing) == ["%RETRY%g|x"]
    assert patterned("eu-.|us", mode="broadcast").subscription.matching(existing) == ["eu-a", "eu-b", "us"]
    assert patterned("").subscription.matching(existing) == ["%RETRY%g|x"]


@pytest.mark.parametrize("pattern", ["orders(", "*", "(?i)orders", "a)|(b"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="--topic-pattern is no regular expression"):
        patterned(pattern)


def test_topics_are_named_or_matched(tmp_path: Path) -> None:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at(str(tmp_path))}
    with pytest.raises(InvalidRequest, match="by name and by a pattern: give one"):
        ConsumeSettings("g", ("t",), topic_pattern="t.*", **given)
    with pytest.raises(InvalidRequest, match="at least one topic"):
        ConsumeSettings("g", (), **given)
    named = ConsumeSettings("g", ("t", "u"), **given)
    assert (named.topics_in_words, patterned("t.*").topics_in_words) == ("t, u", "topics that match t.*")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"handler": FrameHandler("f", lambda frame: frame)}, "orderly mode takes a handler of messages"),
        ({"send_to": ("u",)}, "verdicts send nothing in orderly mode yet"),
        ({"write_to": (U,)}, "verdicts write nothing in orderly mode yet"),
        ({"max_parked": 0}, "--max-parked is 1 or more"),
    ],
)
def test_the_orderly_mode_takes_messages_one_by_one(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at(str(tmp_path))}
    orderly = ConsumeSettings("g", ("t",), **given, mode="orderly")
    assert orderly.subscription.topics == {"t", "%RETRY%g"}
    with pytest.raises(InvalidRequest, match=said):
        ConsumeSettings("g", ("t",), **(given | changes), mode="orderly")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"handler": FrameHandler("f", lambda frame: frame)}, "--mode broadcast has no retries"),
        ({"max_reconsume_times": 0}, "--max-reconsume-times: --mode broadcast has no retries"),
        ({"retry_delays": "1s"}, "--retry-delays: --mode broadcast has no retries"),
        ({"retry_backoff": "1s..5s"}, "--retry-backoff: --mode broadcast has no retries"),
    ],
)
def test_the_broadcast_mode_has_no_retries(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at(str(tmp_path))}
    assert ConsumeSettings("g", ("t",), **given, mode="broadcast").subscription.topics == {"t"}
    with pytest.raises(InvalidRequest, match=said):
        ConsumeSettings("g", ("t",), **(given | changes), mode="broadcast")


@pytest.mark.parametrize("name", ["%RETRY%g", "%DLQ%g"])
def test_a_topic_of_a_group_is_no_group(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"--group: {name} is a topic that a group has"):
        ConsumeSettings(name, ("t",), HandlerTarget("m:f"), ledger_at(str(tmp_path)))


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
        ({"write_to": (U,), "mode": "broadcast"}, "verdicts write nothing in broadcast mode"),
        (
            {"write_to": (U,), "handler": FrameHandler("f", lambda frame: frame)},
            "DataFrames write nothing yet",
        ),
        ({"write_to": (U, PathTable("u", "/v"))}, "--write-to: several tables are called u"),
        ({"write_to": tuple(PathTable(f"u{n}", "/u") for n in range(9))}, "--write-to: 8 tables at most"),
    ],
)
def test_verdicts_send_to_topics_of_the_users_where_there_is_an_outbox(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    given: dict[str, Any] = {"handler": HandlerTarget("m:f"), "ledger": ledger_at(str(tmp_path))}
    assert ConsumeSettings("g", ("t",), **given, send_to=("u", "v")).send_to == ("u", "v")
    with pytest.raises(InvalidRequest, match=said):
        ConsumeSettings("g", ("t",), **(given | changes))
