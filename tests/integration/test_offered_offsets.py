"""What a master takes of the offsets that a slave kept while it was away.

Contract: an offset moves its group on, within what the queue holds and in the life of the topic in which it
was said, or it counts for nothing; one that counts for nothing keeps no other back.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http


@pytest.fixture
def http(shared_broker: BrokerProcess) -> Http:
    return Http(shared_broker.endpoint)


def topic_with(http: Http, topic: str, messages: int) -> str:
    """Makes a topic with messages in each of two queues; returns its id."""
    made = http.put(f"/topics/{topic}", {"read_queue_nums": 2, "write_queue_nums": 2}).json
    for queue_id in range(2):
        for n in range(messages):
            sent = http.post(f"/topics/{topic}/messages", {"body": str(n), "queue_id": queue_id})
            assert sent.json["status"] == "SEND_OK"
    return str(made["topic_id"])


def offer(http: Http, group: str, *offsets: dict[str, Any]) -> dict[tuple[str, int], int]:
    """Offers offsets; returns those of the group then."""
    answer = http.post(f"/groups/{group}/offsets/offer", {"offsets": [*offsets]})
    assert answer.status == 200, answer.json
    return {(o["topic"], o["queue_id"]): o["offset"] for o in answer.json["offsets"]}


def said(topic: str, topic_id: str, queue_id: int, offset: int, seen: int | None = None) -> dict[str, Any]:
    return {"topic": topic, "topic_id": topic_id, "queue_id": queue_id, "offset": offset, "seen": seen}


def test_an_offset_that_was_said_of_an_earlier_topic_of_the_name_counts_for_nothing(http: Http) -> None:
    before = topic_with(http, "lives", 5)
    http.put("/groups/of-lives", {})
    assert http.call("DELETE", "/topics/lives").status == 204
    now = topic_with(http, "lives", 5)
    taken = offer(http, "of-lives", said("lives", before, 0, 4), said("lives", now, 1, 3))
    assert taken == {("lives", 1): 3}, "the other would skip four messages of this one"


def test_an_offset_behind_the_end_of_its_queue_keeps_no_other_back(http: Http) -> None:
    topic_id = topic_with(http, "cut", 5)
    http.put("/groups/of-cut", {})
    taken = offer(http, "of-cut", said("cut", topic_id, 0, 6), said("cut", topic_id, 1, 5))
    assert taken == {("cut", 1): 5}
    gone = said("never-made", topic_id, 0, 1)
    assert offer(http, "of-cut", gone, said("cut", topic_id, 0, 5)) == {("cut", 0): 5, ("cut", 1): 5}


def test_the_larger_one_wins_unless_the_group_was_moved_back_since(http: Http) -> None:
    topic_id = topic_with(http, "moved", 5)
    http.put("/groups/of-moved", {})
    offsets = [{"topic": "moved", "queue_id": n, "offset": 3} for n in range(2)]
    assert http.put("/groups/of-moved/offsets", {"offsets": offsets}).status == 200
    taken = offer(http, "of-moved", said("moved", topic_id, 0, 2, 1), said("moved", topic_id, 1, 4, 4))
    assert taken == {("moved", 0): 3, ("moved", 1): 3}, "behind; moved back from 4"
    assert offer(http, "of-moved", said("moved", topic_id, 0, 5, 3))["moved", 0] == 5
