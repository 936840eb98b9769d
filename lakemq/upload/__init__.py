"""Sending many messages from files and streams: ndjson.py reads and cuts them, bulk.py posts them."""
