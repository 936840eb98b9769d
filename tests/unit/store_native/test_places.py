"""Where a directory may be."""

from __future__ import annotations

from pathlib import Path

from store_native.places import why_no_directory


def test_a_directory_may_be_where_there_is_one_or_nothing(tmp_path: Path) -> None:
    assert why_no_directory(tmp_path) is None
    assert why_no_directory(tmp_path / "new" / "below") is None
    assert why_no_directory(Path("not-there-yet")) is None


def test_it_may_not_be_where_a_file_is_or_below_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert why_no_directory(file) == f"{file} is a file, not a directory"
    below = file / "below" / "it"
    assert why_no_directory(below) == f"{file} is a file, so that there is no {below}"


def test_a_link_to_a_place_that_is_not_there_is_said_to_be_one(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "unmounted")
    said = f"{link} is a link to {tmp_path / 'unmounted'}, which is not there"
    assert why_no_directory(link) == said
    assert why_no_directory(link / "below") == said
