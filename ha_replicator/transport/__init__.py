"""Sockets and clocks under the state machines of master/ and slave/.

listener.py      where slaves connect
follower.py      keeps a slave connected to its master
bootstrapper.py  makes a slave's store from its master's
peer.py          one connection's socket
tls_opening.py   a slave's connection while it shakes hands
log_memory.py    what of the log lies in memory, for a slave far behind
wakeups.py       who waits for the log to move
"""
