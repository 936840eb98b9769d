"""The text of `deltalake`'s errors: one line, no colours, no more than a screen can hold."""

from __future__ import annotations

from delta_tables.engine_text import said


def test_lines_are_joined_and_colours_left_out() -> None:
    lines = ("Generic LocalFileSystem error", "Unable to copy", "full (os error 28)\n")
    drawn = "\n \x1b[31m↳\x1b[0m ".join(lines)
    assert said(OSError(drawn)) == "Generic LocalFileSystem error ↳ Unable to copy ↳ full (os error 28)"


def test_a_long_text_is_cut() -> None:
    assert said(ValueError("x" * 501)) == "x" * 500
