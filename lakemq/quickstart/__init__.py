"""The quick start: the whole path once, on this machine, on real data, with every number asked for.

flights.py      where the flights come from, and each row as a message
home.py         its directory, and emptying it for the next run
broker.py       its broker: what it is configured with, and its start
consumer.py     ``lakemq consume`` as a process of its own
handlers.py     what group `arrivals` does with a flight (runs in Spark's workers)
sql_queries.py  the SQL that queries the ledger
report.py       the numbers, what must hold between them, report.json
summary.py      the result in words
run.py          the order of it all, and what is printed
"""
