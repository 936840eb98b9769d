"""What a slave says to who wants something stored or changed: it names its master.

Owns that refusal.
"""

from __future__ import annotations

from collections.abc import Callable

from store_native.errors import Unavailable

CheckMaster = Callable[[], None]
"""Returns where this broker is the master.

Raises:
    Unavailable: NOT_MASTER.
"""


def not_master(what: str, master: str | None) -> Unavailable:
    """Makes the refusal.

    Args:
        what: What a slave does not do.
        master: Where its master's API answers; None or empty: it does not know.
    """
    return Unavailable(
        "NOT_MASTER",
        f"this broker is a slave and {what}; its master is {master or 'not known'}; nothing was stored",
        reason="not_master",
        master=master or None,
    )
