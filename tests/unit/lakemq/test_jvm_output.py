"""What a JVM says while it starts goes into a file, what it says later to our standard error, all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakemq.jvm_output import JvmOutput
from tests.support.waiting import wait_until


def test_what_comes_before_is_in_the_file_and_what_comes_after_passes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "below" / "spark.log"
    output = JvmOutput(str(file))
    jvm = os.dup(output.writer)
    os.write(jvm, b":: loading settings ::\nno end")
    output.pass_on()
    assert file.read_bytes() == b":: loading settings ::\nno end"
    os.write(jvm, b"from a handler, without an end")
    seen: list[str] = []

    def all_passed() -> bool:
        seen.append(capfd.readouterr().err)
        return "".join(seen) == "from a handler, without an end"

    wait_until(all_passed)
    os.close(jvm)
    assert file.read_bytes() == b":: loading settings ::\nno end"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("x\nException in thread main: no\n\tat Main\n", "Exception in thread main: no"),
        ("x\nInvalid size\nError: no JVM\nError: gone\n", "Invalid size Error: no JVM Error: gone"),
        ("last\n\tindented\n", "last"),
        ("", "it said nothing"),
    ],
)
def test_the_line_that_says_why_is_found(tmp_path: Path, said: str, reason: str) -> None:
    file = tmp_path / "spark.log"
    file.write_text("Exception in thread main: of an earlier start\n")
    output = JvmOutput(file)
    os.write(output.writer, said.encode())
    output.pass_on()
    assert output.reason() == reason
