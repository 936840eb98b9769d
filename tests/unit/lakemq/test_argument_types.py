"""Arguments within bounds: what lies outside is refused in words that say what would do."""

from __future__ import annotations

import argparse

import pytest

from lakemq.argument_types import between, duration_ms, lasting, memory, memory_bytes


@pytest.mark.parametrize("text", ["0", "0s", "0ms", "0.0h", "0.4ms"])
def test_a_duration_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is too short: 1ms is the least"):
        duration_ms(text)


@pytest.mark.parametrize("text", ["-1s", "-5", "--", "s"])
def test_what_is_no_duration_says_how_one_is_written(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration: write 500ms"):
        duration_ms(text)


def test_bounds_of_a_duration_are_named() -> None:
    read = lasting(1_000, 86_400_000)
    assert (read("1s"), read("24h")) == (1_000, 86_400_000)
    with pytest.raises(argparse.ArgumentTypeError, match="'999ms' is too short: 1s is the least"):
        read("999ms")
    with pytest.raises(argparse.ArgumentTypeError, match="'25h' is too long: 1d is the most"):
        read("25h")


@pytest.mark.parametrize("text", ["0", "5", "-1", "1.5", "x", "", "\u0663"])
def test_bounds_of_a_number_are_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 1 to 4"):
        between(1, 4)(text)


@pytest.mark.parametrize("text", ["2g", "512m", "4096M", "1T", "600000k"])
def test_a_size_of_memory_stays_as_it_was_written(text: str) -> None:
    assert memory(text) == text


@pytest.mark.parametrize("text", ["2", "2gb", "511m", "0g", "-1g", "lots", "2 g", ""])
def test_what_a_jvm_does_not_start_with_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a size such as 2g"):
        memory(text)


@pytest.mark.parametrize(("text", "size"), [("128m", 128 << 20), ("2G", 2 << 30), ("131072k", 128 << 20)])
def test_what_a_process_may_have_in_memory_is_read_as_bytes(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["127m", "512", "2gb", "-1g", ""])
def test_what_a_process_cannot_do_with_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="128m at the least"):
        memory_bytes(text)
