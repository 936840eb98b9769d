"""What a line means, and how lines become batches that remember where they came from."""

from __future__ import annotations

import io
import json
import os
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemq.terminal.failure import CommandFailed
from lakemq.upload.ndjson import LineRule, batches


def shaped(rule: LineRule, line: bytes) -> Any:
    return json.loads(rule.shape(line))


def cut(data: bytes, rule: LineRule | None = None, *, count: int = 1000, size: int = 1 << 20) -> list[Any]:
    found = batches(io.BytesIO(data), rule or LineRule("message"), max_count=count, max_bytes=size)
    return [(batch.numbers, bytes(batch.data)) for batch in found]


@pytest.mark.parametrize("field", ["body", "body_json", "body_base64"])
def test_object_with_a_body_is_a_message(field: str) -> None:
    line = json.dumps({field: "eA==", "tags": "t"}).encode()
    assert LineRule().shape(line) == line


def test_any_other_value_becomes_the_body() -> None:
    assert shaped(LineRule(), b'{"id": 1}') == {"body_json": {"id": 1}}
    assert shaped(LineRule(), b"[1, 2]") == {"body_json": [1, 2]}


def test_body_keeps_its_own_spelling() -> None:
    assert LineRule(key_fields=("a",)).shape(b'{"a": 1.00}') == b'{"keys":["1.00"],"body_json":{"a": 1.00}}'


def test_fields_of_the_body_become_keys_and_tag() -> None:
    rule = LineRule(key_fields=("id", "region"), tag_field="state")
    line = '{"id": 17, "region": "eu-süd", "state": "new", "x": null}'.encode()
    assert shaped(rule, line) == {"keys": ["17", "eu-süd"], "tags": "new", "body_json": json.loads(line)}


def test_missing_and_null_fields_give_no_key() -> None:
    assert shaped(LineRule(key_fields=("id",), tag_field="t"), b'{"id": null}') == {"body_json": {"id": None}}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"id": {"x": 1}}', "line 2: its field id is an object: a key or tag is text or a number"),
        (
            b'{"id": 1, "state": []}',
            "line 2: its field state is a list: a key or tag is text or a number",
        ),
    ],
)
def test_a_field_that_is_no_text_is_named_with_its_line(line: bytes, said: str) -> None:
    with pytest.raises(CommandFailed) as refused:
        cut(b'{"id": 1, "state": "new"}\n' + line, LineRule(key_fields=("id",), tag_field="state"))
    assert str(refused.value) == said


def test_object_with_a_body_field_can_be_a_body_when_asked_for() -> None:
    assert shaped(LineRule("body"), b'{"body": "x"}') == {"body_json": {"body": "x"}}


@pytest.mark.parametrize("line", [b'1,"tags":"injected"', b'1} {"a":2', b"NaN", b"", b"text"])
def test_what_is_no_json_value_is_no_body(line: bytes) -> None:
    for meaning in ("body", "auto"):
        with pytest.raises(ValueError, match=r"Extra data|Expecting value|NaN is no value"):
            LineRule(meaning).shape(line)


def test_lines_of_text_keep_their_indentation() -> None:
    lines = cut(b"  indented: yaml\r\n\n\tat a.b(D.java:1) \n", LineRule("text"))
    bodies = [json.loads(line)["body"] for _, batch in lines for line in batch.splitlines()]
    assert bodies == ["  indented: yaml", "\tat a.b(D.java:1) "]


def test_text_is_taken_as_it_is() -> None:
    assert shaped(LineRule("text"), b'a "quoted" line') == {"body": 'a "quoted" line'}


def test_batches_end_when_they_are_full() -> None:
    assert [numbers for numbers, _ in cut(b"{}\n" * 5, count=2)] == [[1, 2], [3, 4], [5]]


def test_batches_end_before_they_grow_too_large() -> None:
    line = b'{"body":"' + b"x" * 100 + b'"}\n'
    sizes = [len(data) for _, data in cut(line * 10, size=350)]
    assert sum(sizes) == 10 * len(line)
    assert max(sizes) <= 350


def test_one_line_larger_than_a_batch_goes_alone() -> None:
    line = b'{"body":"' + b"x" * 1000 + b'"}'
    assert [numbers for numbers, _ in cut(b"{}\n" + line + b"\n{}", size=100)] == [[1], [2], [3]]


def test_blank_lines_are_skipped_but_counted() -> None:
    assert cut(b"{}\n\n  \r\n{}\r\n\n{}") == [([1, 4, 6], b"{}\n{}\n{}\n")]


def test_a_line_that_does_not_parse_is_named() -> None:
    with pytest.raises(CommandFailed, match="line 3 is not JSON"):
        cut(b"{}\n\n{broken\n", LineRule())


@pytest.mark.parametrize("line", [b"id,name", b"1,a", b'"id","name"', b"2026-11-24 INFO started"])
def test_an_input_that_begins_with_text_is_told_of_the_option_for_it(line: bytes) -> None:
    told = r"line 2 is not JSON \(--as text takes lines as they are\): "
    for meaning in ("auto", "body"):
        with pytest.raises(CommandFailed, match=told):
            cut(b"\n" + line + b"\n", LineRule(meaning))
    with pytest.raises(CommandFailed, match="line 2 is not JSON: "):
        cut(b"{}\n" + line, LineRule())


