"""Consumer groups.

group_service.py  which there are, and their configuration
offsets.py        their committed offsets, and moving a group
leases.py         who may move them
"""
