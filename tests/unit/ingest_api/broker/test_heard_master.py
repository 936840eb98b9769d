"""What a slave is not promoted for: what it is known to lack would be lost."""

from __future__ import annotations

import pytest

from ingest_api.broker.heard_master import HeardMaster
from store_native.errors import InvalidRequest


def test_a_slave_that_lacks_bytes_of_what_its_master_had_is_refused() -> None:
    heard = HeardMaster()
    heard.note(500, 1.0)
    heard.refuse_loss(0, 500, 65, 65)
    with pytest.raises(InvalidRequest, match=r"lacks 100 bytes at least.*--force"):
        heard.refuse_loss(0, 400, 65, 65)


def test_an_empty_slave_that_heard_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"empty.*--force"):
        HeardMaster().refuse_loss(0, 0, 1, 1)


def test_a_slave_whose_log_has_nothing_of_the_epoch_it_heard_of_is_refused() -> None:
    """An old master whose log could not be cut follows nobody, and knows of the epoch that it is not of."""
    with pytest.raises(InvalidRequest, match=r"of epoch 1, and has nothing of epoch 65.*--force"):
        HeardMaster().refuse_loss(0, 97_398, 65, 1)
    HeardMaster().refuse_loss(0, 97_398, 65, 65)


def test_a_slave_that_has_all_that_its_master_said_may_not_have_begun_its_epoch() -> None:
    heard = HeardMaster()
    heard.note(500, 1.0)
    heard.refuse_loss(0, 500, 65, 1)


def test_what_the_master_said_last_counts_also_where_its_log_is_shorter() -> None:
    """A master of a new epoch, whose log begins where its predecessor's was cut."""
    heard = HeardMaster()
    heard.note(500, 1.0)
    heard.note(300, 2.0)
    heard.refuse_loss(0, 300, 65, 65)
    assert heard.promotion(66, 300, 2.5).lacks_bytes == 0
