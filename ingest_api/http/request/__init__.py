"""One request as it comes in.

guard.py  its head: whether it is taken at all
body.py   its body, within size, time and memory
cycle.py  its end: the answer, or a client that is gone
"""
