"""What copies a broker's log to others and tells clients where to find brokers.

`wire/` has the frames, `master/` and `slave/` the state machines of both sides, `transport/` the sockets
under them; `nameserver/` has the name server's tables.
"""
