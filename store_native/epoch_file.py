"""The epoch file of a store that nobody has open: which broker is the master, where several stores tell.

Owns reading `lakemq/epochs.json`; the store's Rust part keeps it (`commitlog/epochs.rs`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from store_native.errors import DataCorrupt


@dataclass(frozen=True, slots=True)
class EpochFile:
    """What a store knows of its masters.

    Attributes:
        seen: The highest epoch that it heard of.
        master_of: The epoch that it is the master of; None: it is a slave's.
    """

    seen: int
    master_of: int | None


def read_epoch_file(store: Path) -> EpochFile | None:
    """Reads a store's epoch file; None where there is none yet.

    Raises:
        DataCorrupt: It is not readable.
    """
    path = store / "lakemq" / "epochs.json"
    try:
        content = json.loads(path.read_bytes())
        seen, master_of = content["seen"], content.get("master_of")
        return EpochFile(int(seen), None if master_of is None else int(master_of))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataCorrupt("DATA_CORRUPT", f"{path} is not readable: {error}") from error
