"""Connections leave the store its share of the files a process may have open."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from ingest_api.server import OWN_FILES, _within_open_files
from ingest_api.settings import HttpSettings, Settings


@pytest.fixture
def limit_of_1024() -> Iterator[None]:
    """The usual limit of open files, for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("limit_of_1024")
@pytest.mark.parametrize(("wanted", "given"), [(10_000, 1024 - OWN_FILES), (768, 768), (10, 10)])
def test_connections_are_at_most_what_the_limit_of_open_files_leaves(wanted: int, given: int) -> None:
    settings = Settings(http=HttpSettings(max_connections=wanted))
    assert _within_open_files(settings).http.max_connections == given
