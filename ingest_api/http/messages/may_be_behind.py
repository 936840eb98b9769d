"""The header by which a broker says that its answer may lack the end of what was shown before.

Owns its name. lakemq.client takes such an answer as it takes a slave's.
"""

from __future__ import annotations

from typing import Final

NAME: Final = "X-LakeMQ-May-Be-Behind"
MAY_BE_BEHIND: Final = (NAME.lower().encode(), b"true")
