"""`lakemq dlq replay` of a group that its ledger does not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from lakemq.cli.app import main
from tests.support.broker_process import BrokerProcess
from tests.support.ledger_rows import append, path_ledger
from tests.unit.jobs.dlq.test_replay import letter


@pytest.mark.parametrize("more", [[], ["--execute"]], ids=["preview", "execute"])
def test_a_group_is_refused_that_neither_ledger_nor_broker_knows(
    shared_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    append(path_ledger(tmp_path), DEAD_LETTERS, [letter(0, "cli-replay")])
    replay = ["dlq", "replay", "--ledger", str(tmp_path), "--endpoint", shared_broker.endpoint, *more]
    assert main([*replay, "--group", "cli-repay"]) == 1
    said = capsys.readouterr()
    assert ("there is no group cli-repay: did you mean cli-replay?" in said.err, said.out) == (True, "")
    with shared_broker.client() as client:
        client.put_group("cli-reply")
    assert main([*replay, "--group", "cli-reply"]) == 0
    assert "0 dead letters of group cli-reply" in capsys.readouterr().out
