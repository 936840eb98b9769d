"""The OpenAPI document: every operation is in it, and none of them answers 5xx to what it allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http

EXAMPLES = int(os.environ.get("LAKEMQ_SCHEMATHESIS_EXAMPLES", "25"))
NOT_IMPLEMENTED = 501

OPERATIONS = [
    "POST /api/v1/topics/{topic}/messages",
    "GET /api/v1/topics/{topic}/messages",
    "GET /api/v1/topics/{topic}/queues/{queue_id}/messages",
    "GET /api/v1/topics/{topic}/queues",
    "GET /api/v1/topics/{topic}/queues/{queue_id}/offset",
    "GET /api/v1/messages/{message_id}",
    "GET /api/v1/topics",
    "GET /api/v1/topics/{topic}",
    "PUT /api/v1/topics/{topic}",
    "DELETE /api/v1/topics/{topic}",
    "GET /api/v1/groups",
    "GET /api/v1/groups/{group}",
    "PUT /api/v1/groups/{group}",
    "DELETE /api/v1/groups/{group}",
    "GET /api/v1/groups/{group}/offsets",
    "PUT /api/v1/groups/{group}/offsets",
    "POST /api/v1/groups/{group}/offsets/reset",
    "POST /api/v1/groups/{group}/lease",
    "DELETE /api/v1/groups/{group}/lease",
    "GET /api/v1/routes/{topic}",
    "GET /api/v1/cluster",
    "PUT /api/v1/brokers/{name}/{broker_id}",
    "DELETE /api/v1/brokers/{name}/{broker_id}",
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
]


@pytest.fixture(scope="module")
def broker_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Long polls and slow bodies would make a run long without testing more.
    process = BrokerProcess(
        tmp_path_factory.mktemp("openapi"), config="[limits]\nmax_wait_ms = 50\nbody_timeout_s = 5.0\n"
    )
    http = Http(process.endpoint)
    http.post("/topics/orders/messages", {"body": "x", "keys": ["k"]})
    http.put("/groups/billing", {})
    yield process
    process.close()


@pytest.fixture(scope="module")
def document(broker_of_module: BrokerProcess) -> Any:
    return schemathesis.openapi.from_url(f"{broker_of_module.endpoint}/api/v1/openapi.json")


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_never_breaks(document: Any, name: str) -> None:
    """Whatever the document allows, the answer is documented, of the documented form, and no defect."""
    method, _, path = name.partition(" ")

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=document[path][method].as_strategy())
    def never_breaks(case: Any) -> None:
        response = case.call()
        assert response.status_code < 500 or response.status_code == NOT_IMPLEMENTED, response.text
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]
            assert {"code", "detail", "request_id", "retryable"} <= response.json().keys()
        case.validate_response(
            response, checks=[status_code_conformance, content_type_conformance, response_schema_conformance]
        )

    never_breaks()


def test_every_route_and_both_raw_paths_are_documented(broker_of_module: BrokerProcess) -> None:
    paths = Http(broker_of_module.endpoint).get("/openapi.json").json["paths"]
    operations = {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    assert operations == set(OPERATIONS)


def test_the_produce_operation_documents_every_body(broker_of_module: BrokerProcess) -> None:
    paths = Http(broker_of_module.endpoint).get("/openapi.json").json["paths"]
    produce = paths["/api/v1/topics/{topic}/messages"]["post"]
    assert set(produce["requestBody"]["content"]) == {
        "application/json",
        "application/x-ndjson",
        "application/vnd.apache.arrow.stream",
        "application/octet-stream",
    }
    assert "application/problem+json" in produce["responses"]["default"]["content"]


def test_the_documentation_page_is_served(broker_of_module: BrokerProcess) -> None:
    page = Http(broker_of_module.endpoint).get("//docs")
    assert page.status == 200
    assert b"/api/v1/openapi.json" in page.body
