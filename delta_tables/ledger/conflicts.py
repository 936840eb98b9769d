"""Commits that lost to another one, so that the same asked again may go well.

Owns how they are known. Pure.

Invariants: what is no conflict is none here: a full disk or a table that cannot be read is said at once.
"""

from __future__ import annotations

_OF_DELTALAKE = "CommitFailedError"
_OF_THE_JVM = (
    "ConcurrentAppendException",
    "ConcurrentDeleteReadException",
    "ConcurrentWriteException",
    "MetadataChangedException",
    "ProtocolChangedException",
)


def is_lost_commit(error: Exception) -> bool:
    """Says whether another commit came first.

    Delta's conflicts have no classes of their own in Python: the JVM's are named in the text. deltalake has
    one, and need not be there for a ledger in a catalog.
    """
    by_class = any(kind.__name__ == _OF_DELTALAKE for kind in type(error).__mro__)
    return by_class or any(name in str(error) for name in _OF_THE_JVM)
