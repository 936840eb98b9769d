"""A user's own Delta tables, which rows of verdicts are appended to.

value_types.py   which values a column takes, and how they are kept as text; scalar_types.py: single ones
columns.py       the columns of a table, and a row of it
location.py      where a table is, and the append
"""
