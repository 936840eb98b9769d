"""Log lines: one record, one line, whatever a client put into it."""

from __future__ import annotations

import json
import logging

from ingest_api.logs import JsonFormatter, PlainFormatter


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("lakemq.access", logging.INFO, __file__, 1, "request", None, None)
    made.fields = fields
    return made


def test_plain_lines_show_fields_and_quote_what_could_forge_a_line() -> None:
    line = PlainFormatter().format(record(status=404, path="/a\nWARNING forged"))
    assert "\n" not in line
    assert 'INFO lakemq.access request status=404 path="/a\\nWARNING forged"' in line


def test_json_lines_are_objects() -> None:
    document = json.loads(JsonFormatter().format(record(status=404)))
    assert (document["level"], document["message"], document["status"]) == ("info", "request", 404)
    assert document["time"].endswith("Z")
