"""A disk that is slow, or fails to flush or to write: faulty_disk.c, preloaded into a process."""

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

    def fail_writes(self) -> None:
        """Makes every later write to the log fail with EIO, half of it done."""
        (self._directory / "fail_write").touch()

    def slow_down(self) -> None:
        """Makes every later flush take a second longer."""
        (self._directory / "slow").touch()

    def recover(self) -> None:
        """Makes the disk well again."""
        for name in ("fail", "fail_write", "slow"):
            (self._directory / name).unlink(missing_ok=True)
