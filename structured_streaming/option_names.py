"""The names of the options of ``format("lakemq")``, and what was given under them.

Owns every option name of source and sink, how an unknown one is refused, and the types that a text becomes.

Invariants: an option is never ignored in silence. An unknown name is refused with the nearest known one, and
an option of a later release says so.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from typing import Any

from lakemq.client.endpoint import CA_FILE_VARIABLE, ENDPOINT_VARIABLE
from store_native.errors import from_code
from structured_streaming.offsets import illegal

SOURCE_OPTIONS = (
    "path",
    "endpoint",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "failOnReusedOffsets",
    "layout",
    "includeProperties",
    "includeHeaders",
    "tags",
    "group",
    "groupLease",
    "groupInitialOffsets",
    "retryTimeoutMs",
    "planFile",
    "batchBoundFile",
    "brokersJoin",
    "joinAtGroup",
    "caFile",
)
SINK_OPTIONS = (
    *("endpoint", "caFile", "topic", "name", "brokers", "brokerAway"),
    *("rowsPerRequest", "retryTimeoutMs", "compression"),
)
_SPARK_OPTIONS = (
    *("path", "paths", "checkpointLocation", "queryName"),
    # What CREATE TABLE says besides its OPTIONS (Spark's reserved properties of a table).
    *("provider", "location", "comment", "owner", "external", "is_managed_location", "collation"),
)
_REPEATED = "option."
"""A table's options come a second time under this prefix."""
_LATER = {
    "sqlFilter": "filter on properties in Spark SQL until then",
    "authentication": "the broker listens on loopback until then",
    "minOffsetsPerTrigger": "use the trigger's interval until then",
    "maxTriggerDelay": "use the trigger's interval until then",
    "maxBytesPerTrigger": "use maxOffsetsPerTrigger until then",
}


def check_names(options: Mapping[str, str]) -> None:
    """Refuses names that neither source nor sink knows.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL with the nearest name, NOT_IMPLEMENTED for a later option.
    """
    known = {name.lower(): name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS, *_SPARK_OPTIONS)}
    later = {name.lower(): name for name in _LATER}
    for given in _said(options):
        if given.lower() in later:
            name = later[given.lower()]
            raise from_code(
                "NOT_IMPLEMENTED",
                f"the option {name} comes with a later release: {_LATER[name]}",
                option=name,
            )
        if given.lower() not in known:
            raise illegal(f"unknown option {given!r}{_hint(given, known | later)}", option=given)


def _said(options: Mapping[str, str]) -> dict[str, str]:
    """The options by lower-case name, each once."""
    repeated = {name.lower().removeprefix(_REPEATED): value for name, value in options.items()}
    plain = {name.lower(): value for name, value in options.items() if not name.lower().startswith(_REPEATED)}
    return repeated | plain


def with_environment(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options with what the driver's environment adds, for executors have another one."""
    found = _said(options)
    if ENDPOINT_VARIABLE in os.environ and "path" not in found:
        found.setdefault("endpoint", os.environ[ENDPOINT_VARIABLE])
    if os.environ.get(CA_FILE_VARIABLE):
        found.setdefault("cafile", os.environ[CA_FILE_VARIABLE])
    return found


class GivenOptions:
    """Typed access to the options of one side, by their proper names."""

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...], side: str) -> None:
        check_names(options)
        self._values = _said(options)
        own = {name.lower() for name in (*names, *_SPARK_OPTIONS)}
        for name in self._values:
            if name not in own:
                raise illegal(f"the option {_proper(name)} is not one of the {side}", option=name)

    def text(self, name: str) -> str | None:
        """Reads the text; None when it is not given or empty."""
        value = self._values.get(name.lower())
        return value.strip() or None if value is not None else None

    def flag(self, name: str, default: bool) -> bool:
        """Reads true or false."""
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise illegal(f"{name} must be true or false, not {value!r}", option=name)
        return value == "true"

    def positive(self, name: str) -> int | None:
        """Reads a whole number above 0."""
        number = self.whole(name)
        if number is not None and number < 1:
            raise illegal(f"{name} must be at least 1, not {number}", option=name)
        return number

    def whole(self, name: str) -> int | None:
        """Reads a whole number."""
        value = self.text(name)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise illegal(f"{name} must be a whole number, not {value!r}", option=name) from None

    def one_of(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Reads one of the allowed words."""
        value = (self.text(name) or default).lower()
        if value not in allowed:
            raise illegal(f"{name} must be one of {', '.join(allowed)}, not {value!r}", option=name)
        return value

    def json_object(self, name: str) -> dict[str, Any]:
        """Reads a JSON object."""
        text = self.text(name) or ""
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise illegal(f"{name} must be a JSON object, not {text!r}", option=name)
        return value

    def only_one(self, *names: str) -> str | None:
        """Returns which one of the options is given."""
        found = [name for name in names if self.text(name) is not None]
        if len(found) > 1:
            raise illegal(f"{' and '.join(found)} exclude each other", option=found[1])
        return found[0] if found else None


def _hint(given: str, known: Mapping[str, str]) -> str:
    if given.lower().startswith("kafka."):
        return ": options of a Kafka client mean nothing here; the broker's address is the option endpoint"
    near = difflib.get_close_matches(given.lower(), known, n=1)
    return f", did you mean {known[near[0]]}?" if near else f". Known are {', '.join(SOURCE_OPTIONS)}"


def _proper(lower: str) -> str:
    names = {name.lower(): name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS)}
    return names.get(lower, lower)
