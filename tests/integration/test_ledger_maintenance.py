"""Maintenance of a ledger in a catalog; on a path a lock keeps it and the jobs apart."""

from __future__ import annotations

from pyspark.sql import SparkSession

from delta_tables.data_losses import DATA_LOSSES
from delta_tables.ledger import ledger_at
from delta_tables.ledger.catalog_ledger import CatalogLedger
from delta_tables.maintenance import maintain_in_catalog


def test_tables_that_were_never_made_are_left_out(spark: SparkSession) -> None:
    spark.sql("CREATE SCHEMA small_ledger")
    ledger = ledger_at("spark_catalog.small_ledger")
    assert isinstance(ledger, CatalogLedger)
    ledger.create(DATA_LOSSES, spark=spark)
    maintain_in_catalog(spark, ledger)
    made = spark.sql("SHOW TABLES IN small_ledger").where("NOT isTemporary").collect()
    assert [row.tableName for row in made] == ["data_losses"]
