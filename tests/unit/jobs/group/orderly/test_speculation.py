"""An orderly group refuses a session that runs a task twice at a time, however that is written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.group.orderly.orderly_group import OrderlyGroup
from store_native.errors import InvalidRequest


def made_in_a_session_with(speculation: str) -> None:
    """Makes the lanes of a group; a session and a broker are asked for nothing more at that."""
    of_session: Any = SimpleNamespace(conf={"spark.speculation": speculation})
    nothing: Any = SimpleNamespace(group="g")
    OrderlyGroup(of_session, nothing, nothing, Path("bound"))


@pytest.mark.parametrize("written", ["true", "TRUE", "True", " true "])
def test_what_spark_reads_as_true_is_refused(written: str) -> None:
    with pytest.raises(InvalidRequest, match="speculation runs a task twice"):
        made_in_a_session_with(written)
    made_in_a_session_with("False")
