"""The ledger: what was delivered to whom, in append-only Delta tables, and the views over them.

One module per table; `idempotent` appends, `views` derives state, `ledger_reader` queries without a JVM,
`ledger` is where the tables are: a directory or a catalog's schema, which `ledger_at` finds by what a user
wrote. Importing this package needs neither Spark nor a JVM.
"""

from delta_tables.ledger import ledger_at
from delta_tables.views import register_views

__all__ = ["ledger_at", "register_views"]
