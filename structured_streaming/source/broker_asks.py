"""Questions to several brokers at the same time.

Owns the threads, one for each question, and how long their answers are waited for.

Invariants: a broker is asked one thing at a time: one that still has a question of before is not asked
again until that has ended, so there are never more threads than brokers. An answer that comes too late is
dropped.

Threads: the caller's; the calls run on others, and may hang longer than their process wants to live.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from store_native.errors import LakeMQError, Unavailable

_Answer = TypeVar("_Answer")


class BrokerAsks:
    """Asks brokers side by side.

    Args:
        answer_s: How long the answers are waited for.
        doubtful_s: How long those are waited for of which no answer is expected.
    """

    def __init__(self, answer_s: float, doubtful_s: float) -> None:
        self._answer_s = answer_s
        self._doubtful_s = doubtful_s
        self._asked: dict[str, Future[Any]] = {}

    def ask(
        self, calls: Mapping[str, Callable[[], _Answer]], doubtful: Collection[str] = ()
    ) -> dict[str, _Answer | LakeMQError]:
        """Returns what each broker said, or why it said nothing.

        Args:
            calls: The question to each, by broker name.
            doubtful: Who is not expected to answer; where others are asked they do not wait for these.
        """
        began = time.monotonic()
        asked = {name: self._begin(name, call) for name, call in calls.items() if not self.is_busy(name)}
        expected = [future for name, future in asked.items() if name not in doubtful]
        wait(expected or asked.values(), self._answer_s)
        wait(asked.values(), max(0.0, began + self._doubtful_s - time.monotonic()))
        return {name: self._said(name, asked.get(name)) for name in calls}

    def is_busy(self, name: str) -> bool:
        """Says whether a question to a broker has not ended yet."""
        return name in self._asked and not self._asked[name].done()

    def no_answer(self, name: str) -> Unavailable:
        """Makes the error of a broker that is busy."""
        what = f"broker {name} did not answer within {self._answer_s:g} s"
        return Unavailable("SERVICE_NOT_AVAILABLE", what, broker_name=name, sent=True)

    def _begin(self, name: str, call: Callable[[], _Answer]) -> Future[_Answer]:
        future: Future[_Answer] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again where the answer is taken
                future.set_exception(error)

        self._asked[name] = future
        threading.Thread(target=run, name=f"lakemq-ask-{name}", daemon=True).start()
        return future

    def _said(self, name: str, future: Future[Any] | None) -> Any:
        if future is None or not future.done():
            return self.no_answer(name)
        try:
            return future.result()
        except LakeMQError as error:
            return error
