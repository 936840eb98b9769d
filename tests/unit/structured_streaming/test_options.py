"""No option is ignored in silence: each is used, or refused with words that help."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from store_native.errors import LakeMQError
from structured_streaming.offsets import MessageQueue
from structured_streaming.option_names import SINK_OPTIONS, SOURCE_OPTIONS, check_names, with_environment
from structured_streaming.options import ReadOptions, WriteOptions, parse_read, parse_write
from structured_streaming.starting_offsets import (
    EARLIEST,
    LATEST,
    ByTimestamps,
    Explicit,
    GroupPosition,
    SinceTimestamp,
)

BROKER = "http://127.0.0.1:8090"


def read(streaming: bool = True, /, **options: object) -> ReadOptions:
    given = {"endpoint": BROKER, "subscribe": "orders"} | {k: str(v) for k, v in options.items()}
    return parse_read({k: v for k, v in given.items() if v != "None"}, streaming=streaming)


def test_defaults() -> None:
    chosen = read()
    assert chosen == ReadOptions(
        path=None,
        endpoint=BROKER,
        subscription=chosen.subscription,
        starting=LATEST,
        ending=LATEST,
        max_offsets_per_trigger=None,
        min_partitions=None,
        max_records_per_partition=None,
        fail_on_data_loss=True,
        fail_on_reused_offsets=False,
        layout="lakemq",
        include_properties=False,
        include_headers=False,
        tags="*",
        group=None,
        group_lease=True,
        retry_timeout_ms=120_000,
    )
    assert read(False).starting == EARLIEST


def test_names_count_in_any_case() -> None:
    upper = {"ENDPOINT": BROKER, "subscribe": "orders", "MAXOFFSETSPERTRIGGER": "5"}
    assert parse_read(upper, streaming=True).max_offsets_per_trigger == 5


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger"),
        ("startingOfsets", "did you mean startingOffsets"),
        ("kafka.bootstrap.servers", "the option endpoint"),
        ("xyzzy", "Known are path, endpoint"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest_one(name: str, hint: str) -> None:
    with pytest.raises(LakeMQError, match=hint):
        check_names({name: "1"})


@pytest.mark.parametrize(
    "name", ["sqlFilter", "authentication", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"]
)
def test_options_of_a_later_release_say_so(name: str) -> None:
    with pytest.raises(LakeMQError, match=f"NOT_IMPLEMENTED: the option {name} comes with a later release"):
        check_names({name.lower(): "1"})


@pytest.mark.parametrize("name", sorted(set(SINK_OPTIONS) - set(SOURCE_OPTIONS)))
def test_options_of_the_sink_are_refused_by_the_source(name: str) -> None:
    with pytest.raises(LakeMQError, match=f"{name} is not one of the source"):
        read(**{name: "1"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": None}, "one of subscribe, subscribePattern and assign"),
        ({"subscribePattern": "o.*"}, "subscribe and subscribePattern exclude each other"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "../etc"}, "TOPIC_ILLEGAL"),
        ({"subscribe": None, "subscribePattern": "("}, "no regular expression"),
        ({"subscribe": None, "assign": '{"orders":[]}'}, "assign must look like"),
        ({"subscribe": None, "assign": "orders"}, "must be a JSON object"),
        ({"endpoint": None}, "path .* or endpoint"),
        ({"endpoint": None, "path": "/store", "group": "g"}, "group needs endpoint"),
        ({"group": "a b"}, "GROUP_ILLEGAL"),
        ({"tags": "a &&"}, "FILTER_ILLEGAL: tags: a message has one tag"),
        ({"tags": "a | b"}, "FILTER_ILLEGAL: tags: tags are separated by"),
        ({"tags": "||"}, "FILTER_ILLEGAL: tags: no tag"),
        ({"startingOffsets": "group"}, "needs the option group"),
        ({"startingOffsets": "first"}, "earliest, latest or JSON"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "orders/0 has no usable value"),
        ({"startingOffsets": '{"orders":{"0":1.5}}'}, "orders/0 has no usable value"),
        ({"startingOffsets": '{"v":9}'}, "version 9"),
        ({"startingOffsets": "latest", "startingTimestamp": 5}, "exclude each other"),
        ({"startingTimestamp": "yesterday"}, "whole number"),
        ({"endingOffsets": "latest"}, "batch reads only"),
        ({"maxOffsetsPerTrigger": 0}, "at least 1"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"layout": "rabbit"}, "one of lakemq, kafka"),
    ],
)
def test_wrong_values_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(LakeMQError, match=text):
        read(**options)


def test_a_batch_read_cannot_start_at_latest_nor_end_at_earliest() -> None:
    with pytest.raises(LakeMQError, match="would read nothing"):
        read(False, startingOffsets="latest")
    with pytest.raises(LakeMQError, match="cannot end at earliest"):
        read(False, endingOffsets="earliest")
    with pytest.raises(LakeMQError, match="cannot end at earliest"):
        read(False, endingOffsets='{"orders":{"0":-2}}')


def test_starting_positions() -> None:
    assert read(startingOffsets="EARLIEST").starting == EARLIEST
    assert read(startingOffsets='{"orders":{"0":12,"1":-1}}').starting == Explicit(
        {("orders", 0): 12, ("orders", 1): -1}
    )
    assert read(startingTimestamp=5).starting == SinceTimestamp(5, "latest")
    by_queue = read(
        startingOffsetsByTimestamp=json.dumps({"orders": {"0": 7}}),
        startingOffsetsByTimestampStrategy="error",
    )
    assert by_queue.starting == ByTimestamps({("orders", 0): 7}, "error")
    assert read(group="g", startingOffsets="group").starting == GroupPosition(LATEST)
    fallback = read(group="g", startingOffsets="group", groupInitialOffsets="earliest")
    assert fallback.starting == GroupPosition(EARLIEST)


def test_subscriptions_cover_their_queues() -> None:
    def covers(topic: str, queue_id: int, **options: object) -> bool:
        chosen = read(**{"subscribe": None, **options})
        return chosen.subscription.covers(MessageQueue(topic, "broker-a", queue_id))

    assert covers("b", 0, subscribe="a, b")
    assert not covers("c", 0, subscribe="a,b")
    assert covers("a", 1, assign='{"a":[1]}')
    assert not covers("a", 0, assign='{"a":[1]}')
    assert covers("orders-eu", 0, subscribePattern="orders-.*")
    assert not covers("my-orders-eu", 0, subscribePattern="orders-.*")


def test_a_pattern_leaves_system_and_retry_topics_alone() -> None:
    everything = read(subscribe=None, subscribePattern=".*").subscription
    topics = ["orders", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "%RETRY%g", "%DLQ%g"]
    assert everything.matching(topics) == ["orders"]
    retries = read(subscribe=None, subscribePattern="%RETRY%.*").subscription
    assert retries.matching(topics) == ["%RETRY%g"]


def test_the_environment_names_the_broker_unless_an_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMQ_ENDPOINT", "http://elsewhere:1")
    assert with_environment({"subscribe": "t"})["endpoint"] == "http://elsewhere:1"
    assert with_environment({"Endpoint": BROKER})["endpoint"] == BROKER
    assert "endpoint" not in with_environment({"path": "/store"})


def test_a_file_of_authorities_that_cannot_be_read_is_called_what_the_user_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = str(tmp_path / "nowhere.pem")
    given = {"endpoint": "https://127.0.0.1:8090", "subscribe": "orders"}
    sink = {"endpoint": given["endpoint"]}
    with pytest.raises(LakeMQError, match=f"caFile: {nowhere} cannot be read"):
        parse_read({**given, "caFile": nowhere}, streaming=True)
    with pytest.raises(LakeMQError, match=f"caFile: {nowhere} cannot be read"):
        parse_write({**sink, "caFile": nowhere})
    monkeypatch.setenv("LAKEMQ_CA_FILE", nowhere)
    with pytest.raises(LakeMQError, match=f"LAKEMQ_CA_FILE: {nowhere} cannot be read"):
        parse_read(with_environment(given), streaming=False)
    assert parse_write(with_environment({"endpoint": BROKER})).ca_file == nowhere, "nobody needs it"


def test_the_sink() -> None:
    plain = parse_write({"endpoint": BROKER})
    assert plain == WriteOptions(BROKER, None, None, 10_000, 120_000)
    assert parse_write(
        {"endpoint": BROKER, "topic": "t", "name": "load-1", "rowsPerRequest": "7"}
    ) == replace(plain, topic="t", name="load-1", rows_per_request=7)
    for options, text in [
        ({}, "give the option endpoint"),
        ({"endpoint": BROKER, "name": "a/b"}, "name must be"),
        ({"endpoint": BROKER, "topic": "a b"}, "TOPIC_ILLEGAL"),
        ({"endpoint": BROKER, "subscribe": "t"}, "subscribe is not one of the sink"),
    ]:
        with pytest.raises(LakeMQError, match=text):
            parse_write(options)


def test_sparks_own_options_of_a_table_are_known() -> None:
    check_names({"provider": "lakemq", "subscribe": "t", "option.subscribe": "t"})
    chosen = read(False, **{"provider": "lakemq", "option.subscribe": "orders", "option.tags": "A"})
    assert (chosen.subscription.topics, chosen.tags) == (frozenset({"orders"}), "A")
    with pytest.raises(LakeMQError, match="did you mean tags"):
        check_names({"option.tag": "A"})


def test_a_topic_named_v_is_no_checkpoint() -> None:
    chosen = read(subscribe="v", startingOffsets='{"v":{"0":12}}')
    assert chosen.starting == Explicit({("v", 0): 12})
