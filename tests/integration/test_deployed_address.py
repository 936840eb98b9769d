"""A broker with the arguments of the compose file is reached as that file says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.http import Http

COMPOSE = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "compose.yaml"


def test_advertised_address_is_what_routes_say_and_a_name_to_come_by(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    found = re.search(r"command: (\[.*?\])", COMPOSE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    command, store, _, *arguments = json.loads(found[1])
    assert (command, store) == ("serve", "--store")
    http = Http(start_broker(arguments=tuple(arguments)).endpoint)
    assert http.put("/topics/t", {}).status == 201
    for path in ("/routes/t", "/cluster"):
        answer = http.call("GET", path, headers={"Host": "broker:8090"})
        assert answer.status == 200
        assert b'"http://broker:8090"' in answer.body
    assert http.call("GET", "/routes/t", headers={"Host": "elsewhere:8090"}).status == 403
