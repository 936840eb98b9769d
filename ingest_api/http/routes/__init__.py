"""The administrative API, one module a noun; each has ``router(broker)``, or takes the tables it shows.

topics.py, queues.py, messages.py            what is stored
groups.py, group_offsets.py, group_leases.py who consumes it
group_batches.py                             what a group's job says of its batches
topic_routes.py, brokers.py, name_server.py  who holds what; also in a name server without a broker
cluster.py, replication.py                   this broker among the others
health.py, metrics.py                        for orchestrators and monitoring
docs.py                                      the document of all of them, as a page
"""
