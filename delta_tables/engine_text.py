"""What `deltalake` says in its errors, as one line without colours.

Owns that form: some of its errors are several lines, drawn for a terminal.
"""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MOST_CHARACTERS = 500


def said(error: Exception) -> str:
    r"""An error's text.

    >>> said(OSError("disk\n \x1b[31m>\x1b[0m full\n"))
    'disk > full'
    """
    return " ".join(_COLOUR.sub("", str(error)).split())[:_MOST_CHARACTERS]
