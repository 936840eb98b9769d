"""The master's side of replication.

link.py      one slave's connection
replicas.py  what all slaves have together
catch_up.py  how fast those get the log that are far behind
"""
