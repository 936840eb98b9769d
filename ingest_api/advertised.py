"""Where others reach a broker: what routes, the cluster's page and registrations say of it.

Owns the choice: the setting, else the address it listens on, else (that is a wildcard, which nobody can
connect to) an address of this machine.

Invariants: nothing goes over the network to find it.
"""

from __future__ import annotations

import re
import socket
from ipaddress import IPv6Address, ip_address

_PLACE = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.-]{1,253}))(?::(?P<port>[0-9]{1,5}))?"
)
_FAR_AWAY = ("192.0.2.1", 9)
"""An address of no machine (TEST-NET-1): connecting a datagram socket to it sends nothing."""


def parsed(place: str) -> tuple[str, int | None]:
    """Reads ``host`` or ``host:port``; an IPv6 address is in brackets where a port follows.

    Raises:
        ValueError: It is neither, or an address that nobody can connect to.
    """
    try:
        host, port = str(IPv6Address(place)), None
    except ValueError:
        found = _PLACE.fullmatch(place)
        if found is None:
            raise ValueError(f"{place!r} is no host and no host:port") from None
        host = found["host"] or str(IPv6Address(found["six"]))
        port = None if found["port"] is None else int(found["port"])
    if port is not None and not 1 <= port <= 65_535:
        raise ValueError(f"{place!r}: ports lie between 1 and 65535")
    if _is_wildcard(host):
        raise ValueError(f"{place!r} is a wildcard: others connect to a name or an address")
    return host, port


def advertised_url(setting: str, host: str, port: int, scheme: str = "http") -> str:
    """Returns the URL under which others reach a broker.

    Args:
        setting: ``http.advertised_address``; empty is the default.
        host: The address it listens on.
        port: The port it listens on.
        scheme: ``https`` where it speaks TLS.
    """
    name, given = parsed(setting) if setting else (_own_address() if _is_wildcard(host) else host, None)
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{given or port}"


def _own_address() -> str:
    """The IPv4 address this machine would reach others from; its name where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)
            address = str(probe.getsockname()[0])
        except OSError:
            address = ""
    return address if address and not _is_wildcard(address) else socket.gethostname()


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
