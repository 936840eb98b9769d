"""Sending many messages from files and streams.

ndjson.py reads and cuts them (named_fields.py: the fields that become keys), bulk.py posts them.
"""
