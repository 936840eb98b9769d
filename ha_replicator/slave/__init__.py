"""The slave's side of replication.

handshake.py       how its connection to a master begins
link.py            the connection to the master it follows
bootstrap_link.py  the same before the slave has a store
"""
