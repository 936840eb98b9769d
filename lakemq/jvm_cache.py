"""What the first Spark session on a machine leaves for the next: where its JARs are, and its classes.

Owns one folder of the user's cache directory for each Java and each Spark that is installed: the list of the
JARs that Ivy found, and a class data sharing archive. The first JVM writes that when it ends; later ones map
it in place of reading and verifying some 20,000 classes.

Invariants: it saves time and is never needed. What is missing, cut short, or of another Java or Spark is left
alone by the JVM, or made again; a folder that cannot be written is done without. One JVM at a time writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# The first bytes of an archive of this kind (HotSpot's CDS_DYNAMIC_ARCHIVE_MAGIC): the JVM writes them last.
_WHOLE = (0xF00BABA8).to_bytes(4, "little")
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_ANOTHER = re.compile(r"-XX:(SharedArchiveFile|ArchiveClassesAtExit)=|-Xshare:")
UNUSED_DAYS = 30
"""A folder that no session used for so long is deleted when another one is made: it has some 200 MB."""


def cache_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Returns where a user's caches are: ``lakemq`` in XDG_CACHE_HOME, by default ``~/.cache``.

    >>> cache_home({"XDG_CACHE_HOME": "/var/cache/me"})
    PosixPath('/var/cache/me/lakemq')
    """
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakemq"


class JvmCache:
    """The folder of one Java and one Spark.

    Args:
        home: The directory of all such folders; made when it is needed.
        spark_jars: Where Spark's own JARs are. A Spark that is installed anew has another folder.
        package: The Maven coordinates of what a session has besides.
        environment: The variables of the process that will start the JVM. One whose SPARK_SUBMIT_OPTS name an
            archive has its own.
    """

    def __init__(
        self, home: Path, spark_jars: Path, package: str, environment: Mapping[str, str] = os.environ
    ) -> None:
        java = environment.get("JAVA_HOME")
        found = Path(java) / "bin" / "java" if java else shutil.which("java", path=environment.get("PATH"))
        key = "\n".join((package, *(_identity(Path(path)) for path in (spark_jars, found) if path)))
        self._home = home
        self._folder = home / f"spark-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        self._list = self._folder / "jars.json"
        self._archive = self._folder / "classes.jsa"
        self._unfinished = self._folder / "classes.jsa.new"
        self._has_another = _ANOTHER.search(environment.get("SPARK_SUBMIT_OPTS", "")) is not None

    def jars(self) -> list[str]:
        """Returns the paths that `keep_jars` was given, if all are still there as they were; else none."""
        try:
            kept = json.loads(self._list.read_bytes())
            if all(Path(path).stat().st_size == size for path, size in kept.items()):
                return list(kept)
        except (OSError, ValueError, AttributeError, TypeError):
            pass  # there is none yet, or no list
        return []

    def keep_jars(self, jars: Sequence[str]) -> None:
        """Remembers where a session's JARs are, by their paths."""
        with contextlib.suppress(OSError):
            self._make_folder()
            new = self._list.with_name(f"{self._list.name}.{os.getpid()}")
            new.write_text(json.dumps({path: Path(path).stat().st_size for path in jars}), encoding="utf-8")
            new.replace(self._list)

    @contextlib.contextmanager
    def archive(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yields the Java options of a JVM that is started in this block, and the descriptors it inherits.

        The JVM maps the archive. Where there is none the first one writes it at its end, for some seconds
        behind the process that started it, and holds the lock until then by its descriptor.
        """
        lock = None if self._has_another else self._opened_lock()
        if lock is None:
            yield "", ()
            return
        try:
            if self._archive.exists() or ((mine := _locked(lock)) and self._taken_over()):
                yield f'"-XX:SharedArchiveFile={self._archive}" {_QUIET}', ()
            elif mine:
                yield f'"-XX:ArchiveClassesAtExit={self._unfinished}" {_QUIET}', (lock,)
            else:
                yield "", ()
        finally:
            os.close(lock)

    def _taken_over(self) -> bool:
        """Gives what a JVM wrote its name, if it is whole. Who asks has the lock: no JVM is at it."""
        try:
            with self._unfinished.open("rb") as file:
                is_whole = file.read(len(_WHOLE)) == _WHOLE
            if is_whole:
                self._unfinished.replace(self._archive)
            else:
                self._unfinished.unlink()
        except OSError:
            return False
        return is_whole

    def _opened_lock(self) -> int | None:
        try:
            self._make_folder()
            return os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None

    def _make_folder(self) -> None:
        is_new = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        os.utime(self._folder)
        if is_new:
            for other in self._home.glob("spark-*"):
                if other.stat().st_mtime < time.time() - UNUSED_DAYS * 86_400:
                    shutil.rmtree(other, ignore_errors=True)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _identity(path: Path) -> str:
    """What of a file or directory is another once it is installed anew."""
    real = path.resolve()
    try:
        return f"{real} {real.stat().st_mtime_ns}"
    except OSError:
        return str(real)
