"""The master's side of replication: one link a slave, and what all slaves together have."""
