"""A progress bar on stderr, there only when a person looks at it; elsewhere a line now and then, or nothing.

Owns the choice of the library (tqdm: small, no dependencies of its own) and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

from tqdm import tqdm

from lakemq.terminal import guard


class Progress:
    """Counts messages up to a total, or without end when the total is unknown.

    Args:
        what: The text before the bar.
        total: How many there will be; None shows a count and a rate.
        plain: Gets a line at each quarter of the total where there is no bar; None says nothing then.
    """

    def __init__(
        self, what: str, total: int | None = None, *, plain: Callable[[str], None] | None = None
    ) -> None:
        self._what = what
        self._total = total
        self._seen = 0
        looked_at = sys.stderr.isatty()
        self._plain = None if looked_at else plain
        self._bar = self._drawn() if looked_at else None

    def add(self, count: int) -> None:
        """Counts ``count`` more."""
        if self._bar is not None:
            self._bar.update(count)
        before, self._seen = self._seen, self._seen + count
        if self._plain is not None and self._total and self._quarter(self._seen) > self._quarter(before):
            self._plain(f"  {self._seen:,} of {self._total:,} messages {self._what}")

    def _quarter(self, count: int) -> int:
        return 4 * count // (self._total or 1)

    def _drawn(self) -> tqdm[NoReturn]:
        return tqdm(
            desc=guard.shown(self._what),
            file=guard.drawing(),
            total=self._total,
            unit=" messages",
            leave=False,
            dynamic_ncols=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
