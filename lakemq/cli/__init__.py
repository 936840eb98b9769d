"""The ``lakemq`` command: start.py begins, app.py picks the noun, a module of ``commands/`` does the work.

Nothing is imported here, so that ``lakemq topic list`` does not pay for Spark or the web framework.
"""
