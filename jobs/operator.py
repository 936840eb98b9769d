"""Who runs a command, as audit rows have it.

Owns that name.
"""

from __future__ import annotations

import getpass
import os
import socket


def operator_name() -> str:
    """User and host; a user may have no name, as in a container."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
