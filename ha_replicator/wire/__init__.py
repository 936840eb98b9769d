"""What goes over the replication connection.

handshake.py    how two brokers get to know each other
credentials.py  whether the other side belongs to the cluster
frames.py       what they say about the log
"""
