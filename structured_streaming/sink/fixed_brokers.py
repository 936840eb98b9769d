"""Which brokers a sink sends to, where there are several.

Owns that the list is fixed for as long as a batch may be repeated: brokers do not know each other's
idempotence keys, so a repeat has to go where the first attempt went.

Invariants: a streaming query has one list for the life of its checkpoint, kept in it or given by the option
``brokers``; a job with a ``name`` is given one; any other job has the list of its start.

Processes: the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lakemq.client import Client
from store_native.errors import LakeMQError, Unavailable
from structured_streaming.offsets import illegal
from structured_streaming.options import WriteOptions

FILE = "lakemq-sink.json"
_ASK_TIMEOUT_S = 10.0


def with_brokers(chosen: WriteOptions, given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Returns the options with the brokers to send to; none are named where the endpoint is one broker.

    Args:
        chosen: The sink's options.
        given: As Spark gives them: the checkpoint's place is among them.
        streaming: A query, whose batches may be repeated after a restart.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL when there is no place to keep the list; Unavailable when several
            addresses are given and none answers.
    """
    if chosen.brokers:
        return chosen
    file = _place(given) if streaming else None
    if file is not None and file.exists():
        return replace(chosen, brokers=tuple(json.loads(file.read_text(encoding="utf-8"))["brokers"]))
    with Client(chosen.endpoint, timeout_s=_ASK_TIMEOUT_S, retries=0) as client:
        try:
            if not client.is_cluster():
                return chosen
        except LakeMQError:
            return chosen  # one address: what is wrong with it the tasks say, who also wait
        if streaming and file is None:
            raise illegal(
                "where there are several brokers the sink notes them in its checkpoint, and this one's place "
                "is not a directory here: give the option brokers (names with commas between them)"
            )
        if not streaming and chosen.name is not None and not chosen.elsewhere:
            raise illegal("a job with a name sends the same to the same brokers: give the option brokers")
        names = _known(client, chosen)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps({"v": 1, "brokers": names}), encoding="utf-8")
        draft.replace(file)
    return replace(chosen, brokers=names)


def _known(client: Client, chosen: WriteOptions) -> tuple[str, ...]:
    """The brokers that take messages of the topic, by name; of rows that name theirs, all."""
    cluster = client.cluster_routes
    names = tuple(sorted(cluster.brokers() if chosen.topic is None else cluster.writable(chosen.topic)))
    unknown = [] if chosen.elsewhere and names else cluster.routes.unknown
    if unknown or not names:
        who = ", ".join(unknown) or "no broker"
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"{who} does not answer: whom to send to is not known")
    return names


def _place(given: Mapping[str, str]) -> Path | None:
    """The file in the query's checkpoint, where that is a directory of this machine."""
    location = next((v for k, v in given.items() if k.lower() == "checkpointlocation"), None)
    if not location:
        return None
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    return Path(url2pathname(parts.path) if parts.scheme else location) / FILE
