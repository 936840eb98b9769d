"""A refusal on its way from a task to the driver.

Owns what a task returns in the place of a failure. Spark runs a task that fails four times over, with a stack
for each, and there is no failure of a Python task that it takes for the last one. What a broker refuses it
refuses again: such a task ends well, with the refusal as its result, and the commit fails with that.

Invariants: a batch with a refusal is not committed. What may pass (the broker is away, busy, the answer was
lost) stays a failure of the task, which Spark runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from lakemq.client.errors import may_pass
from store_native.errors import InvalidRequest
from structured_streaming.sink.sender import TaskResult


@dataclass(frozen=True)
class Refused(WriterCommitMessage):
    """What one task was refused; pickled to the driver.

    Attributes:
        error: The first refusal; what the task had behind it was not sent.
    """

    error: InvalidRequest


def sent_or_refused(send: Callable[[], TaskResult]) -> TaskResult | Refused:
    """Sends the rows of one task.

    Raises:
        LakeMQError: What may go well when the task runs again.
    """
    try:
        return send()
    except InvalidRequest as error:
        if may_pass(error):
            raise
        return Refused(error)


def check_refused(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Fails where a task was refused; called on the driver when all tasks of the batch have ended.

    Raises:
        InvalidRequest: The first of them; it counts the tasks where there are several.
    """
    refused = [message.error for message in messages if isinstance(message, Refused)]
    if not refused:
        return
    first = refused[0]
    of_several = f" ({len(refused)} of {len(messages)} tasks were refused)" if len(messages) > 1 else ""
    raise InvalidRequest(first.code, f"{first.detail}{of_several}", **first.context) from None
