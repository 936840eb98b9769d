-- Messages of orderly groups that wait for an earlier message of their lane (its sharding key, else its queue), and the
-- attempt that waits. sharding_key is null where the lane is the queue.
SELECT
  parked.consumer_group,
  parked.topic,
  parked.broker_name,
  parked.queue_id,
  parked.queue_offset,
  parked.attempt,
  parked.message_id,
  parked.tags,
  parked.properties['LMQ_SHARDING_KEY'] AS sharding_key,
  parked.finished_at AS parked_at
FROM deliveries AS parked
LEFT JOIN (
  SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt
  FROM deliveries
  WHERE verdict <> 'PARKED'
) AS made
  ON made.consumer_group = parked.consumer_group
  AND made.topic = parked.topic
  AND made.broker_name = parked.broker_name
  AND made.queue_id = parked.queue_id
  AND made.queue_offset = parked.queue_offset
  AND made.attempt = parked.attempt
WHERE parked.verdict = 'PARKED' AND made.attempt IS NULL
