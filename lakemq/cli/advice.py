"""What a person does next about an error, said behind it.

Owns the sentences, and the looks that make them exact: which topics the broker has, which process has the
store.

Invariants: a look takes two seconds at most, changes nothing, and where it fails the error is shown as it is.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from pathlib import Path

from lakemq.client import Client
from store_native.errors import LakeMQError
from store_native.names import is_group_topic

_LOOK_S = 2.0
_MOST_NAMES = 10
_NAMED = re.compile(r"(topic|group)\[(.+?)\]")
_STORE = re.compile(r"(.+) belongs to another process")
_LOCKS = Path("/proc/locks")


def advice(error: LakeMQError, args: argparse.Namespace) -> str:
    """Returns what goes behind an error's text; empty where there is nothing to add.

    Args:
        error: What ended the command.
        args: The command's; its endpoint is asked.
    """
    if error.code in ("TOPIC_NOT_EXIST", "GROUP_NOT_EXIST") and (named := _NAMED.search(error.detail)):
        return _about_name(named[1], named[2], getattr(args, "endpoint", None))
    if error.code == "STORE_LOCKED" and (store := _STORE.fullmatch(error.detail)):
        return _about_lock(Path(store[1]))
    return ""


def _about_name(kind: str, name: str, endpoint: str | None) -> str:
    create = f"lakemq {kind} create {name} makes it"
    try:
        with Client(endpoint, timeout_s=_LOOK_S, retries=0) as client:
            if kind == "topic":
                names = [t.topic for t in client.topics() if not (t.system or is_group_topic(t.topic))]
            else:
                names = [group.group for group in client.groups()]
    except LakeMQError:
        return create
    near = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    listed = ", ".join(names[:_MOST_NAMES]) or f"no {kind} yet"
    more = f" and {len(names) - _MOST_NAMES} more (lakemq {kind} list)" if len(names) > _MOST_NAMES else ""
    return f"{guess}the broker has {listed}{more}; {create}"


def _about_lock(store: Path) -> str:
    holder = holder_of(store / "lock")
    who = f"process {holder} has it: end that first (kill {holder})" if holder else "end that first"
    return f"{who}, or give another directory"


def holder_of(lock: Path, locks: Path = _LOCKS) -> int | None:
    """Returns the process that has locked a file; None where the system does not say.

    Args:
        lock: The locked file.
        locks: The system's table of locks.
    """
    try:
        found = lock.stat()
        lines = locks.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    # 1: FLOCK  ADVISORY  WRITE 1234 fe:00:10002589 0 EOF; a lock without an owner has -1.
    holders = [int(words[4]) for words in map(str.split, lines) if len(words) > 5 and words[5] == place]
    return next((pid for pid in holders if pid > 0), None)
