"""A checkpoint is one group's: another that went on from it would pass over messages, as would the first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delta_tables.ledger import ledger_at
from jobs.consume import consume
from jobs.handler.loader import HandlerTarget
from jobs.runtime.checkpoint_owner import FILE, note, refuse_anothers
from jobs.settings import ConsumeSettings
from store_native.errors import DataCorrupt, InvalidRequest


def group(name: str, home: Path) -> ConsumeSettings:
    return ConsumeSettings(
        group=name,
        topics=("orders",),
        handler=HandlerTarget("builtins:print"),
        ledger=ledger_at(str(home / "ledger")),
        checkpoint=home / "checkpoint",
    )


def plan_a_batch(settings: ConsumeSettings, *topics: str) -> None:
    """What Spark leaves of a stream that has begun."""
    offsets = settings.checkpoint_of("group") / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    held = {topic: {"id": "x", "brokers": {"broker-a": {"0": 5}}} for topic in topics}
    position = {"v": 1, "epoch": 1, "epoch_of": "log", "topics": held}
    (offsets / "0").write_text("\n".join(["v1", "{}", json.dumps(position)]))


def test_a_checkpoint_in_which_a_group_has_begun_is_no_other_groups(tmp_path: Path) -> None:
    first, second = group("ga", tmp_path), group("gb", tmp_path)
    refuse_anothers(first)
    note(first)
    refuse_anothers(second)  # the first one had no batch: a name that was mistyped, say
    plan_a_batch(first, "orders", "%RETRY%ga")
    refuse_anothers(first)
    with pytest.raises(InvalidRequest, match=r"--checkpoint: .*checkpoint is group ga's, and gb would go on"):
        refuse_anothers(second)
    with pytest.raises(InvalidRequest, match="is group ga's"):
        consume(second, lambda: pytest.fail("Spark was started"))


def test_one_of_a_release_that_noted_no_group_is_known_by_its_retry_topic(tmp_path: Path) -> None:
    first, second = group("ga", tmp_path), group("gb", tmp_path)
    plan_a_batch(first, "orders", "%RETRY%ga")
    refuse_anothers(first)
    with pytest.raises(InvalidRequest, match="is group ga's"):
        refuse_anothers(second)
    note(first)
    note(first)
    assert json.loads((tmp_path / "checkpoint" / FILE).read_text()) == {"group": "ga"}
    (tmp_path / "checkpoint" / FILE).write_text("[]")
    with pytest.raises(DataCorrupt, match="does not say whose the checkpoint is"):
        refuse_anothers(first)


def test_a_broadcast_groups_is_its_own_too(tmp_path: Path) -> None:
    first = group("ga", tmp_path)
    note(first)
    plan_a_batch(first, "orders")
    with pytest.raises(InvalidRequest, match="is group ga's"):
        refuse_anothers(group("gb", tmp_path))