@pytest.mark.parametrize("line", [b"{broken", b" [1,"])
def test_an_input_that_begins_as_json_is_not(line: bytes) -> None:
    with pytest.raises(CommandFailed, match="line 1 is not JSON: "):
        cut(line, LineRule())


def test_a_line_nested_too_deeply_is_named() -> None:
    with pytest.raises(CommandFailed, match=r"line 2 is not JSON: .*recursion"):
        cut(b"1\n" + b"[" * 100_000 + b"\n", LineRule("auto"))


def test_lines_that_stand_still_in_a_pipe_are_sent_without_waiting_for_more() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as sink:
        found = batches(source, LineRule("text"), max_count=100, max_bytes=1 << 20)
        sink.write(b"one\ntw")
        assert next(found).numbers == [1]
        sink.write(b"o\n")
        assert bytes(next(found).data) == b'{"body":"two"}\n'
        threading.Thread(target=sink.close).start()
        assert list(found) == []


@given(
    st.lists(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Z")), min_size=1)),
    st.integers(1, 5),
    st.integers(20, 200),
)
def test_every_line_is_in_exactly_one_batch_in_order(lines: list[str], count: int, size: int) -> None:
    data = "\n".join(lines).encode()
    found = cut(data, LineRule("text"), count=count, size=size)
    bodies = [json.loads(line)["body"] for _, part in found for line in part.splitlines()]
    assert bodies == lines
    assert [number for numbers, _ in found for number in numbers] == list(range(1, len(lines) + 1))


KEYED = LineRule(key_fields=("id", "customer"), tag_field="state")


def test_a_field_that_no_line_has_is_refused_before_anything_is_passed_on() -> None:
    line = b'{"id": 1, "custmer": "a", "state": null}\n'
    for count, lines in ((3, "no line"), (1_200, "none of the first 1,000 lines")):
        for most in (1, 100, 2_000):
            found = batches(io.BytesIO(line * count), KEYED, max_count=most, max_bytes=1 << 20)
            with pytest.raises(CommandFailed) as refused:
                next(found)
            assert str(refused.value) == f"{lines} has a field customer in its body; did you mean custmer?"


def test_lines_in_a_pipe_wait_until_each_field_was_seen_and_no_longer() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as sink:
        found = batches(source, KEYED, max_count=2, max_bytes=1 << 20)
        sink.write(b'{"id": 1, "state": "new"}\n[]\n{"customer": null}\n')
        assert [next(found).numbers, next(found).numbers] == [[1, 2], [3]]
        sink.write(b"{}\n")
        assert next(found).numbers == [4]
        threading.Thread(target=sink.close).start()
        assert list(found) == []


class EndsAfterIdling(io.BufferedReader):
    """A pipe that is at its end once it had nothing to read for a moment: so it is before a second read."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(io.FileIO(reader))
        self._writer: int | None = writer
        self._reads = 0

    def read1(self, size: int = -1, /) -> bytes:
        self._reads += 1
        if self._reads > 1 and self._writer is not None:
            os.close(self._writer)
            self._writer = None
        return super().read1(size)


def test_lines_in_a_pipe_that_have_not_all_fields_are_not_passed_on() -> None:
    reader, writer = os.pipe()
    os.write(writer, b'{"id": 1, "state": "new"}\n')
    with EndsAfterIdling(reader, writer) as source:
        found = batches(source, KEYED, max_count=1, max_bytes=1 << 20)
        with pytest.raises(CommandFailed, match="no line has a field customer"):
            next(found)


def test_what_waits_for_a_field_is_bounded_in_bytes() -> None:
    line = b'{"id": "' + b"x" * (1 << 20) + b'"}\n'
    source = io.BytesIO(line * 70)
    with pytest.raises(CommandFailed, match="none of the lines in the first 64 MiB has a field customer"):
        next(batches(source, KEYED, max_count=10, max_bytes=1 << 20))
    assert source.tell() < 67 * len(line)


def test_a_field_that_some_line_has_is_taken() -> None:
    lines = [b'{"state": "new"}'] * 998 + [b'{"id": 1}', b'{"customer": null}'] + [b"[]"] * 500
    assert sum(len(numbers) for numbers, _ in cut(b"\n".join(lines), KEYED)) == 1_500


def test_bodies_of_other_shapes_and_message_objects_have_no_field() -> None:
    for line in (b"[1]", b"17", b'{"body": "x", "id": 1}'):
        with pytest.raises(CommandFailed, match="no line has a field id in its body: none is a JSON object"):
            cut(line + b"\n" + line, LineRule(key_fields=("id",)))


def test_an_input_without_lines_and_a_rule_without_fields_refuse_nothing() -> None:
    assert cut(b"\n\n", KEYED) == []
    assert len(cut(b"17\n", LineRule())) == 1
