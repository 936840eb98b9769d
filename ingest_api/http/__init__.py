"""The HTTP front door of the broker.

``app.py`` and ``uvicorn_protocol.py`` lead requests to its parts:

- ``connection/``: what a connection may cost, and the order of its answers.
- ``request/``: a head, its body, and who waits for the answer.
- ``messages/``: sends and pulls, as raw ASGI functions.
- ``routes/``: everything else, one noun a file; ``schemas.py`` has what they share.
- ``responses/``: errors and small answers as bytes.
- ``openapi/``: the document of all operations, and its page.
"""
