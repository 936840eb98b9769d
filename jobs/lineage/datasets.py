"""What topics and tables are called in lineage.

Owns the names; those of files and buckets are OpenLineage's own rules, so that a table is the same dataset
whoever else reports it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from posixpath import normpath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from delta_tables.ledger.path_ledger import PathLedger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_tables.ledger.location import LedgerLocation
    from delta_tables.table import Table
    from delta_tables.user_tables.user_table import UserTable


@dataclass(frozen=True)
class Dataset:
    """A topic, or a table.

    Attributes:
        namespace: where it is, such as `file`, `s3://bucket` or `lakemq://host:8090`.
        name: unique there.
        table: of a catalog: `catalog.schema.table`, which is another name for it.
    """

    namespace: str
    name: str
    table: str | None = None


_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?://(?P<authority>[^/]*))?(?P<path>(?:/.*)?)", re.DOTALL
)
_AS_S3 = ("s3a", "s3n")
_BUCKETS = ("s3", "gs", "abfs", "abfss", "wasb", "wasbs")


def topic_dataset(endpoint: str, topic: str) -> Dataset:
    """A topic, as it is known to those who were given the same endpoint first.

    Args:
        endpoint: a client's, of one or of several addresses.
        topic: the topic.
    """
    return Dataset(f"lakemq://{urlsplit(endpoint.partition(',')[0]).netloc}", topic)


def location_dataset(location: str, table: str | None = None) -> Dataset:
    """A table at a place.

    Args:
        location: an absolute path, or a URL as Delta says it.
        table: its name in a catalog.
    """
    url = _URL.fullmatch(location)
    if url is None:
        return Dataset("file", normpath(location), table)
    scheme, authority, path = url["scheme"].lower(), url["authority"], url["path"].rstrip("/")
    if scheme == "file":
        # Delta's own `file:/...` is as it is on the disk, a URL with an authority is not.
        return Dataset("file", normpath(path if authority is None else unquote(path)), table)
    scheme = "s3" if scheme in _AS_S3 else scheme
    name = path.lstrip("/") if scheme in _BUCKETS else path
    return Dataset(f"{scheme}://{authority}" if authority else scheme, name or "/", table)


def ledger_dataset(ledger: LedgerLocation, table: Table, spark: SparkSession) -> Dataset:
    """A ledger's table that is there; of a catalog Delta is asked where it is."""
    if isinstance(ledger, PathLedger):
        return location_dataset(str(ledger.directory / table.name))
    name = ledger.qualified(table)
    detail = spark.sql(f"DESCRIBE DETAIL {name}").head()
    assert detail is not None, f"Delta says nothing of {name}"
    return location_dataset(detail["location"], name)


def user_dataset(table: UserTable, spark: SparkSession) -> Dataset:
    """A user's table that is there."""
    return location_dataset(table.location(spark), table.place if table.needs_spark else None)
