"""What an operator does with dead letters; a ledger on a path is read and written without a JVM.

choice.py    which dead letters, by SQL and by what was done with them
condition.py what --where may be
replay.py    they are sent to their group again
edited_bodies.py with other bodies, from a file
discard.py   they are put aside, with a reason
export.py    they are written into a file
audit.py     the rows that say who did what with which
"""
