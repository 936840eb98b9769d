"""The flights' rows become messages, and the handler fails exactly where it should."""

from __future__ import annotations

import io
import json
import zipfile

import pyarrow as pa

from lakemq.quickstart import flights, handlers

CSV = """\
year,dep_time,carrier,flight,tailnum,time_hour
2013,517,UA,1545,N14228,2013-01-01T10:00:00Z
2013,NA,EV,4308,NA,2013-01-01T21:00:00Z
"""


def archive() -> io.BytesIO:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("flights.csv", CSV)
    packed.seek(0)
    return packed


def test_rows_have_numbers_and_nothing_for_na() -> None:
    departed, cancelled = flights.rows(archive())
    assert departed["dep_time"] == 517
    assert departed["carrier"] == "UA"
    assert cancelled["dep_time"] is None
    assert cancelled["tailnum"] is None


def test_flight_is_found_by_carrier_and_number_and_filtered_by_carrier() -> None:
    message = flights.message_of(next(flights.rows(archive()))).to_json()
    assert message["keys"] == ["UA1545"]
    assert message["tags"] == "UA"
    assert message["body_json"]["dep_time"] == 517


def test_handler_fails_exactly_where_the_flight_never_departed() -> None:
    bodies = [json.dumps(row).encode() for row in flights.rows(archive())]
    verdicts = handlers.arrived(pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}))
    assert [verdict and verdict.kind for verdict in verdicts] == [None, "RETRY"]


def test_handler_takes_a_batch_in_which_nothing_departed_and_an_empty_one() -> None:
    nothing = pa.array([b'{"dep_time":null}'] * 3, pa.binary())
    assert [v and v.kind for v in handlers.arrived(pa.RecordBatch.from_pydict({"body": nothing}))] == [
        "RETRY"
    ] * 3
    assert handlers.arrived(pa.RecordBatch.from_pydict({"body": pa.array([], pa.binary())})) == []
