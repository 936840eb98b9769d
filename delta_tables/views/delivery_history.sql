-- One row per group and message, its attempts as an array in order.
-- state: ACK done; RETRY waits for another attempt; DEAD given up at the last attempt (a replay makes further ones);
-- DROPPED failed in broadcast mode; PARKED waits for an earlier message of its lane (orderly mode): its next attempt
-- was not made yet, and is none of its attempts. Nor is one that was put off (its batch took too long, the handler was
-- not called): numbers of attempts leave it out.
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
    WHEN max(CASE WHEN verdict = 'PARKED' THEN attempt ELSE 0 END)
      > max(CASE WHEN verdict <> 'PARKED' THEN attempt ELSE 0 END) THEN 'PARKED'
    WHEN max(CASE WHEN verdict = 'DEAD' THEN attempt ELSE 0 END) = max(attempt) THEN 'DEAD'
    WHEN max(CASE WHEN verdict = 'DROPPED' THEN 1 ELSE 0 END) = 1 THEN 'DROPPED'
    ELSE 'RETRY'
  END AS state,
  count(CASE WHEN is_attempt THEN 1 END) AS attempt_count,
  min(started_at) AS first_started_at,
  max(CASE WHEN is_attempt THEN finished_at END) AS last_finished_at,
  CASE WHEN count(CASE WHEN is_attempt THEN 1 END) > 0 THEN array_sort(array_agg(named_struct(
    'attempt', attempt,
    'verdict', verdict,
    'started_at', started_at,
    'finished_at', finished_at,
    'next_attempt_at', next_attempt_at,
    'reason', reason,
    'error_type', error_type,
    'error_text', error_text,
    'worker', worker
  )) FILTER (WHERE is_attempt)) END AS attempts
FROM (
  SELECT *, verdict <> 'PARKED' AND (verdict <> 'RETRY' OR started_at IS NOT NULL) AS is_attempt
  FROM deliveries
) AS told
GROUP BY consumer_group, topic, broker_name, queue_id, queue_offset, message_id
