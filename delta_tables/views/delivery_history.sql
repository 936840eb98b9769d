-- One row per group and message, its attempts as an array in order.
-- state: ACK done; RETRY waits for another attempt; DEAD given up at the last attempt (a replay makes further ones);
-- DROPPED failed in broadcast mode.
-- Ask by message_id, or by position: both reach the files' statistics.
SELECT
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  message_id,
  min(tags) AS tags,
  min(array_join(keys, ' ')) AS keys,
  CASE
    WHEN max(CASE WHEN verdict = 'ACK' THEN 1 ELSE 0 END) = 1 THEN 'ACK'
    WHEN max(CASE WHEN verdict = 'DEAD' THEN attempt ELSE 0 END) = max(attempt) THEN 'DEAD'
    WHEN max(CASE WHEN verdict = 'DROPPED' THEN 1 ELSE 0 END) = 1 THEN 'DROPPED'
    ELSE 'RETRY'
  END AS state,
  count(*) AS attempt_count,
  min(started_at) AS first_started_at,
  max(finished_at) AS last_finished_at,
  array_sort(array_agg(named_struct(
    'attempt', attempt,
    'verdict', verdict,
    'started_at', started_at,
    'finished_at', finished_at,
    'next_attempt_at', next_attempt_at,
    'reason', reason,
    'error_type', error_type,
    'error_text', error_text,
    'worker', worker
  ))) AS attempts
FROM deliveries
GROUP BY consumer_group, topic, broker_name, queue_id, queue_offset, message_id
