"""Where a group goes on: by its ledger, by the broker's offsets, or where its option says."""

from __future__ import annotations

from jobs.group.start import choose
from lakemq.client.results import QueueBounds


def test_the_ledger_decides_where_a_group_goes_on() -> None:
    held = QueueBounds(0, 10, 100, 90)
    assert choose(held, 50, 70, "earliest") == 50
    assert choose(held, 3, None, "earliest") == 3, "what expired is for the source to report"
    assert choose(held, None, 70, "earliest") == 70
    assert choose(held, None, 700, "earliest") == 90
    assert (choose(held, None, None, "earliest"), choose(held, None, None, "latest")) == (10, 90)


def test_a_retry_topic_made_again_is_read_from_its_beginning() -> None:
    held = QueueBounds(0, 10, 100, 90)
    assert choose(held, 500, None, "earliest", retry=True) == 10
    assert choose(held, 100, None, "earliest", retry=True) == 100, "all of it was handled"
    assert choose(held, 50, 70, "earliest", retry=True) == 50
    assert choose(held, 500, None, "earliest") == 500, "of any other topic the source reports it"
