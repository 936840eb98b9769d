"""The group job: batches of messages go to a handler, verdicts to the ledger."""
