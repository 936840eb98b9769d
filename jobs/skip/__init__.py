"""What an operator does with a message that its group does not get done with; without a JVM.

message_state.py  how far the group is with it, from the ledger
unhandled.py      one that the group has not come to, from its broker
skip.py           it is given up
"""
