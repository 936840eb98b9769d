-- Keys of deliveries that occur more than once. Zero rows when all is well. A message that was parked has one row
-- for that and one for its attempt.
SELECT
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempt,
  count(*) AS copies,
  min(message_id) AS message_id
FROM deliveries
GROUP BY consumer_group, topic, broker_name, queue_id, queue_offset, attempt, CASE WHEN verdict = 'PARKED' THEN 1 ELSE 0 END
HAVING count(*) > 1
