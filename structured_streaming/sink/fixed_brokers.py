"""Which brokers a sink sends to.

Owns that the list is fixed for as long as a batch may be repeated: brokers do not know each other's
idempotence keys, so a repeat has to go where the first attempt went.

Invariants: a streaming query has one list for the life of its checkpoint, kept in it or given by the option
``brokers``, also where it is one broker's name: its address may become a name server's; a job with a ``name``
is given one; any other job has the list of its start. Nothing is sent before it is known whether the endpoint
is a broker or a name server.

Processes: the driver, before each batch of a query.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from lakemq.client import Client
from lakemq.client.errors import may_pass
from store_native.durable_files import DISK, FileDisk, replace_file
from store_native.errors import LakeMQError, Unavailable
from structured_streaming.offsets import illegal
from structured_streaming.options import WriteOptions
from structured_streaming.retry_timeout import retry_until

FILE = "lakemq-sink.json"
_ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class _Found:
    """What is behind the endpoint: one broker, or several; ``names`` are those that a sink can send to."""

    several: bool
    names: tuple[str, ...]


def with_brokers(
    chosen: WriteOptions,
    given: Mapping[str, str],
    *,
    streaming: bool,
    has_sent: bool = True,
    disk: FileDisk = DISK,
) -> WriteOptions:
    """Returns the options with the brokers to send to; none are named where a job's endpoint is one broker.

    Args:
        chosen: The sink's options.
        given: As Spark gives them: the checkpoint's place is among them.
        streaming: A query, whose batches may be repeated after a restart.
        has_sent: Batches that its checkpoint has finished may have sent something, though it names no broker.
        disk: Brings the list to the disk.

    Raises:
        LakeMQError: ARGUMENT_ILLEGAL when there is no place to keep the list, the checkpoint does not tell
            where a batch of it went, or nobody knows a broker that is named; Unavailable when the endpoint
            does not answer for as long as retryTimeoutMs says.
    """
    file = _place(given) if streaming else None
    noted = _noted(file)
    wanted = chosen.brokers or noted
    if not wanted or not set(wanted) <= set(noted):
        # Names that are noted have been asked for: one of them that nobody knows now is away.
        found = _ask(chosen)
        wanted = wanted or _all_of(found, chosen, file, streaming=streaming, has_sent=has_sent)
        if not found.several and file is None and not chosen.brokers:
            return chosen
    if file is not None and wanted != noted:
        _note(file, wanted, disk)
    return replace(chosen, brokers=wanted)


def _all_of(
    found: _Found, chosen: WriteOptions, file: Path | None, *, streaming: bool, has_sent: bool
) -> tuple[str, ...]:
    """The brokers of the endpoint, where none are named and rows may be spread over them."""
    if found.several and streaming and file is None:
        raise illegal(
            "where there are several brokers the sink notes them in its checkpoint, and this one's place "
            "is not a directory here: give the option brokers (names with commas between them)"
        )
    if found.several and file is not None and has_sent and _has_batches(file.parent):
        raise illegal(
            f"the checkpoint {file.parent} does not say to which broker its batches went, and one that is "
            "open would be sent again to others: give the option brokers with the name of the broker that "
            f"the query had before; those that are known: {', '.join(found.names)}"
        )
    if found.several and not streaming and chosen.name is not None and not chosen.elsewhere:
        raise illegal("a job with a name sends the same to the same brokers: give the option brokers")
    return found.names


def _ask(chosen: WriteOptions) -> _Found:
    """Asks the endpoint what it is; one that does not answer is waited for."""
    with Client(chosen.endpoint, timeout_s=_ASK_TIMEOUT_S, retries=0, ca_file=chosen.ca_file) as client:
        try:
            return retry_until(lambda: _found(client, chosen), chosen.retry_timeout_ms / 1000)
        except LakeMQError as error:
            if not may_pass(error):
                raise
            what = f"whom to send to is not known: {error.detail}"
            raise Unavailable("SERVICE_NOT_AVAILABLE", what, **error.context) from error


def _found(client: Client, chosen: WriteOptions) -> _Found:
    if not client.is_cluster():
        names = tuple(client.brokers())
        _check_known(chosen.brokers, names)
        return _Found(False, names)
    cluster = client.cluster_routes
    known = tuple(sorted(cluster.brokers()))
    unknown = cluster.routes.unknown()
    if chosen.brokers:
        if not unknown:
            _check_known(chosen.brokers, known)
        enough = set(chosen.brokers) <= set(known)
    else:
        known = known if chosen.topic is None else tuple(sorted(cluster.writable(chosen.topic)))
        enough = bool(known) and (chosen.elsewhere or not unknown)
    if not enough:
        who = ", ".join(unknown) or "any broker that takes messages of the topic"
        raise Unavailable("SERVICE_NOT_AVAILABLE", f"no answer of {who}")
    return _Found(True, known)


def _check_known(named: Sequence[str], known: Sequence[str]) -> None:
    nobody = [name for name in named if name not in known]
    if nobody:
        raise illegal(
            f"the option brokers names {', '.join(nobody)}, which nobody knows; those that are known: "
            f"{', '.join(known)}. A broker that is away for minutes is forgotten: start it first",
            option="brokers",
        )


def _noted(file: Path | None) -> tuple[str, ...]:
    if file is None or not file.exists():
        return ()
    return tuple(sorted(json.loads(file.read_text(encoding="utf-8"))["brokers"]))


def _note(file: Path, names: Sequence[str], disk: FileDisk) -> None:
    replace_file(file, json.dumps({"v": 1, "brokers": list(names)}).encode(), disk)


def _has_batches(checkpoint: Path) -> bool:
    """Whether batches were finished before the brokers were noted: an older version's checkpoint."""
    commits = checkpoint / "commits"
    return commits.is_dir() and any(entry.name.isdigit() for entry in commits.iterdir())


def _place(given: Mapping[str, str]) -> Path | None:
    """The file in the query's checkpoint, where that is a directory of this machine."""
    location = next((v for k, v in given.items() if k.lower() == "checkpointlocation"), None)
    if not location:
        return None
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    return Path(url2pathname(parts.path) if parts.scheme else location) / FILE
