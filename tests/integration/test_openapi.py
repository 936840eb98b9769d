"""The OpenAPI document: every operation is in it, and none of them answers 5xx to what it allows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ingest_api.http.openapi.examples import REQUESTS
from ingest_api.http.openapi.page import render
from ingest_api.http.openapi.problems import CODES, codes_of
from ingest_api.http.responses.problems import STATUS
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
    "POST /api/v1/groups/{group}/offsets/offer",
    "PUT /api/v1/groups/{group}/batches/{batch}",
    "POST /api/v1/groups/{group}/offsets/reset",
    "POST /api/v1/groups/{group}/lease",
    "DELETE /api/v1/groups/{group}/lease",
    "GET /api/v1/routes/{topic}",
    "GET /api/v1/replication",
    "POST /api/v1/replication/promote",
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


def operations_of(document: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def test_operation_ids_stay(broker_of_module: BrokerProcess) -> None:
    """Generated clients have methods of these names."""
    found = Http(broker_of_module.endpoint).get("/openapi.json").json
    ids = [operation["operationId"] for _, _, operation in operations_of(found)]
    assert sorted(ids) == sorted(CODES)
    assert len(ids) == len(set(ids)) == len(OPERATIONS)


def test_the_document_names_licence_and_server_and_describes_its_tags(
    broker_of_module: BrokerProcess,
) -> None:
    found = Http(broker_of_module.endpoint).get("/openapi.json").json
    assert found["info"]["license"]["identifier"] == "Apache-2.0"
    assert [server["url"] for server in found["servers"]] == ["/"]
    used = {operation["tags"][0] for _, _, operation in operations_of(found)}
    assert used == {tag["name"] for tag in found["tags"]}


def test_one_problem_schema_lists_the_codes_of_each_operation(broker_of_module: BrokerProcess) -> None:
    found = Http(broker_of_module.endpoint).get("/openapi.json").json
    listed: set[str] = set()
    for _, _, operation in operations_of(found):
        problem = operation["responses"]["default"]["content"]["application/problem+json"]["schema"]
        shared, own = problem["allOf"]
        assert shared == {"$ref": "#/components/schemas/Problem"}
        codes = own["properties"]["code"]["enum"]
        assert {"ARGUMENT_ILLEGAL", "SYSTEM_ERROR"} <= set(codes)
        listed |= set(codes)
    assert set(STATUS) <= listed
    assert "LEASE_CONFLICT" not in codes_of("send_messages")


def test_the_examples_work(start_broker: Callable[..., BrokerProcess]) -> None:
    """Every request's example is taken, in the table's order, and each answer has the members it shows."""
    http = Http(start_broker().endpoint)
    found = http.get("/openapi.json").json
    by_id = {o["operationId"]: (method, path, o) for method, path, o in operations_of(found)}

    def call(name: str, media: str | None = None, value: Any = None) -> None:
        method, path, operation = by_id[name]
        query = {}
        for parameter in operation.get("parameters", []):
            if "example" in parameter and parameter["in"] == "path":
                path = path.replace("{" + parameter["name"] + "}", str(parameter["example"]))
            elif "example" in parameter:
                query[parameter["name"]] = parameter["example"]
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode() if media else None
        answer = http.call(method, "/" + path, body, {"Content-Type": media} if media else {}, **query)
        assert answer.status in (200, 201, 204), (name, answer.body)
        shown = operation["responses"].get(str(answer.status), {}).get("content", {})
        for example in shown.get("application/json", {}).get("examples", {}).values():
            if media in (None, "application/json"):
                assert_same_form(answer.json, example["value"], name)

    for name in REQUESTS:
        for media, entry in by_id[name][2]["requestBody"]["content"].items():
            for example in entry.get("examples", {}).values():
                call(name, media, example["value"])
        http.settle()
    reads = {"get_message"}  # its example's id is made up
    for name, (method, _, _) in by_id.items():
        if method == "GET" and name not in reads:
            call(name)
    assert {name for name, (_, _, o) in by_id.items() if "requestBody" in o} == set(REQUESTS)


def assert_same_form(answer: Any, example: Any, name: str) -> None:
    """Compares members and types, not values; free maps (attributes, recovery) are left out."""
    assert example is None or answer is None or type(answer) is type(example), (name, answer, example)
    if isinstance(answer, dict) and not {"clean", "team"} & example.keys():
        if answer and example:
            assert answer.keys() == example.keys(), name
        for member in answer.keys() & example.keys():
            assert_same_form(answer[member], example[member], f"{name}.{member}")
    elif isinstance(answer, list) and answer and example:
        assert_same_form(answer[0], example[0], name)


def test_the_documentation_page_holds_everything_and_loads_nothing(broker_of_module: BrokerProcess) -> None:
    http = Http(broker_of_module.endpoint)
    page = http.get("//docs")
    text = page.body.decode()
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    found = http.get("/openapi.json").json
    for _, path, operation in operations_of(found):
        assert f"id='{operation['operationId']}'" in text
        assert path in text
    for name in found["components"]["schemas"]:
        assert f"id='schema-{name}'" in text
    assert not re.findall(r"<(?:script|link|img|iframe|object)|src=|@import|url\(", text)
    assert set(re.findall(r"href='([^'#][^']*)'", text)) == {"/api/v1/openapi.json"}


def test_the_page_shows_whatever_the_document_says_as_text() -> None:
    operation = {
        "operationId": "<xmp>",
        "summary": "<script>alert(1)</script>",
        "parameters": [{"name": "<xmp>", "in": "query", "schema": {"enum": ["</code><script>"]}}],
        "responses": {"200": {"description": "<img src=x>"}},
    }
    document = {"info": {"title": "<xmp>", "version": "1"}, "paths": {"/<xmp>": {"get": operation}}}
    page = render(document, "/openapi.json").decode()
    assert not re.findall(r"<(?:script|img|xmp)", page)
    assert "&lt;script&gt;" in page
