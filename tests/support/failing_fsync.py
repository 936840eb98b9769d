"""A disk that stops flushing, for a whole process: failing_fsync.c, compiled and preloaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class FailingFsync:
    """Builds the library. The C compiler is there wherever Rust links.

    Args:
        directory: Holds the library and the trigger.

    Attributes:
        environment: What a process under test is started with.
    """

    def __init__(self, directory: Path) -> None:
        library = directory / "failing_fsync.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self._trigger = directory / "fail-fsync"
        self.environment = {"LD_PRELOAD": str(library), "LAKEMQ_TEST_FAIL_FSYNC": str(self._trigger)}

    def fail_from_now_on(self) -> None:
        """Makes every later flush fail."""
        self._trigger.touch()
