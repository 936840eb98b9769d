"""What every job runs on.

started_stream.py  its stream's start; stream_failure.py is why one ended
run_loop.py        its streams until they stop; idle.py knows that nothing is left to do,
                   available.py what a run that ends by itself had to do,
                   spark_end.py whether Spark was ended beside it
batch_gate.py      where it can stop; hold_up.py says why what is sent has to wait
checkpoint.py      its checkpoint; query_start.py is where its query begins;
                   checkpoint_owner.py refuses that of another group
group_brokers.py   the brokers of a group: one, or all of a cluster
job_lease.py       its lease; lease_owner.py is who holds it
"""
