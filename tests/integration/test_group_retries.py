"""How often a group's messages come again: what the group was made with, unless the job says otherwise."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from delta_tables.ledger import ledger_at
from jobs.consume import retry_policy
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings
from lakemq.client import Client, InvalidRequest, Unavailable
from tests.support.broker_process import BrokerProcess


def settings(group: str, tmp_path: Path, most: int | None = None) -> ConsumeSettings:
    return ConsumeSettings(
        group=group,
        topics=("orders",),
        handler=HandlerTarget("shop:handle"),
        ledger=ledger_at(str(tmp_path)),
        max_reconsume_times=most,
    )


def test_a_group_has_the_retries_it_was_made_with(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    group = f"retries-{uuid4().hex[:12]}"
    with shared_broker.client() as client:
        assert retry_policy(client, settings(group, tmp_path)).max_reconsume_times == 16, "nobody made it yet"
        client.put_group(group, retry_max_times=3)
        assert retry_policy(client, settings(group, tmp_path)).max_reconsume_times == 3
        client.put_group(group, retry_max_times=0)
        assert retry_policy(client, settings(group, tmp_path)).max_reconsume_times == 0


def test_the_option_wins(shared_broker: BrokerProcess, tmp_path: Path) -> None:
    group = f"retries-{uuid4().hex[:12]}"
    with shared_broker.client() as client:
        client.put_group(group, retry_max_times=3)
        assert retry_policy(client, settings(group, tmp_path, 0)).max_reconsume_times == 0
        assert retry_policy(client, settings(group, tmp_path, 7)).max_reconsume_times == 7
        with pytest.raises(InvalidRequest, match="0 or more"):
            retry_policy(client, settings(group, tmp_path, -1))


def test_a_broker_that_does_not_answer_is_not_a_group_without_a_setting(
    shared_broker: BrokerProcess, tmp_path: Path
) -> None:
    with Client("127.0.0.1:1", retries=0) as client, pytest.raises(Unavailable):
        retry_policy(client, settings("anybody", tmp_path))
