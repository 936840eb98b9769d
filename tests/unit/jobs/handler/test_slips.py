"""Whatever a handler returns or raises is a verdict of its message, and a row the ledger takes."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from delta_tables.deliveries import DELIVERIES
from jobs.group.outcomes import OutcomeTask
from jobs.handler import reasons
from jobs.handler.loader import LoadedHandler
from lakemq.handler import Verdict
from tests.support.outcome_rows import POLICY, SCHEMA, message


def text_of(raw: bytes) -> pa.Array:
    """A column of one text, whatever its bytes are."""
    ends = pa.array([0, len(raw)], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(raw)])


NOT_UTF8 = text_of(b"\xff\xfe")


class Panic(BaseException):
    """As pyo3's PanicException: no Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def handled(function: Callable[[Any], Any], *, vectorised: bool = False) -> dict[str, Any]:
    class Target:
        def load(self) -> LoadedHandler:
            return LoadedHandler(function, vectorised)

    task = OutcomeTask("g", Target(), POLICY, "concurrent", "q", 0)  # type: ignore[arg-type]
    (made,) = task(iter([pa.RecordBatch.from_pylist([message(0)], SCHEMA)]))
    assert made.schema.equals(DELIVERIES.arrow_schema)
    made.validate(full=True)
    (row,) = made.to_pylist()
    return dict(row)


RAISED = [
    Panic("a Rust panic"),
    asyncio.CancelledError(),
    GeneratorExit(),
    KeyboardInterrupt(),
    SystemExit(3),
    StopIteration(),
    Mute(),
    Exits(),
    ValueError("\ud800" * 10_000),
    ValueError("x" * 1_000_000),
    ExceptionGroup("many", [Mute(), ValueError("\udfff")]),
    type("N" * 5_000, (Exception,), {})("long name"),
]


@pytest.mark.parametrize("vectorised", [False, True])
@pytest.mark.parametrize(
    "error", RAISED, ids=lambda error: type(error).__name__[:20].encode("ascii", "replace")
)
def test_whatever_is_raised_is_a_retry_of_the_message(error: BaseException, vectorised: bool) -> None:
    def handle(_: Any) -> None:
        raise error

    row = handled(handle, vectorised=vectorised)
    assert row["verdict"] == "RETRY"
    assert 0 < len(row["error_type"]) <= reasons.MAX_ERROR_TYPE
    assert len(row["error_text"]) <= reasons.MAX_ERROR_TEXT
    assert 0 < len(row["error_trace"]) <= reasons.MAX_ERROR_TRACE


@pytest.mark.parametrize(
    ("reason", "stored"),
    [
        ("no", "no"),
        (ValueError("negative amount"), "ValueError: negative amount"),
        (ValueError(), "ValueError"),
        (Mute(), "Mute: <Mute whose text cannot be made>"),
        ("\ud800 lone", "? lone"),
        (7, "7"),
        (b"no", "b'no'"),
        ("x" * 5_000, "x" * reasons.MAX_REASON),
        (ValueError("x" * 5_000), f"ValueError: {'x' * 5_000}"[: reasons.MAX_REASON]),
        (None, None),
    ],
)
def test_any_reason_is_a_text_of_bounded_length(reason: Any, stored: str | None) -> None:
    assert handled(lambda _: Verdict.dead(reason))["reason"] == stored
    row = handled(lambda _: [Verdict.dead(reason)], vectorised=True)
    assert (row["verdict"], row["reason"]) == ("DEAD", stored)
    row = handled(lambda _: Verdict.retry(reason=reason))
    assert (row["verdict"], row["reason"]) == ("RETRY", stored)


def test_a_reason_that_is_no_plain_text_is_read_as_one() -> None:
    class Odd(str):
        def __getitem__(self, key: Any) -> str:
            raise RuntimeError

        encode = __str__ = __getitem__  # type: ignore[assignment]

    assert handled(lambda _: Verdict.dead(Odd("odd")))["reason"] == "odd"


def test_the_reasons_of_a_column_are_bounded_too() -> None:
    row = handled(lambda _: pa.table({"verdict": ["DEAD"], "reason": ["x" * 5_000]}), vectorised=True)
    assert row["reason"] == "x" * reasons.MAX_REASON


