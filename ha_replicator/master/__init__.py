"""The master's side of replication.

link.py      one slave's connection
replicas.py  what all slaves have together
"""
