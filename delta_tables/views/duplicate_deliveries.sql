-- Keys of deliveries that occur more than once. Zero rows when all is well.
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
GROUP BY consumer_group, topic, broker_name, queue_id, queue_offset, attempt
HAVING count(*) > 1
