-- One row per key of each attempt. WHERE key = '...' is the question: lakemq sql answers it out of an index that
-- maintenance writes, on a path (key_index/), in its own engine's words; this text, which is Spark's, reads all files.
-- A key that a message names twice has one row.
SELECT * FROM (
  SELECT
    explode(array_distinct(keys)) AS key,
    consumer_group,
    topic,
    broker_name,
    queue_id,
    queue_offset,
    attempt,
    verdict,
    message_id,
    reason,
    error_type,
    error_text,
    finished_at
  FROM deliveries
) AS with_null
WHERE key IS NOT NULL
