"""A group in runs that end by themselves, in the test's process.

Owns what the settings of such a group are where a test does not say otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from delta_tables.ledger import ledger_at
from jobs.handler.loader import HandlerTarget
from jobs.settings import ConsumeSettings


def available_now(group: str, handler: str, home: Path, **more: Any) -> ConsumeSettings:
    """Settings of a group that handles what is there, from the oldest message on; its ledger is in `home`.

    Args:
        group: The group; the topic it reads has the same name.
        handler: `module:function`, of a module in `home`.
        home: A directory.
        more: Other settings, or others in the place of these.
    """
    usual: dict[str, Any] = {
        "topics": (group,),
        "handler": HandlerTarget(handler, "auto", (str(home),)),
        "ledger": ledger_at(str(home / "ledger")),
        "start": "earliest",
        "available_now": True,
    }
    return ConsumeSettings(group=group, **(usual | more))
