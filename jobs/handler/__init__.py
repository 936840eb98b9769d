"""A user's handler in a job.

loader.py            found
opened_handler.py    made and opened in the process that calls it; handler_loop.py: where coroutines run
invocation.py        called on a batch: how often at a time, how long, where
row_calls.py         one message after the other, several at a time; call_order.py: which follow which;
                     deadline.py: when no more is begun
batch_calls.py       whole batches; narrowing.py finds the messages that make it fail
long_call.py         one that its task does not wait for: usual_time.py says what is long
watchdog.py          a call that does not return ends its worker; slow_calls.py names it before
isolated_handler.py  in a process that may hang and die; handler_process.py is that process
verdicts.py          what it said of a message; batch_verdicts.py of a whole batch
outgoing.py          the messages that a verdict sends; table_rows.py: the rows that it writes
results.py           the verdicts as columns
reasons.py           what it said of them, made fit for the ledger
"""
