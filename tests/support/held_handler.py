"""Handlers in a module of their own: one that holds its batch until the test lets it go on, one that accepts.

The one that holds fails at messages that say "fails".

Owns the module's text and the files by which handler and test see each other, all in one directory: ``calls``
has a line of offset and attempt for each call, ``handling`` says that a call is under way, ``go on`` ends it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCE: Final = """
import pathlib, sys
sys.path.append({root!r})
from tests.support.waiting import wait_until

def accept(message):
    pass

def hold(message):
    here = pathlib.Path({directory!r})
    with (here / "calls").open("a") as calls:
        calls.write(f"{{message.queue_offset}}/{{message.attempt}}\\n")
    (here / "handling").touch()
    wait_until((here / "go on").exists, 240)
    if message.text == "fails":
        raise ValueError(message.text)
"""


class HeldHandler:
    """Writes the module.

    Args:
        directory: Where module and files are.
        module: The module's name; Python keeps modules by name, so one for each test of a process.
    """

    def __init__(self, directory: Path, module: str) -> None:
        self.module = module
        self.handling = directory / "handling"
        self.go_on = directory / "go on"
        self._calls = directory / "calls"
        (directory / f"{module}.py").write_text(_SOURCE.format(root=str(_ROOT), directory=str(directory)))

    def calls(self) -> list[str]:
        """Returns offset/attempt of each call, in order."""
        return self._calls.read_text().split()

    def hold_the_next(self) -> None:
        """Makes the next call wait again."""
        for mark in (self.handling, self.go_on):
            mark.unlink(missing_ok=True)
