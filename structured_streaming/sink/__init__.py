"""The sink: rows become messages, each once however often a batch is written.

columns.py        the columns it takes
batch_writer.py   ``write``; stream_writer.py ``writeStream``
fixed_brokers.py  whom it sends to, where there are several brokers
chunks.py         rows become requests; sender.py sends each until the broker has it
refusal.py        what a broker refuses is a task's result, and fails the commit
"""
