"""How fast a slave takes the log, as the last seconds say."""

from __future__ import annotations

from ha_replicator.throughput import WINDOW_S, Throughput


def test_what_a_slave_had_before_is_no_throughput() -> None:
    throughput = Throughput()
    assert throughput.bytes_per_s(5.0) == 0
    throughput.note(1 << 40, 5.0)
    assert throughput.bytes_per_s(5.0) == 0
    throughput.note((1 << 40) + 500, 5.1)
    assert throughput.bytes_per_s(5.1) == 500, "of a second at least"


def test_it_is_that_of_the_last_seconds_and_ends_with_the_reports() -> None:
    throughput = Throughput()
    for tenth in range(1000):
        throughput.note(tenth * 100, tenth / 10)
    assert abs(throughput.bytes_per_s(99.9) - 1000) < 1
    for tenth in range(1000, 1200):
        throughput.note(100_000, tenth / 10)
    assert throughput.bytes_per_s(119.9) == 0, "it has all there is, and says so"
    throughput.note(200_000, 120.0)
    assert throughput.bytes_per_s(120.0 + 2 * WINDOW_S) == 0, "it is silent"
