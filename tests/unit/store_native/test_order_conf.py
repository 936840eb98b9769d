"""The text of an ordered topic's list of brokers, and which of two lists counts."""

from __future__ import annotations

import pytest

from store_native.errors import InvalidRequest
from store_native.order_conf import MOST_CHARACTERS, OrderConf, newest


def test_a_list_is_the_same_text_in_whatever_order_it_was_given() -> None:
    conf = OrderConf.of(3, {"broker-b": 2, "broker-a": 4})
    assert conf == OrderConf(3, "broker-a:4;broker-b:2") == OrderConf.parse(3, "broker-b:2;broker-a:4")
    assert conf.write_queue_nums == {"broker-a": 4, "broker-b": 2}


def test_attributes_give_the_list_back_and_nothing_where_there_is_none() -> None:
    conf = OrderConf.of(3, {"a": 4})
    assert OrderConf.of_attributes({"team": "billing", **conf.attributes()}) == conf
    for attributes in (None, {}, {"order.version": "1"}, {**conf.attributes(), "order.version": "x"}):
        assert OrderConf.of_attributes(attributes) is None


@pytest.mark.parametrize(
    "text", ["", "a", "a:0", "a:1025", "a:-1", "a:4;", "a:4;a:5", "a b:4", "a:4,b:4", "é:4"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL: an ordered topic's list of brokers"):
        OrderConf.parse(1, text)


def test_a_list_that_an_attribute_cannot_hold_and_a_version_below_1_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=f"at most {MOST_CHARACTERS}"):
        OrderConf.of(1, {f"broker-{number}": 1 for number in range(200)})
    with pytest.raises(InvalidRequest, match="version is 0"):
        OrderConf.of(0, {"a": 1})


def test_the_higher_version_counts() -> None:
    one, two = OrderConf.of(1, {"b": 1}), OrderConf.of(2, {"a": 1})
    assert newest([one, None, two]) == newest([two, one]) == two
    assert newest([None]) is None
