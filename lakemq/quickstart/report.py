"""The numbers of a quick start, what must hold between them, and report.json.

Owns the checks.

Invariants: no number is made here; each was counted by the one who knows it (the client what it posted, the
broker's answers what was acknowledged, the ledger the rest).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Report:
    """What happened.

    Attributes:
        posted: Messages sent.
        acknowledged: Messages the broker's answers say are stored.
        consumed: Messages with the verdict ACK.
        retried: Deliveries with the verdict RETRY.
        dead_lettered: Rows of dead_letters.
        unfinished: Acknowledged messages that are neither.
        gaps: Rows of delivery_gaps.
        duplicates: Rows of duplicate_deliveries.
        seconds: The whole run, input preparation included.
        ingest_seconds: From the first request to the last answer.
        ingest_rate: Messages acknowledged a second meanwhile.
        consume_seconds: The Spark application from start to end, its idle wait included.
        expected_dead_letters: How many the input says there must be; None when it does not say.
    """

    posted: int
    acknowledged: int
    consumed: int
    retried: int
    dead_lettered: int
    unfinished: int
    gaps: int
    duplicates: int
    seconds: float
    ingest_seconds: float
    ingest_rate: float
    consume_seconds: float
    expected_dead_letters: int | None = None

    def problems(self) -> list[str]:
        """Returns what does not hold, as sentences; empty when all is well."""
        expected = self.dead_lettered if self.expected_dead_letters is None else self.expected_dead_letters
        checks = [
            (self.posted > 0, "the input has no messages"),
            (self.acknowledged == self.posted, f"{self.posted} posted but {self.acknowledged} acknowledged"),
            (self.gaps == 0, f"{self.gaps} gaps: offsets the group never got"),
            (self.duplicates == 0, f"{self.duplicates} duplicates: one attempt recorded twice"),
            (self.unfinished == 0, f"{self.unfinished} messages are neither acknowledged nor dead letters"),
            (self.dead_lettered == expected, f"{self.dead_lettered} dead letters instead of {expected}"),
        ]
        return [sentence for holds, sentence in checks if not holds]

    def write(self, path: Path) -> None:
        """Writes the numbers and the problems as JSON."""
        content = {**asdict(self), "problems": self.problems()}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
