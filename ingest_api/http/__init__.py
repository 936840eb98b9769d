"""The HTTP front door of the broker, and that of a name server.

front_door.py         what the broker's is made of: app.py, and the raw paths beside it
name_server_app.py    a name server's
guarded_app.py        what FastAPI needs behind this package's own server, in both
uvicorn_protocol.py   where a request begins and ends; a fast path for small sends
tls_protocol.py       the same behind a TLS handshake
connection/           what a connection may cost, and the order of its answers
request/              a head, its body, and who waits for the answer
messages/             sends and pulls, as raw ASGI functions
routes/               everything else, one noun a file; schemas.py has what they share
prometheus.py         what /metrics shows
responses/            errors and small answers as bytes
openapi/              the document of all operations, and its page
"""
