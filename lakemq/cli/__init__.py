"""The ``lakemq`` command: start.py begins, app.py picks the noun, one module per noun does the work.

Nothing is imported here, so that ``lakemq topic list`` does not pay for Spark or the web framework.
"""
