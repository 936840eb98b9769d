"""RocketMQ's own replication protocol, for a RocketMQ master or slave beside a LakeMQ broker.

    frames.py       what the two say to each other
    master_link.py  a RocketMQ slave's connection to a LakeMQ master
    slave_link.py   a LakeMQ slave's connection to a RocketMQ master
    raw_log.py      the log as both see it: bytes without borders of requests

Nobody proves who they are in it: a report is eight bytes. So nothing that a peer says in it confirms a
message; it is for an asynchronous master and its slaves, while one moves from one broker to the other.
"""
