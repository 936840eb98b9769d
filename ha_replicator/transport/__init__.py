"""Sockets and clocks under the state machines of master/ and slave/.

listener.py      where slaves connect
follower.py      keeps a slave connected to its master
bootstrapper.py  makes a slave's store from its master's
peer.py          one connection's socket
wakeups.py       who waits for the log to move
"""
