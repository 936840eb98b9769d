"""Sets up logging: plain lines for people, JSON lines for machines.

Owns the two formats.

Invariants: everything goes to standard error; standard output carries the one line that says the broker is
ready.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from ingest_api.process_settings import LogSettings


class PlainFormatter(logging.Formatter):
    """``2026-01-02T03:04:05.678Z INFO lakemq.broker text key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """Renders a record; called by logging for each line."""
        fields = "".join(f" {key}={_shown(value)}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Renders a record; called by logging for each line."""
        document: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, ensure_ascii=False, default=str)


def set_up_logging(settings: LogSettings) -> None:
    """Sends everything to standard error in the format asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else PlainFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lakemq").setLevel(settings.level.upper())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _shown(value: Any) -> str:
    # A client chose some of these (paths); quoting keeps its line breaks out of the log.
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"
