"""The slave's side of replication.

link.py            the connection to its master
bootstrap_link.py  the same before the slave has a store
"""
