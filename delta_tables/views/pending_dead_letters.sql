-- Messages given up that the dead_letter job has not landed in dead_letters yet.
SELECT
  given_up.consumer_group,
  given_up.topic,
  given_up.broker_name,
  given_up.queue_id,
  given_up.queue_offset,
  given_up.attempt,
  given_up.message_id,
  given_up.reason,
  given_up.finished_at AS given_up_at
FROM deliveries AS given_up
LEFT JOIN dead_letters AS landed
  ON landed.consumer_group = given_up.consumer_group
  AND landed.topic = given_up.topic
  AND landed.broker_name = given_up.broker_name
  AND landed.queue_id = given_up.queue_id
  AND landed.queue_offset = given_up.queue_offset
  AND landed.attempts = given_up.attempt
WHERE given_up.verdict = 'DEAD' AND landed.attempts IS NULL
