"""What copies a broker's log to others and tells clients where to find brokers.

Today it holds the name server's tables that every broker carries inside; replication follows.
"""
