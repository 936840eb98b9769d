"""A disk that is slow to flush, or fails to: faulty_disk.c, compiled and preloaded into a process."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class FaultyDisk:
    """Builds the library; the disk is well until told otherwise.

    The C compiler is there wherever Rust links.

    Args:
        directory: Holds the library and the triggers.

    Attributes:
        environment: What a process under test is started with.
    """

    def __init__(self, directory: Path) -> None:
        library = directory / "faulty_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        self._directory = directory
        self.environment = {"LD_PRELOAD": str(library), "LAKEMQ_TEST_DISK": str(directory)}

    def fail(self) -> None:
        """Makes every later flush fail with EIO."""
        (self._directory / "fail").touch()

    def slow_down(self) -> None:
        """Makes every later flush take a second longer."""
        (self._directory / "slow").touch()

    def recover(self) -> None:
        """Makes the disk well again."""
        for name in ("fail", "slow"):
            (self._directory / name).unlink(missing_ok=True)
