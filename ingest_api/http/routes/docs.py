"""/docs: the OpenAPI document as a page.

Owns the page's headers: it loads nothing, and runs no script.
"""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from ingest_api.broker.broker import Broker
from ingest_api.http.openapi.page import render

_HEADERS = {
    # The page is text and a style sheet of its own; whatever else a browser would load or run is refused.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}


def router(broker: Broker) -> APIRouter:
    """Builds the route."""
    routes = APIRouter(include_in_schema=False)
    pages: list[bytes] = []

    @routes.get("/docs")
    async def docs(request: Request) -> Response:
        """Shows every operation; rendered at the first call."""
        if not pages:
            app = request.app
            assert isinstance(app, FastAPI)
            pages.append(render(app.openapi(), str(app.openapi_url)))
        return Response(pages[0], media_type="text/html", headers=_HEADERS)

    return routes
