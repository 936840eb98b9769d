"""LakeMQ as a Spark data source: ``format("lakemq")`` for reading and writing, batch and stream.

    datasource.py       what Spark finds
    spark_versions.py   what Spark 4.0 to 4.2 have and lack
    option_names.py     every option's name
    options.py          what they mean, checked once
    subscription.py     which queues
    starting_offsets.py where a read starts and ends
    offsets.py          positions, the checkpoint's JSON
    cluster_offsets.py  the same of several brokers
    topic_metadata.py   the topics and queues there are, at one moment
    columns.py          the schemas
    retry_timeout.py    how long a broker that is away is waited for
    source/             reads: planning on the driver, slices on the executors
    sink/               writes: rows into requests, each stored once
    readers/            mapped files or HTTP

Imports lakemq.client and store_native; nothing of the broker.
"""
