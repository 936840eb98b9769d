"""The slave's side of replication."""
