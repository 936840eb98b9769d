"""The quick start is refused before anything is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakemq.quickstart import run
from lakemq.upload.ndjson import LineRule
from store_native.errors import InvalidRequest


@pytest.mark.parametrize("handler", ["no_such_module_here:f", "json:no_such", "json"])
def test_a_handler_that_is_not_there_is_refused_before_anything_is_begun(
    handler: str, tmp_path: Path
) -> None:
    source = tmp_path / "lines.ndjson"
    source.touch()
    home = tmp_path / "q"
    said: list[str] = []
    with pytest.raises(InvalidRequest, match="ARGUMENT_ILLEGAL"):
        run.run(run.Settings(home, source, LineRule(), handler, keep_serving=False), said.append)
    assert not home.exists()
    assert said == []
