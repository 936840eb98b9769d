"""A function of DataFrames that gives messages their verdicts.

Owns the columns its frame must have, and how a text in SQL becomes such a function.

Invariants: a frame without these columns, or with others' types in them, is refused before it is evaluated.

Processes: the driver; nothing of it is pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store_native.errors import from_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

KEY = ("topic", "broker_name", "queue_id", "queue_offset", "attempt")
"""The columns that say of which message a row speaks."""
VERDICT = "verdict"
DELAY = "delay"
REASON = "reason"

SQL_VIEW = "batch"
"""What a text in SQL selects from."""

FrameFunction = Callable[["DataFrame"], "DataFrame"]


@dataclass(frozen=True)
class FrameHandler:
    """A function of DataFrames, in the place of a handler of messages.

    Attributes:
        target: its name, for people.
        function: a batch's messages in, the same rows with verdicts out.
    """

    target: str
    function: FrameFunction

    def verdict_rows(self, messages: DataFrame) -> DataFrame:
        """Applies the function: KEY, verdict, delay and reason of its rows, not evaluated yet.

        Raises:
            TypeError, ValueError: It returned no frame, or one without the columns.
        """
        from pyspark.sql import DataFrame
        from pyspark.sql.functions import lit

        made: Any = self.function(messages)
        if not isinstance(made, DataFrame):
            raise TypeError(f"it returned no DataFrame but {type(made).__name__}")
        types = _types_of(made.schema)
        for name in (*KEY, VERDICT):
            if name not in types:
                raise ValueError(f"its frame has no column {name!r}, but {', '.join(types)}")
        asked = _types_of(messages.schema)
        for name in KEY:
            if types[name] != asked[name]:
                raise TypeError(f"{name} is {types[name]} in its frame: the messages' is {asked[name]}")
        delay = "string" if types.get(DELAY) in (None, "string", "void") else "bigint"
        for name, wanted in ((VERDICT, _TEXT), (DELAY, (*_TEXT, *_LEVEL)), (REASON, _TEXT)):
            if types.get(name, "void") not in wanted:
                raise TypeError(f"{name} is {types[name]} in its frame, not {' or '.join(wanted)}")
        kinds = {VERDICT: "string", DELAY: delay, REASON: "string"}
        said = [
            (made[name] if name in types else lit(None)).cast(kind).alias(name)
            for name, kind in kinds.items()
        ]
        return made.select(*(made[name].alias(name) for name in KEY), *said)

    def check(self, nothing: DataFrame) -> None:
        """Applies the function to a frame without messages, so that it is refused before there are any.

        Raises:
            InvalidRequest: ARGUMENT_ILLEGAL: it cannot be applied, or its frame is not of the form.
        """
        try:
            self.verdict_rows(nothing)
        except (Exception, SystemExit) as error:  # foreign code
            from jobs.frames.spark_failure import described

            raise from_code("ARGUMENT_ILLEGAL", f"{self.target}: {described(error)}") from error


def sql_handler(file: Path) -> FrameHandler:
    """A SELECT in a file as a function: it reads the batch's messages from the view `batch`.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL: the file is empty or no UTF-8.
        OSError: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8-sig").strip().rstrip("; \n\t")
    except UnicodeDecodeError as error:
        raise from_code("ARGUMENT_ILLEGAL", f"{file} is not UTF-8: {error}") from error
    if not text:
        raise from_code("ARGUMENT_ILLEGAL", f"{file} is empty: it has to be a SELECT")

    def select(messages: DataFrame) -> DataFrame:
        messages.createOrReplaceTempView(SQL_VIEW)
        # What is no query is no subquery either: it is refused by the parser, and not carried out.
        return messages.sparkSession.sql(f"SELECT * FROM ({text}\n)")

    return FrameHandler(str(file), select)


_TEXT = ("string", "void")
_LEVEL = ("tinyint", "smallint", "int", "bigint")


def _types_of(schema: StructType) -> dict[str, str]:
    """Each column's type by its name, in lower case as Spark compares names.

    Raises:
        ValueError: A name is there twice.
    """
    types: dict[str, str] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name in types and name in (*KEY, VERDICT, DELAY, REASON):
            raise ValueError(f"its frame has the column {name!r} more than once: select one of them")
        types[name] = field.dataType.simpleString()
    return types
