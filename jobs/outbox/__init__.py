"""What verdicts send: from the ledger's rows to the brokers.

job.py             the stream over these rows
group_batches.py   the batches of the group job that they are of
message_states.py  which of their messages were sent before, or given up
send_task.py       sends the others on executors
lane_stop.py       why a lane ended before its end
pending.py         those that wait, chosen by SQL
discard.py         gives them up
"""
