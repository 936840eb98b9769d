"""What goes over the replication connection: frames, the handshake's messages, credentials."""
