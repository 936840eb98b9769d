"""Which methods a path takes, over all doors.

Owns the answer to OPTIONS and the Allow header of 405.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

# The raw doors, which no router knows; app.py leads to them.
_RAW = (
    (re.compile(r"/api/v1/topics/[^/]+/messages"), "POST"),
    (re.compile(r"/api/v1/topics/[^/]+/queues/[^/]+/messages"), "GET"),
)
_ALL = frozenset({"GET", "POST", "PUT", "DELETE"})
_ORDER = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


def allowed_methods(routes: Sequence[BaseRoute], scope: Scope) -> str:
    """Returns the value of Allow: ``GET, HEAD, OPTIONS``; empty for a path that nobody serves."""
    path = scope["path"]
    if path == "*":
        found = set(_ALL)
    else:
        found = {method for form, method in _RAW if form.fullmatch(path)}
        for method in _ALL - found:
            asked = {**scope, "method": method}
            if any(route.matches(asked)[0] is Match.FULL for route in routes):
                found.add(method)
    if "GET" in found:
        found.add("HEAD")
    if found:
        found.add("OPTIONS")
    return ", ".join(method for method in _ORDER if method in found)
