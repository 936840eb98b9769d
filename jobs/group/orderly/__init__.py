"""Orderly groups: the messages of a lane are handled in the queue's order, one after the other.

lane.py          what a lane is
waiting.py       what the lanes of a group wait for; ledger_lanes.py reads it from the ledger
lane_gate.py     which messages of a task may be handled
lane_tasks.py    which task has which lanes, and in which order it reads them
orderly_group.py the lanes from batch to batch; wake_ups.py asks for a batch, rounds.py for another start
"""
