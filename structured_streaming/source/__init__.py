"""The source: `readStream` and `read` of a topic; consume queues are its partitions.

stream_reader.py   the driver's side of `readStream`; query_run.py is what it knows during one run
cluster_run.py     the same over several brokers; broker_asks.py asks them at the same time
batch_reader.py    `read`
batch_plan.py      begin and end of a batch, for a job that runs it by itself
batch_bound.py     how many messages such a job wants in the next one
read_limit.py      how much goes into one batch
partitions.py      which task reads what; slice_reader.py is one task's work
group_progress.py  commits a group's offsets; query_lease.py is who may
data_loss.py       what can no longer be read
"""
