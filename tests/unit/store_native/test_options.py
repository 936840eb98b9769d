"""A store's options, as Python gives them.

Contract: the store states its options and their defaults once; one of another name, type or range is refused
by name, and no directory is touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest_api.broker.settings import BrokerSettings
from store_native import Store, default_options
from store_native.errors import InvalidRequest, Unavailable


def test_the_brokers_defaults_are_the_stores() -> None:
    settings, options = BrokerSettings(), default_options()
    assert (settings.broker_name, settings.cluster) == (options["broker_name"], options["cluster"])
    assert settings.store.retention_hours == options["retention_hours"] == 72
    assert settings.limits.max_message_bytes == options["max_message_bytes"] == 4 << 20


@pytest.mark.parametrize(
    ("option", "error", "says"),
    [
        ({"retention": 1}, TypeError, "retention: the store has no such option"),
        ({"retention_hours": "72"}, TypeError, "retention_hours: "),
        ({"retention_hours": -1}, InvalidRequest, "retention_hours is out of range"),
        ({"flush": "never"}, InvalidRequest, 'flush is "never", it is "sync" or "async"'),
        ({"role": "leader"}, InvalidRequest, 'role is "leader", it is "master" or "slave"'),
        ({"delay_levels": "1x"}, InvalidRequest, r"delay level \[1x\]"),
        ({"default_queue_nums": 2000}, InvalidRequest, "default_queue_nums is 2000"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(
    tmp_path: Path, option: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Store(tmp_path / "store", **option)
    assert not (tmp_path / "store").exists()


def test_a_store_opened_with_its_own_defaults_is_one_opened_with_none(tmp_path: Path) -> None:
    small: Any = {**default_options(), "commitlog_file_size": 1 << 16, "index_slots": 10, "index_entries": 20}
    store = Store(tmp_path, **small)
    try:
        assert store.append_message("t", b"x").count == 1
    finally:
        store.close()


def test_a_slave_takes_no_message(tmp_path: Path) -> None:
    store = Store(tmp_path, role="slave", commitlog_file_size=1 << 16, index_slots=10, index_entries=20)
    try:
        with pytest.raises(Unavailable, match="SERVICE_NOT_AVAILABLE: this broker is a slave"):
            store.append_message("t", b"x")
    finally:
        store.close()
