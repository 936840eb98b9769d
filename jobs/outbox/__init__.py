"""What verdicts send: from the ledger's rows to the brokers.

job.py        the stream over these rows
send_task.py  sends them on executors
"""
