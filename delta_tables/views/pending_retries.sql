-- Attempts that failed and have not been followed by the next attempt yet, with the time it is due.
-- One that came back and was parked (orderly mode) is in parked_messages. suspends_lane: of an orderly group, whose
-- lane waits for it.
SELECT
  failed.consumer_group,
  failed.topic,
  failed.broker_name,
  failed.queue_id,
  failed.queue_offset,
  failed.attempt,
  failed.message_id,
  failed.tags,
  failed.error_type,
  failed.error_text,
  failed.finished_at AS failed_at,
  failed.next_attempt_at,
  failed.properties['LMQ_SHARDING_KEY'] AS sharding_key,
  failed.properties['LMQ_ORDERLY'] IS NOT NULL AS suspends_lane
FROM deliveries AS failed
LEFT JOIN (
  SELECT consumer_group, topic, broker_name, queue_id, queue_offset, attempt
  FROM deliveries
  WHERE attempt > 1
) AS followed
  ON followed.consumer_group = failed.consumer_group
  AND followed.topic = failed.topic
  AND followed.broker_name = failed.broker_name
  AND followed.queue_id = failed.queue_id
  AND followed.queue_offset = failed.queue_offset
  AND followed.attempt - 1 = failed.attempt
WHERE failed.verdict = 'RETRY' AND followed.attempt IS NULL
