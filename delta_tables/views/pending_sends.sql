-- Acknowledged attempts of whose messages some are neither recorded as sent nor given up.
-- waiting: how many of its messages that are. code, error, refused_at: a broker's last refusal of one of them.
SELECT
  decided.consumer_group,
  decided.topic,
  decided.broker_name,
  decided.queue_id,
  decided.queue_offset,
  decided.attempt,
  decided.message_id,
  decided.sends,
  CAST(decided.sends - coalesce(done.settled, 0) AS INT) AS waiting,
  decided.finished_at AS decided_at,
  refused.code,
  refused.error,
  refused.refused_at
FROM deliveries AS decided
LEFT JOIN (
  SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, count(DISTINCT number) AS settled
  FROM (
    SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, number FROM sent_messages
    UNION ALL
    SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt, number FROM discarded_sends
  ) AS each_message
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
WHERE decided.sends > 0 AND coalesce(done.settled, 0) < decided.sends
