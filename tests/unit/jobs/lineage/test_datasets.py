"""What topics and tables are called in lineage.

Contract: files and buckets as OpenLineage names them, a catalog's table by its place and its name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from delta_tables.deliveries import DELIVERIES
from delta_tables.ledger.path_ledger import PathLedger
from jobs.lineage.datasets import Dataset, ledger_dataset, location_dataset, topic_dataset


@pytest.mark.parametrize(
    ("endpoint", "namespace"),
    [
        ("http://broker:8090", "lakemq://broker:8090"),
        ("https://one:9876,https://two:9876", "lakemq://one:9876"),
        ("http://[::1]:8090", "lakemq://[::1]:8090"),
    ],
)
def test_a_topic_is_one_of_the_first_endpoint(endpoint: str, namespace: str) -> None:
    assert topic_dataset(endpoint, "orders") == Dataset(namespace, "orders")


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/data/ledger/deliveries", "file", "/data/ledger/deliveries"),
        ("/data/a b?c#d", "file", "/data/a b?c#d"),
        ("file:/data/deliveries", "file", "/data/deliveries"),
        ("file:///data/deliveries/", "file", "/data/deliveries"),
        ("s3://bucket/lake/deliveries", "s3://bucket", "lake/deliveries"),
        ("s3a://bucket/lake/deliveries/", "s3://bucket", "lake/deliveries"),
        ("s3://bucket", "s3://bucket", "/"),
        ("gs://bucket/lake", "gs://bucket", "lake"),
        (
            "abfss://data@account.dfs.core.windows.net/lake/t",
            "abfss://data@account.dfs.core.windows.net",
            "lake/t",
        ),
        ("/data/../lake/t", "file", "/lake/t"),
        ("file:///data/a%20b", "file", "/data/a b"),
        ("file:/data/a%20b", "file", "/data/a%20b"),
        ("dbfs:/user/hive/l.db/deliveries", "dbfs", "/user/hive/l.db/deliveries"),
        ("s3://bucket/dt=1#2/x?y", "s3://bucket", "dt=1#2/x?y"),
        ("hdfs://name:8020/lake/t", "hdfs://name:8020", "/lake/t"),
    ],
)
def test_a_place_is_named_as_openlineage_names_it(location: str, namespace: str, name: str) -> None:
    assert location_dataset(location) == Dataset(namespace, name)


def test_a_table_of_a_ledger_in_a_directory_is_its_directory(tmp_path: Path) -> None:
    ledger = PathLedger(tmp_path / "ledger")
    assert ledger_dataset(ledger, DELIVERIES, spark=None) == Dataset(  # type: ignore[arg-type]
        "file", str(tmp_path / "ledger" / "deliveries")
    )
