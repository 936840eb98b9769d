"""What a client remembers of sends that got no answer."""

from __future__ import annotations

from lakemq.client.open_sends import MOST_OPEN, OpenSends
from store_native.order_conf import OrderConf

CONF = OrderConf.of(1, {"a": 2, "b": 2})


def test_who_gave_no_answer_may_have_it_until_he_refuses_it_or_it_is_known() -> None:
    sends = OpenSends()
    sends.unanswered("t", "k", "b", None)
    sends.unanswered("t", "k", "a", CONF)
    assert sends.get("t", "k").broker_names == ("a", "b"), "the last one first"
    assert sends.get("t", "k").order_conf == CONF
    sends.refused("t", "k", "a")
    assert sends.get("t", "k").broker_names == ("b",), "the other one may still have it"
    assert sends.get("t", "k").order_conf == CONF
    sends.refused("t", "k", "c")
    assert sends.get("t", "k").broker_names == ("b",)
    sends.refused("t", "k", "b")
    assert sends.get("t", "k").broker_names == ()
    sends.unanswered("t", "k", "a", None)
    sends.ended("t", "k")
    assert sends.get("t", "k").broker_names == ()


def test_sends_are_told_apart_by_topic_and_key_and_without_a_key_nothing_is_kept() -> None:
    sends = OpenSends()
    sends.unanswered("t", "k", "a", None)
    sends.unanswered("t", None, "b", None)
    for topic, key in (("u", "k"), ("t", "l"), ("t", None)):
        assert sends.get(topic, key).broker_names == ()
    assert sends.get("t", "k").broker_names == ("a",)


def test_the_one_that_was_heard_of_least_recently_is_forgotten_first() -> None:
    sends = OpenSends()
    for number in range(MOST_OPEN + 1):
        sends.unanswered("t", str(number), "a", None)
        sends.unanswered("t", "0", "a", None)
    assert sends.get("t", "1").broker_names == ()
    assert sends.get("t", "0").broker_names == ("a",)
    assert sends.get("t", str(MOST_OPEN)).broker_names == ("a",)
