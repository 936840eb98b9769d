"""LakeMQ as a Spark data source: ``format("lakemq")`` for reading and writing, batch and stream.

    datasource.py      what Spark finds
    options.py         every option, checked once        subscription.py  which queues
    starting_offsets.py        where a read starts and ends      columns.py       the schemas
    offsets.py         positions, the checkpoint's JSON  read_limit.py     how much goes into a batch
    data_loss.py       what is gone, in words            partitions.py    which task reads what
    stream_reader.py   driver, stream                    batch_reader.py  driver, batch
    slice_reader.py    executors                         readers/         mapped files or HTTP
    group_lease.py     one query per group               group_progress.py  how far a group is
    stream_writer.py   batch_writer.py                   the sinks
    chunks.py          rows into requests                sender.py        a request until it is stored

Imports lakemq.client and store_native; nothing of the broker.
"""
