"""Delivery: consumer groups, retries, dead letters and the archive as Spark streaming jobs.

    consume.py       a group's application, put together; settings.py what it is given
    archive.py       topics into a table; archive_start.py is where that begins
    reactions.py     what failed goes back to the broker: retry.py, dead_letter.py
    outbox/          what verdicts send; table_rows/ what they write to users' tables
    dlq/             what an operator does with dead letters; operator.py who he is
    skip/            what he does with a message that its group does not get done with
    group/           the group job: batches of messages, outcomes, the ledger
    frames/          a user's function of DataFrames, applied to them; spark_group.py runs one in a program
    handler/         a user's handler: found, called, narrowed down where it fails
    redelivery/      what a message that comes back carries, and when it comes
    tracing/         spans of batches and calls, for OpenTelemetry
    lineage/         what jobs read and write, for OpenLineage
    runtime/         what every job runs on: its stream's start and end, its checkpoint, its lease
    arguments.py     the command line of the jobs, handler_arguments.py its part of the handler;
                     entry_points.py is for a cluster's tasks
    resources/       the cluster's jobs

Users write handlers with `lakemq.handler`.
"""
