"""What copies a broker's log to others and tells clients where to find brokers.

identity.py        who a broker is to the others of its name
log.py             the log as replication sees it; log_age.py how old what a slave lacks is, throughput.py how
                   fast a slave takes it
links.py           what transport/ asks of a connection's state machine, whatever protocol it speaks
link_opening.py    what a broker begins a connection with; link_limits.py has its bounds
link_place.py      where a slave connects
wire/              the frames
master/, slave/    the state machines of both sides, without sockets and clocks
rocketmq/          the same two in RocketMQ's own protocol
transport/         the sockets under them
nameserver/        a name server's tables, and how a broker registers there
master_address.py  finding a master; living_master.py one that a promotion is not made beside
http_question.py   asks another broker or a name server
"""
