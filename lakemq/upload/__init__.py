"""Sending many messages from files and streams."""
