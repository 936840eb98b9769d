"""How a member of a cluster is said to be."""

from __future__ import annotations

from typing import Any

import pytest

from lakemq.cli.cluster_members import ClusterMember, state_of

MASTER = {"role": "sync-master", "ha_port": 10912, "slaves": [{}], "in_reach": True}
SLAVE = {"role": "slave", "following": True, "failure": None}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (MASTER, "1 slave follows"),
        ({**MASTER, "slaves": [{}, {}]}, "2 slaves follow"),
        ({**MASTER, "in_reach": False}, "1 slave follows, NOT ENOUGH IN REACH"),
        ({**MASTER, "ha_port": None}, "takes no slaves"),
        ({**MASTER, "read_only": "fsync failed"}, "TAKES NO MORE MESSAGES: fsync failed"),
        (SLAVE, "follows"),
        ({**SLAVE, "read_only": "fsync failed"}, "TAKES NO MORE MESSAGES: fsync failed"),
        ({**SLAVE, "following": False}, "does not follow: not tried yet"),
        ({**SLAVE, "following": False, "failure": "refused"}, "does not follow: refused"),
        ({**SLAVE, "log_parted": "at 17"}, "NOT READ IN ITS MASTER'S PLACE: at 17"),
    ],
)
def test_a_member_is_said_as_it_says_it_is(status: dict[str, Any], said: str) -> None:
    assert state_of(ClusterMember("broker-a", "http://127.0.0.1:1", status)) == said


def test_a_member_that_does_not_answer_is_said_with_its_reason() -> None:
    assert state_of(ClusterMember("broker-a", None, failure="no master is known")) == "no master is known"
