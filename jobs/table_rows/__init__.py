"""Rows that verdicts write: from the ledger to users' tables.

job.py             the stream over these rows, one for each table
batch_rows.py      the rows of a batch, and which of them were written before, or given up
noted_table.py     which table a name stands for
write_task.py      makes rows of the table out of those that were kept
waiting_tables.py  the tables that rows of earlier runs wait for
"""
