-- Dead letters by group, topic and cause.
SELECT
  consumer_group,
  topic,
  reason,
  error_type,
  count(DISTINCT message_id) AS messages,
  min(attempts) AS min_attempts,
  max(attempts) AS max_attempts,
  min(first_attempt_at) AS first_at,
  max(last_attempt_at) AS last_at,
  min(error_text) AS an_error_text,
  min(message_id) AS a_message_id
FROM dead_letters
GROUP BY consumer_group, topic, reason, error_type
