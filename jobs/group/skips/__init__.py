"""Messages that an operator gave up: their attempt is made without a call of the handler.

open_skips.py    which of a group's they are now
skipped_rows.py  which rows of a batch these are, and their outcomes
"""
