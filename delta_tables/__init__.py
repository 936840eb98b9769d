"""The ledger: what was delivered to whom, in append-only Delta tables, and the views over them.

    table.py              what a table is; one module each:
                          deliveries.py, dead_letters.py, consumer_offsets.py, data_losses.py, messages.py,
                          replays.py, sent_messages.py, refused_sends.py, discarded_sends.py,
                          skipped_messages.py, truncated_ranges.py, written_rows.py
    check.py              what holds for each row of one
    task_rows.py          rows that Spark's tasks make, before they are made
    user_tables/          users' own tables, which rows of verdicts are appended to
    ledger/               where the tables are: a directory or a catalog's schema, which `ledger_at` finds
                          by what a user wrote
    idempotent.py         appends once; known_keys.py is what a table has already of a batch
    views.py              derives state
    key_index/            deliveries by key, sorted by maintenance, on a path
    ledger_query.py       queries with the engine that is nearer
    opened_ledger.py      a ledger for an operator: queried by ledger_reader.py without a JVM, or by
                          spark_reader.py; read_statement.py says what both take, query_errors.py what is
                          wrong with a statement, engine_text.py its errors in one line, sql_literal.py
                          writes texts
    group_status.py       how a group fares now; known_groups.py: which groups there are;
                          handled_behind.py: what a group has handled from a position on
    maintenance.py        compaction, clean-up, retention; kept_rows.py: what stays however old it is;
                          retained_from.py: from where on nothing of a queue was deleted

Importing this package needs neither Spark nor a JVM.
"""

from delta_tables.ledger import ledger_at
from delta_tables.views import register_views

__all__ = ["ledger_at", "register_views"]
