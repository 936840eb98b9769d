"""The ledger: what was delivered to whom, in append-only Delta tables, and the views over them.

One module per table; `idempotent` appends, `views` derives state, `query` asks without a JVM.
Importing this package needs neither Spark nor a JVM.
"""

from delta_tables.location import LedgerLocation
from delta_tables.views import register_views

__all__ = ["LedgerLocation", "register_views"]
