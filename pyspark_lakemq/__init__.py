"""Lets Spark find ``format("lakemq")`` by itself: it imports modules named ``pyspark_*``."""

from structured_streaming.datasource import LakeMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
