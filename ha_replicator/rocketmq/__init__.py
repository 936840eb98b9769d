"""RocketMQ's own replication protocol, for a RocketMQ master or slave beside a LakeMQ broker.

Nobody proves who they are in it: a report is eight bytes. So nothing that a peer says in it confirms a
message; it is for an asynchronous master and its slaves, while one moves from one broker to the other.
"""
