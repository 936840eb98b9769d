"""The ``lakemq`` command: start.py begins, app.py picks the noun, a module of ``commands/`` does the work.

    verbs.py            the verbs of a noun; subparsers.py is argparse's type for them
    parser.py           how wrong usage is said
    options.py          options that several commands share; setting_options.py makes them of settings
    advice.py           what a person does next about an error
    stdin_end.py        a broker that stops with the process that started it
    ledger_options.py   the ledger of an operator's command: on a path, or in a catalog
    spark_options.py    the Spark that a command runs in: this machine, or a cluster
    spark_log.py        its log in a file
    consume_progress.py how a group goes, and what it came to
    topic_order.py      the list of brokers of an ordered topic
    group_skip.py       a message that an operator gives up for a group
    group_reset.py      committed offsets that are moved, and groups that are not
    group_status.py     how a group fares now
    group_clone.py      a group that begins where another one stands
    consumer_lag.py     how far it is behind, queue by queue
    unconsumed.py       what groups have to consume of a topic
    missing_brokers.py  brokers that only the list of an ordered topic names
    cluster_members.py  what masters and slaves of several names say of themselves
    master_changes.py   which master of a local cluster is another one now
    dead_letter_cards.py  what is seen of dead letters
    task.py             the command as a task of a cluster
    __main__.py         ``python -m lakemq.cli``

Nothing is imported here, so that ``lakemq topic list`` does not pay for Spark or the web framework.
"""
