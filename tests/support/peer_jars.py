"""Fetches the JARs of RocketMQ, Kafka and Spark's Kafka source, and compiles the Java tools beside them.

Owns the git-ignored folder `.peers/` (another place: LAKEMQ_PEERS): one folder of JARs per POM in
benchmarks/peers/, one folder of classes per Java source. Another RocketMQ than the POM's is asked for with
LAKEMQ_ROCKETMQ_VERSION, and has folders of its own. Never downloads or compiles twice: a stamp holds
the digest of what a folder was made from, and a file lock keeps two test processes from filling it at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
POMS = REPOSITORY / "benchmarks" / "peers"
FETCH_TIMEOUT_S = 900


class PeerMissing(RuntimeError):
    """A peer cannot be had here: Java or Maven is missing, or Maven could not fetch. The text says which."""


def peers_home() -> Path:
    """Returns the folder that holds fetched JARs and compiled classes."""
    return Path(os.environ.get("LAKEMQ_PEERS", REPOSITORY / ".peers"))


def rocketmq_version() -> str | None:
    """Returns which RocketMQ was asked for; None is the POM's."""
    return os.environ.get("LAKEMQ_ROCKETMQ_VERSION") or None


def jars(peer: str) -> Path:
    """Returns the folder of a peer's JARs, fetched with Maven the first time.

    Args:
        peer: folder name below benchmarks/peers: rocketmq, kafka or spark_kafka.

    Raises:
        PeerMissing: Maven is not installed or failed.
    """
    pom = POMS / peer / "pom.xml"
    version = rocketmq_version() if peer == "rocketmq" else None
    folder = peers_home() / (peer if version is None else f"{peer}-{version}")
    with _filled_once(folder, pom.read_bytes()) as must_fill:
        if must_fill:
            _require("mvn", "maven")
            command = [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(pom),
                "dependency:copy-dependencies",
                "-DincludeScope=runtime",
                f"-DoutputDirectory={folder}",
                *([] if version is None else [f"-Drocketmq.version={version}"]),
            ]
            _run(command, f"Maven could not fetch {peer}")
    return folder


def jar_list(peer: str) -> str:
    """Returns a peer's JARs as a comma-separated list (what Spark's `--jars` takes)."""
    return ",".join(sorted(str(jar) for jar in jars(peer).glob("*.jar")))


def classes(source: Path, peer: str | None = None) -> str:
    """Compiles one Java source file and returns the class path to run it with.

    Args:
        source: the .java file, in no package.
        peer: whose JARs it is compiled against; None for a source that needs only the JDK.

    Raises:
        PeerMissing: there is no Java compiler, or it refuses the source.
    """
    path = str(jars(peer) / "*") if peer else ""
    version = rocketmq_version() if peer == "rocketmq" else None
    folder = peers_home() / "classes" / (source.stem if version is None else f"{source.stem}-{version}")
    with _filled_once(folder, source.read_bytes() + path.encode()) as must_fill:
        if must_fill:
            _require("javac", "default-jdk-headless")
            command = ["javac", "-nowarn", "-d", str(folder), *(["-cp", path] if path else []), str(source)]
            _run(command, f"javac refused {source.name}")
    return os.pathsep.join(filter(None, [str(folder), path]))


@contextmanager
def _filled_once(folder: Path, made_from: bytes) -> Iterator[bool]:
    """Yields whether the folder must be filled, empty and locked; stamps it when the block succeeds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".made-from"
    digest = hashlib.sha256(made_from).hexdigest()
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            yield False
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield True
        stamp.write_text(digest)


def _require(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise PeerMissing(f"{program} is not installed; on Debian: sudo apt-get install {package}")


def _run(command: list[str], failure: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise PeerMissing(f"{failure}:\n{(done.stdout + done.stderr)[-3000:]}")
