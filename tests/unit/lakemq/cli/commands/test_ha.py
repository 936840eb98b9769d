"""What `lakemq ha promote` says of the messages that the new master lacks."""

from __future__ import annotations

import pytest

from lakemq.cli.commands.ha import missing

HEARD = "the log of its master went to 900 at least when it was heard last, 9.6 s before"


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        (0, "all of that is here, but nothing that it took later"),
        (200, "200 bytes of that are missing, and all that it took later"),
    ],
)
def test_what_the_old_master_took_after_it_was_heard_is_said_to_be_missing(lacks: int, said: str) -> None:
    promoted = {"begins_at": 900 - lacks, "master_end": 900, "lacks_bytes": lacks, "silent_s": 9.6}
    assert missing(promoted) == f"its log ends at {900 - lacks}; {HEARD}: {said}"


def test_a_slave_that_heard_of_no_master_cannot_say_what_is_missing() -> None:
    promoted = {"begins_at": 900, "master_end": None, "lacks_bytes": 0, "silent_s": None}
    said = "it has heard of no master since its start, and cannot say what is missing"
    assert missing(promoted) == f"its log ends at 900; {said}"
