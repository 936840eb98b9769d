"""Sockets and clocks under the state machines of master/ and slave/."""
