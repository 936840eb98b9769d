"""How many examples a property is tried with.

Owns the share that `make test-fast` takes of them (``LAKEMQ_TEST_FAST``): a fifth for every save, and all
before a change lands.
"""

from __future__ import annotations

import os

_SHARE = 5


def examples(number: int) -> int:
    """Returns how many of ``number`` examples this run tries."""
    return max(1, number // _SHARE) if os.environ.get("LAKEMQ_TEST_FAST") else number
