"""A group that a ledger does not know is refused, with the name that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_tables.dead_letters import DEAD_LETTERS
from delta_tables.deliveries import DELIVERIES
from delta_tables.known_groups import check_group
from delta_tables.ledger.path_ledger import PathLedger
from store_native.errors import InvalidRequest
from tests.support.ledger_rows import append, dead_letter, delivery, path_ledger, report


@pytest.fixture
def ledger(tmp_path: Path) -> PathLedger:
    made = path_ledger(tmp_path)
    append(made, DELIVERIES, [delivery(0, consumer_group="billing"), delivery(0, consumer_group="shipping")])
    return made


def refused(ledger: PathLedger, group: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check_group(ledger, group)
    assert caught.value.code == "ARGUMENT_ILLEGAL"
    return caught.value.detail


def test_a_group_that_the_ledger_does_not_know_is_refused_with_the_nearest(ledger: PathLedger) -> None:
    has = f"the ledger {ledger} has billing, shipping"
    assert refused(ledger, "biling") == f"there is no group biling: did you mean billing? {has}"
    assert refused(ledger, "audit") == f"there is no group audit: {has}"


def test_a_ledger_of_no_group_says_so_and_one_of_many_names_some(tmp_path: Path) -> None:
    ledger = path_ledger(tmp_path)
    assert refused(ledger, "g") == f"there is no group g: the ledger {ledger} has no group yet"
    append(ledger, DELIVERIES, [delivery(at, consumer_group=f"g{at:02}") for at in range(12)])
    first = ", ".join(f"g{at:02}" for at in range(10))
    assert refused(ledger, "other").endswith(f" has {first} and 2 more")


def test_each_table_that_a_group_writes_makes_it_known(ledger: PathLedger) -> None:
    append(ledger, DEAD_LETTERS, [dead_letter(0, 3, consumer_group="kept")])
    report(ledger, 0, 3, max_offset=3)
    for group in ("billing", "kept", "g"):
        check_group(ledger, group)


def test_a_group_that_was_started_and_has_handled_nothing_is_known(ledger: PathLedger) -> None:
    (ledger.checkpoints_of("%new|one") / "group").mkdir(parents=True)
    assert ledger.checkpoints_of("%new|one").name == "=25new=7Cone"
    check_group(ledger, "%new|one")
