"""A progress bar on stderr, there only when a person looks at it.

Owns the choice of the library (tqdm: small, no dependencies of its own) and nothing else.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from tqdm import tqdm

from lakemq.terminal import guard


class Progress:
    """Counts messages up to a total, or without end when the total is unknown.

    Args:
        what: The text before the bar.
        total: How many there will be; None shows a count and a rate.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._bar = tqdm(
            desc=guard.shown(what),
            file=guard.drawing(),
            total=total,
            unit=" messages",
            disable=not sys.stderr.isatty(),
            leave=False,
            dynamic_ncols=True,
        )

    def add(self, count: int) -> None:
        """Counts ``count`` more."""
        self._bar.update(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
