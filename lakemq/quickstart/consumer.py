"""``lakemq consume`` as a child process, watched until it finds nothing more to do.

Owns its command line and its process; the progress shown comes from the broker, where the group reports its
offsets.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakemq.broker_process import cause_in
from lakemq.client import Client, LakeMQError
from lakemq.terminal.failure import CommandFailed

MAX_RECONSUME_TIMES = 2
RETRY_DELAYS = "1s 1s"
UNTIL_IDLE = "2s"
"""What is idle is read from broker and ledger, not guessed from quiet: this is for the lag of the looks."""
_LOOK_S = 1.0
_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Consumption:
    """What the group job is to do, and where."""

    endpoint: str
    topic: str
    group: str
    handler: str
    ledger: Path
    checkpoint: Path
    log: Path

    def command(self) -> Sequence[str]:
        """The words to type for the same at a prompt."""
        return [
            "lakemq",
            "consume",
            *("--group", self.group),
            *("--topic", self.topic),
            *("--handler", self.handler),
            *("--endpoint", self.endpoint),
            *("--from", "earliest"),  # the input is posted before the group is there
            *("--ledger", str(self.ledger)),
            *("--checkpoint", str(self.checkpoint)),
            *("--max-reconsume-times", str(MAX_RECONSUME_TIMES)),
            *("--retry-delays", RETRY_DELAYS),
            *("--until-idle", UNTIL_IDLE),
        ]

    def run(self, on_consumed: Callable[[int], None]) -> None:
        """Runs the job to its end.

        Args:
            on_consumed: Receives how many messages of the topic the group has done since it was last
                called; about once a second, from this thread.

        Raises:
            CommandFailed: The job ended with an error.
        """
        command = [sys.executable, "-m", "lakemq.cli", *self.command()[1:]]
        with self.log.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        seen = 0
        try:
            with Client(self.endpoint) as client:
                while (code := _ended(process)) is None:
                    done = self._done(client)
                    on_consumed(max(0, done - seen))
                    seen = max(seen, done)
        except BaseException:
            _stop(process)
            raise
        if code != 0:
            why = cause_in(self.log.read_text("utf-8", "replace"))
            raise CommandFailed(f"lakemq consume ended with {code}: {why} (all of it: {self.log})")

    def _done(self, client: Client) -> int:
        try:
            offsets = client.group_offsets(self.group)
        except LakeMQError:
            return 0  # the group has not shown itself yet
        return sum(offset for (topic, _), offset in offsets.items() if topic == self.topic)


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
