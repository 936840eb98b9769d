"""Delivery: consumer groups, retries, dead letters and the archive as Spark streaming jobs.

`consume` is the entry; handlers are written with `lakemq.handler`.
"""
