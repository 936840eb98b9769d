"""The same rows give the same chunks with the same digests; other rows give other digests."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_native.errors import InvalidRequest
from structured_streaming.sink import chunks
from structured_streaming.sink.chunks import RowChunk, TopicChunks, digest

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("queue_id", pa.int32()),
        ("born_timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
words = st.text("ab", max_size=3)
rows_ = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["t1", "t2"]),
        "body": st.binary(max_size=4),
        "tags": st.none() | words,
        "keys": st.none() | st.lists(st.none() | words, max_size=3),
        "properties": st.none() | st.lists(st.tuples(words, st.none() | words), max_size=2),
        "queue_id": st.none() | st.integers(0, 3),
        "born_timestamp": st.none()
        | st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),
    }
)
tables = st.lists(rows_, max_size=30)
Row = dict[str, object]


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def cut(rows: list[Row], batch_rows: int, chunk_rows: int, topic: str | None = None) -> list[RowChunk]:
    return list(TopicChunks(topic, chunk_rows).cut(table(rows).to_batches(max_chunksize=batch_rows)))


@given(tables, st.integers(1, 7), st.integers(1, 10), st.integers(1, 10))
def test_chunks_do_not_depend_on_how_spark_batched_the_rows(
    rows: list[Row], chunk_rows: int, one: int, other: int
) -> None:
    def seen(batch_rows: int) -> list[tuple[str, int, str, list[Row]]]:
        found = cut(rows, batch_rows, chunk_rows)
        return sorted((c.topic, c.sequence, c.digest, c.rows.to_pylist()) for c in found)

    assert [part[:3] for part in seen(one)] == [part[:3] for part in seen(other)]


@given(tables, st.integers(1, 7))
def test_every_row_is_in_one_chunk_of_its_topic_in_order(rows: list[Row], chunk_rows: int) -> None:
    found = cut(rows, 5, chunk_rows)
    for topic in ("t1", "t2"):
        bodies = [row["body"] for c in found if c.topic == topic for row in c.rows.to_pylist()]
        assert bodies == [row["body"] for row in rows if row["topic"] == topic]
        assert [c.sequence for c in found if c.topic == topic] == list(
            range(sum(c.topic == topic for c in found))
        )
    assert all(0 < c.rows.num_rows <= chunk_rows for c in found)


@given(tables, tables)
def test_digests_are_equal_exactly_when_the_rows_are(one: list[Row], other: list[Row]) -> None:
    same = table(one).drop_columns(["topic"]).to_pylist() == table(other).drop_columns(["topic"]).to_pylist()
    assert (
        digest(table(one).drop_columns(["topic"])) == digest(table(other).drop_columns(["topic"]))
    ) == same


@given(tables, st.data())
def test_a_digest_does_not_see_slices(rows: list[Row], data: st.DataObject) -> None:
    whole = table(rows)
    start = data.draw(st.integers(0, len(rows)))
    assert digest(whole.slice(start).combine_chunks()) == digest(table(rows[start:]).combine_chunks())


def test_the_topic_option_wins_over_the_column() -> None:
    found = cut([{"topic": "ignored", "body": b"x"}], 5, 5, topic="orders")
    assert [(c.topic, c.rows.column_names[0]) for c in found] == [("orders", "body")]


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="topic is null"):
        cut([{"topic": None, "body": b"x"}], 5, 5)


def test_large_bodies_make_smaller_chunks() -> None:
    big = b"x" * (chunks.MAX_CHUNK_BYTES // 3)
    found = cut([{"topic": "t", "body": big}] * 8, 8, 8)
    assert [c.rows.num_rows for c in found] == [2, 2, 2, 2]
    assert len({(c.sequence, c.digest) for c in found}) == 4


def test_large_properties_make_smaller_chunks_as_large_bodies_do() -> None:
    wide = [("name", "x" * (chunks.MAX_CHUNK_BYTES // 3))]
    found = cut([{"topic": "t", "body": b"", "properties": wide}] * 8, 8, 8)
    assert [c.rows.num_rows for c in found] == [2, 2, 2, 2]


@given(tables, st.data())
def test_the_bytes_of_values_do_not_depend_on_their_layout(rows: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    for name in SCHEMA.names:
        sliced = table(rows).column(name).combine_chunks().slice(start)
        alone = pa.array([row[name] for row in rows[start:]], SCHEMA.field(name).type)
        assert chunks.value_bytes(sliced) == chunks.value_bytes(alone)


def test_halves_of_equal_rows_have_keys_of_their_own() -> None:
    (chunk,) = cut([{"topic": "t", "body": b"same"}] * 8, 8, 8)
    parts = [part for half in chunks.halves(chunk) for part in chunks.halves(half)]
    assert [part.rows.num_rows for part in parts] == [2, 2, 2, 2]
    assert len({(part.sequence, part.part) for part in parts}) == 4


def test_when_a_row_is_due_is_no_part_of_its_content() -> None:
    def rows(*due_at: int) -> pa.Table:
        return pa.table({"body": ["a", "b"], "delay_level": [3, 4], "due_at": [*due_at]})

    assert digest(rows(1, 2)) == digest(rows(3, 4)) == digest(rows(1, 2).drop_columns(["due_at"]))
    (chunk,) = TopicChunks("t", 10).cut(rows(1, 2).to_batches())
    assert chunk.rows.column("due_at").to_pylist() == [1, 2]