@pytest.mark.parametrize(
    "answer",
    [
        "ok",
        Verdict("DONE"),
        Verdict(["ACK"]),  # type: ignore[arg-type]
        Verdict("RETRY", delay_level=2.5),  # type: ignore[arg-type]
        Verdict("RETRY", delay_level="3"),  # type: ignore[arg-type]
        Verdict("RETRY", delay_ms=float("nan")),  # type: ignore[arg-type]
        iter(()),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_an_answer_that_is_no_verdict_is_a_failure_of_the_message(answer: Any) -> None:
    assert handled(lambda _: answer)["verdict"] == "RETRY"
    assert handled(lambda _: [answer], vectorised=True)["error_type"] in ("TypeError", "ValueError")


@pytest.mark.parametrize(
    "answer",
    [
        NOT_UTF8,
        pa.table({"verdict": ["DEAD"], "reason": NOT_UTF8}),
        pa.table({"verdict": ["DEAD"], "reason": text_of(b"\xc0\xaf")}),  # longer than need be
        pa.table({"verdict": ["DEAD"], "reason": text_of(b"\xed\xa0\x80")}),  # half a pair
        pa.table({"verdict": ["RETRY"], "delay_level": ["soon"]}),
        pa.table({"verdict": ["RETRY"], "delay_level": [2.5]}),
        pa.table([["ACK"], ["DEAD"]], names=["verdict", "verdict"]),
        pa.array([{"verdict": 1}]),
        pa.chunked_array([], pa.string()),
    ],
    ids=range(9),
)
def test_columns_that_cannot_be_read_are_a_failure_of_the_message(answer: Any) -> None:
    row = handled(lambda _: answer, vectorised=True)
    assert row["verdict"] == "RETRY"
    assert row["error_type"] is not None


def test_a_null_struct_is_an_acknowledgement() -> None:
    answer = pa.array([None], pa.struct([("verdict", pa.string())]))
    assert handled(lambda _: answer, vectorised=True)["verdict"] == "ACK"


@pytest.mark.parametrize("level", [-(10**30), 10**30])
def test_a_delay_beyond_all_numbers_is_clamped(level: int) -> None:
    assert handled(lambda _: Verdict("RETRY", delay_level=level))["delay_level"] in (1, 4)


class Kind(str, enum.Enum):  # noqa: UP042  (what users of older Pythons write; its str() is its name)
    ACK = "ACK"
    RETRY = "RETRY"
    DEAD = "DEAD"


class Agrees(str):
    """Equal to whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __str__(self) -> str:
        return "WHAT"

    __hash__ = str.__hash__


def _answers(answer: object, _: object) -> object:
    return answer


@pytest.mark.parametrize("kind", [*Kind, Agrees("ACK"), Agrees("RETRY"), Agrees("DEAD")], ids=repr)
def test_a_kind_that_is_a_subclass_of_str_is_stored_as_the_plain_word(kind: str) -> None:
    plain = str.__str__(kind)
    assert handled(lambda _: Verdict(kind))["verdict"] == plain
    for answer in (kind, Verdict(kind)):
        assert handled(partial(_answers, [answer]), vectorised=True)["verdict"] == plain
    assert handled(lambda _: Verdict(kind), vectorised=True)["verdict"] == plain


@pytest.mark.parametrize("kind", [Agrees("FOO"), Agrees(""), Agrees("Kind.DEAD"), "dead"], ids=repr)
def test_a_kind_that_only_claims_to_be_one_is_a_failure_of_the_message(kind: str) -> None:
    for answer in (Verdict(kind), [kind], [Verdict(kind)]):
        row = handled(partial(_answers, answer), vectorised=True)
        assert (row["verdict"], row["error_type"]) == ("RETRY", "ValueError")
    assert handled(lambda _: Verdict(kind))["error_type"] == "ValueError"


def test_a_list_that_gives_fewer_verdicts_than_it_counts_acknowledges_nothing() -> None:
    class Short(list[Any]):
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Any:
            return iter(())

    row = handled(lambda _: Short(), vectorised=True)
    assert (row["verdict"], row["error_type"]) == ("RETRY", "ValueError")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


@pytest.mark.parametrize("vectorised", [False, True])
def test_an_exception_whose_class_hides_its_name_is_a_retry_of_the_message(vectorised: bool) -> None:
    class Hidden(Exception, metaclass=Nameless):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    def handle(_: Any) -> None:
        raise Hidden

    row = handled(handle, vectorised=vectorised)
    assert (row["verdict"], row["error_type"]) == ("RETRY", "Hidden")
    assert row["error_text"] == "<Hidden whose text cannot be made>"
    assert handled(lambda _: Verdict.dead(Hidden()))["verdict"] == "DEAD"


def test_a_trace_is_pythons_own() -> None:
    def handle(_: Any) -> None:
        raise ValueError("never departed")

    trace = handled(handle)["error_trace"]
    first, second, *_, last = trace.split("\n")[:-1]
    assert first == "Traceback (most recent call last):"
    assert second.startswith('  File "')
    assert last == "ValueError: never departed"


def test_an_exception_that_cannot_even_be_shown_has_its_name_in_place_of_a_trace() -> None:
    class Hides(Exception):
        @property
        def __cause__(self) -> None:  # type: ignore[override]
            raise RuntimeError("no cause")

    def handle(_: Any) -> None:
        raise Hides

    row = handled(handle)
    assert (row["verdict"], row["error_type"]) == ("RETRY", "Hides")
    assert row["error_trace"] == "Hides: its traceback cannot be shown"
