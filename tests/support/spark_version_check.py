"""The path through one version of Spark: sink, stream, batch read, a consumer group with its ledger.

Run by tests/integration/test_spark_versions.py with the Python of that version's environment:
`python -m tests.support.spark_version_check ENDPOINT DIRECTORY`. Prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROWS = 50
HANDLER = """
def handle(message):
    if message.text == "7" and message.attempt == 1:
        raise ValueError("seven")
"""


def main(endpoint: str, directory: Path) -> None:
    """Prints what each step saw."""
    import pyspark

    from delta_tables.ledger import ledger_at
    from delta_tables.ledger_reader import LedgerReader
    from jobs.consume import consume
    from jobs.handler.loader import HandlerTarget
    from jobs.settings import ConsumeSettings
    from lakemq.client import Client
    from lakemq.spark import session

    version = ".".join(pyspark.__version__.split(".")[:2])
    first, second = "first", "second"
    with Client(endpoint) as client:
        for topic in (first, second):
            client.put_topic(topic, read_queue_nums=2, write_queue_nums=2)
    spark = session("versions", directory / "warehouse", master="local[2]")
    rows = spark.range(ROWS).selectExpr("CAST(id AS STRING) AS body", "array('K') AS keys")
    rows.write.format("lakemq").mode("append").option("endpoint", endpoint).option("topic", first).save()

    source = spark.readStream.format("lakemq").option("endpoint", endpoint).option("subscribe", first)
    copy = source.option("startingOffsets", "earliest").load()
    copied = copy.selectExpr("body", "keys", "born_timestamp")
    for _ in range(2):  # the second run begins at the checkpoint and finds nothing new
        query = (
            copied.writeStream.format("lakemq")
            .option("endpoint", endpoint)
            .option("topic", second)
            .option("checkpointLocation", str(directory / "copy"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    read = spark.read.format("lakemq").option("endpoint", endpoint).option("subscribe", f"{first},{second}")
    seen = read.load().select("topic", "body", "keys", "born_timestamp").toArrow().to_pylist()
    born = [sorted(str(row["born_timestamp"]) for row in seen if row["topic"] == t) for t in (first, second)]

    (directory / "version_handlers.py").write_text(HANDLER)
    ledger = directory / "ledger"
    settings = ConsumeSettings(
        group="group",
        topics=(second,),
        handler=HandlerTarget("version_handlers:handle", "auto", (str(directory),)),
        ledger=ledger_at(str(ledger)),
        endpoint=endpoint,
        start="earliest",
        max_reconsume_times=2,
        retry_delays="1s",
        trigger="100 milliseconds",
        until_idle_s=0.5,
    )
    consume(settings, lambda: spark)
    verdicts = LedgerReader(ledger).sql(
        "SELECT attempt, verdict, count(*) AS n FROM deliveries GROUP BY attempt, verdict ORDER BY 1, 2"
    )
    spark.stop()
    report = {
        "version": version,
        "read": {topic: sum(row["topic"] == topic for row in seen) for topic in (first, second)},
        "bodies": sorted({int(row["body"]) for row in seen}) == list(range(ROWS)),
        "keys": {tuple(row["keys"]) for row in seen} == {("K",)},
        "times": born[0] == born[1],
        "verdicts": [list(row.values()) for row in verdicts.to_pylist()],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
