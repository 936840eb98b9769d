"""A user's handler in a job.

loader.py      found
invocation.py  called on a batch
narrowing.py   the messages that make it fail
reasons.py     what it said of them, made fit for the ledger
"""
