"""Messages that come back.

retry_policy.py       when, and when no more; backoff.py draws delays that grow
counted_attempts.py   which attempts count
original_position.py  where a message was at first
row_messages.py       rows of `deliveries` as messages; retried_messages.py: those that come back
wake_up.py            a message that makes a batch, and is no message
property_limit.py     whether a message's properties leave space for those that are added
"""
