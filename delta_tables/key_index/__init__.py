"""The index of deliveries by key, of a ledger on a path.

    message_keys.py   the table: entries sorted by key, and which files of `deliveries` they are of
    indexed_files.py  which entries hold: those of files that `deliveries` has now
    generations.py    writes the table; maintenance calls it
    look_up.py        the view `deliveries_by_key` of the engine without a JVM

An entry says which file its row is in. Files are never changed, so an entry holds as long as its file is one
of the table's, and what is in no indexed file is read where it is: the answer is exact whatever became of
`deliveries` since the index was written.
"""
