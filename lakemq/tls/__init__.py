"""TLS as every LakeMQ process speaks it: 1.2 at least, and a peer's certificate always checked.

files.py              a certificate and its key, for who is connected to
trust.py              whose certificates are believed, for who connects
server_connection.py  one connection of who is connected to; server_transport.py is what it writes to
"""
