"""Makes rows of a user's table out of the JSON in which they were kept.

Owns the check against the table as it is now: a column that was dropped since ends the write.

Processes: made on the driver, pickled to executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from delta_tables.user_tables.columns import TableColumns
from store_native.errors import InvalidRequest, from_code


@dataclass(frozen=True)
class WriteTask:
    """Maps batches of one text column to the table's columns.

    Attributes:
        columns: the table's.
        name: by which rows name it.
    """

    columns: TableColumns
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows.

        Raises:
            InvalidRequest: TABLE_REFUSED where one does not fit.
        """
        for batch in batches:
            try:
                yield self.columns.batch(batch.column(0).to_pylist())
            except (TypeError, ValueError, pa.ArrowException) as error:
                raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> InvalidRequest:
        said = f"a row no longer fits the table {self.name}: {error}"
        refusal = from_code("TABLE_REFUSED", said)
        assert isinstance(refusal, InvalidRequest), "the code is of a wrong request"
        return refusal
