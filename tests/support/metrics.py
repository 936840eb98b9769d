"""A page of /metrics, read as Prometheus reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


class Samples:
    """The samples of a page.

    Args:
        page: Text of the format 0.0.4.
    """

    def __init__(self, page: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(page) for sample in family.samples
        ]

    def value(self, name: str, /, **labels: str) -> float:
        """Returns the value of the one sample with this name and exactly these labels."""
        (found,) = [sample for sample in self.named(name) if sample.labels == labels]
        return found.value

    def named(self, name: str) -> list[Sample]:
        """Returns every sample of this name."""
        return [sample for sample in self._samples if sample.name == name]
