"""Consumer groups.

group_service.py  which there are, and their configuration
offsets.py        their committed offsets, and moving a group
offsets_aside.py, offsets_handover.py  those committed at a slave while its master is away
leases.py         who may move them
handled_batches.py  what their jobs say of their batches
"""
