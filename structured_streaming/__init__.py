"""LakeMQ as a Spark data source: ``format("lakemq")`` for reading and writing, batch and stream.

    datasource.py       what Spark finds
    spark_versions.py   what Spark 4.0 to 4.2 have and lack
    option_names.py     every option's name
    options.py          what they mean, checked once
    subscription.py     which queues
    starting_offsets.py where a read starts and ends
    offsets.py          positions, the checkpoint's JSON
    topic_metadata.py   the topics and queues there are, at one moment
    batch_plan.py       the range of a batch, written down before Spark's
    read_limit.py       how much goes into a batch
    data_loss.py        what is gone, in words
    partitions.py       which task reads what
    stream_reader.py    driver, stream
    batch_reader.py     driver, batch
    slice_reader.py     executors
    readers/            mapped files or HTTP
    patience.py         how long a broker that is away is waited for
    columns.py          the schemas
    query_lease.py      one query per group
    group_progress.py   how far a group is
    stream_writer.py    the sink of a stream
    batch_writer.py     the sink of a batch
    sink_columns.py     what a row to send may have
    chunks.py           rows into requests
    sender.py           a request until it is stored

Imports lakemq.client and store_native; nothing of the broker.
"""
