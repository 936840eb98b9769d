-- Acknowledged attempts whose messages the outbox job has not sent yet, or has not recorded as sent.
-- All messages of an attempt are recorded by one commit, so the first speaks for all.
SELECT
  decided.consumer_group,
  decided.topic,
  decided.broker_name,
  decided.queue_id,
  decided.queue_offset,
  decided.attempt,
  decided.message_id,
  decided.sends,
  decided.finished_at AS decided_at
FROM deliveries AS decided
LEFT JOIN (
  SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt
  FROM sent_messages
  WHERE number = 1
) AS sent
  ON sent.consumer_group = decided.consumer_group
  AND sent.topic = decided.topic
  AND sent.broker_name = decided.broker_name
  AND sent.queue_id = decided.queue_id
  AND sent.queue_offset = decided.queue_offset
  AND sent.attempt = decided.attempt
WHERE decided.sends > 0 AND sent.attempt IS NULL
