-- Acknowledged attempts of whose messages some are neither recorded as sent nor given up, or of whose rows some are
-- neither recorded as written nor given up.
-- waiting: how many of its messages that are; waiting_rows: how many of its rows. code, error, refused_at: the last
-- refusal of one of them, by a broker or a table.
SELECT
  decided.consumer_group,
  decided.topic,
  decided.broker_name,
  decided.queue_id,
  decided.queue_offset,
  decided.attempt,
  decided.message_id,
  decided.sends,
  CAST(coalesce(decided.sends, 0) - coalesce(done.sent_count, 0) AS INT) AS waiting,
  decided.writes,
  CAST(coalesce(decided.writes, 0) - coalesce(done.written_count, 0) AS INT) AS waiting_rows,
  decided.finished_at AS decided_at,
  refused.code,
  refused.error,
  refused.refused_at
FROM deliveries AS decided
LEFT JOIN (
  SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt,
    count(DISTINCT CASE WHEN is_row = 0 THEN number END) AS sent_count,
    count(DISTINCT CASE WHEN is_row = 1 THEN number END) AS written_count
  FROM (
    SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, number, 0 AS is_row FROM sent_messages
    UNION ALL
    SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, number, 1 AS is_row FROM written_rows
    UNION ALL
    SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, number,
      CASE WHEN sent_topic IS NULL THEN 1 ELSE 0 END AS is_row
    FROM discarded_sends
  ) AS each_one
  GROUP BY consumer_group, topic, broker_name, queue_id, queue_offset, attempt
) AS done
  ON done.consumer_group = decided.consumer_group
  AND done.topic = decided.topic
  AND done.broker_name = decided.broker_name
  AND done.queue_id = decided.queue_id
  AND done.queue_offset = decided.queue_offset
  AND done.attempt = decided.attempt
LEFT JOIN (
  SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, code, error, refused_at,
    row_number() OVER (
      PARTITION BY consumer_group, topic, broker_name, queue_id, queue_offset, attempt
      ORDER BY refused_at DESC, number
    ) AS newest
  FROM refused_sends
) AS refused
  ON refused.consumer_group = decided.consumer_group
  AND refused.topic = decided.topic
  AND refused.broker_name = decided.broker_name
  AND refused.queue_id = decided.queue_id
  AND refused.queue_offset = decided.queue_offset
  AND refused.attempt = decided.attempt
  AND refused.newest = 1
WHERE (decided.sends > 0 OR decided.writes > 0)
  AND coalesce(done.sent_count, 0) + coalesce(done.written_count, 0) < coalesce(decided.sends, 0) + coalesce(decided.writes, 0)
