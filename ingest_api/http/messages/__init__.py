"""The two paths of messages, past the web framework: sends and pulls.

targets.py           where both are addressed
send.py              the send; headers.py reads its headers, content_encoding.py undoes Content-Encoding
pull.py              the pull; pull_query.py reads what it asks for
"""
