"""The broker core: sends, pulls, topics and groups over one store, without a protocol.

broker.py          puts it together, starts and stops it
settings.py        its settings, values only
send_service.py    stores what producers send (send_request.py); flush_wait.py holds the answer until it
                   is safe
admission.py       which sends are refused: flow control; mastership.py is what a slave says
pull_service.py    reads slices of queues; pull_hold.py keeps long polls; slave_reads.py says where a
                   reader goes on
lookup_service.py  messages by id and by key, bounds of queues, offsets by time
topics.py          topics; ordered_topics.py what may change of an ordered one, ordered_sends.py what a
                   broker takes of its messages, deleted_lists.py the lists of those that are gone
groups/            consumer groups, their offsets and leases
replication.py     the role: who follows it, whom it follows, its promotion; replication_links.py makes the
                   connections for that, replication_status.py is what it says of it, heard_master.py what it
                   knows of its master, parted_log.py whether its log is that one's; bootstrap.py gives a
                   slave its first store
registration.py    what name servers know of it
housekeeping.py    what it looks at every few seconds
store_events.py    hears from the store that something moved
thread_pools.py    runs what takes longer than the event loop may be held
metrics.py         what is counted; gauges.py what is held at the moment
"""
