"""Whose a checkpoint is.

Owns the note of the group beside its streams' checkpoints, and the refusal of another group's.

Invariants: once a group's stream has begun in a checkpoint no other group goes on from it: it would pass over
what the first one has handled, and the first one over what the second has.
"""

from __future__ import annotations

import json

from jobs.runtime.checkpoint import NO_BATCH, StreamCheckpoint
from jobs.settings import ConsumeSettings
from store_native.durable_files import DISK, FileDisk, make_directory, replace_file
from store_native.errors import DataCorrupt, from_code
from store_native.names import is_retry_topic, retry_topic

FILE = "lakemq-group.json"


def refuse_anothers(settings: ConsumeSettings) -> None:
    """Looks whether the checkpoint is another group's.

    Raises:
        InvalidRequest: ARGUMENT_ILLEGAL, it is.
        DataCorrupt: The note is not readable.
    """
    stream = StreamCheckpoint(settings.checkpoint_of("group"))
    if stream.last_planned() == NO_BATCH:
        return
    owner = _noted(settings)
    reached = stream.reached() or stream.planned_end()
    if owner is None and reached is not None:  # of a release that noted none
        own = retry_topic(settings.group)
        retries = {queue.topic for queue in reached.queues if is_retry_topic(queue.topic)} - {own}
        owner = min((topic.removeprefix(retry_topic("")) for topic in retries), default=None)
    if owner is not None and owner != settings.group:
        raise from_code(
            "ARGUMENT_ILLEGAL",
            f"--checkpoint: {stream.directory.parent} is group {owner}'s, and {settings.group} would go on "
            "where that one is: give each group one of its own",
        )


def note(settings: ConsumeSettings, disk: FileDisk = DISK) -> None:
    """Notes whose the checkpoint is, before a stream begins in it."""
    directory = settings.checkpoint_of("group").parent
    if _noted(settings) != settings.group:
        make_directory(directory, disk)
        replace_file(directory / FILE, json.dumps({"group": settings.group}).encode(), disk)


def _noted(settings: ConsumeSettings) -> str | None:
    file = settings.checkpoint_of("group").parent / FILE
    try:
        return str(json.loads(file.read_bytes())["group"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorrupt("DATA_CORRUPT", f"{file} does not say whose the checkpoint is") from error
