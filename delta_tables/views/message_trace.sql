-- One row per event of a message; its attempts, dead letters and replays keep its message_id. Times are in UTC.
-- event and event_at: STORED, when a broker stored it (what lakemq archive landed, the retry topic's copies
-- where that is archived too); ATTEMPT, when a group's handler returned; PUT_OFF, when its batch took too long and the
-- handler was not called; PARKED, when it had to wait for an earlier message of its lane (orderly mode); DEAD_LETTER, when the last attempt of a
-- message given up ended; REPLAY, DISCARD and SKIP, when an operator did so; SENT, when a message that a verdict about
-- it sends was stored; SEND_REFUSED, when a broker did not take one; SEND_DISCARDED, when an operator gave one up;
-- WRITTEN, when a row that it writes was in its table, whose name is in sent_topic.
-- attempt: attempts made by then, an attempt itself included; of PUT_OFF its number, which no other attempt has. ORDER BY event_at, attempt, event is the order of
-- events, also where an attempt and what came of it have one time.
-- Position: the original message's, but STORED has the one it was stored at.
-- Ask by message_id, by position or by event_at: they reach the statistics of all files. A condition on
-- consumer_group reaches those of all but messages.
-- nullif(x, x) is a null that the engine of lakemq sql does not work out beforehand: it would pass over a
-- condition that comes to NULL.
SELECT
  message_id,
  finished_at AS event_at,
  CASE
    WHEN verdict = 'PARKED' THEN 'PARKED'
    WHEN verdict = 'RETRY' AND started_at IS NULL THEN 'PUT_OFF'
    ELSE 'ATTEMPT'
  END AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  CASE WHEN verdict = 'PARKED' THEN attempt - 1 ELSE attempt END AS attempt,
  verdict,
  reason,
  error_type,
  error_text,
  started_at,
  next_attempt_at,
  worker,
  nullif(message_id, message_id) AS operator,
  nullif(message_id, message_id) AS sent_topic,
  nullif(message_id, message_id) AS sent_message_id
FROM deliveries
UNION ALL
SELECT
  message_id,
  store_timestamp AS event_at,
  'STORED' AS event,
  nullif(message_id, message_id) AS consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  reconsume_times AS attempt,
  nullif(message_id, message_id) AS verdict,
  nullif(message_id, message_id) AS reason,
  nullif(message_id, message_id) AS error_type,
  nullif(message_id, message_id) AS error_text,
  nullif(store_timestamp, store_timestamp) AS started_at,
  nullif(store_timestamp, store_timestamp) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  nullif(message_id, message_id) AS operator,
  nullif(message_id, message_id) AS sent_topic,
  nullif(message_id, message_id) AS sent_message_id
FROM messages
UNION ALL
SELECT
  message_id,
  last_attempt_at AS event_at,
  'DEAD_LETTER' AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempts AS attempt,
  nullif(message_id, message_id) AS verdict,
  reason,
  error_type,
  error_text,
  nullif(last_attempt_at, last_attempt_at) AS started_at,
  nullif(last_attempt_at, last_attempt_at) AS next_attempt_at,
  worker,
  nullif(message_id, message_id) AS operator,
  nullif(message_id, message_id) AS sent_topic,
  nullif(message_id, message_id) AS sent_message_id
FROM dead_letters
UNION ALL
SELECT
  message_id,
  replayed_at AS event_at,
  coalesce(action, 'REPLAY') AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempts AS attempt,
  nullif(message_id, message_id) AS verdict,
  coalesce(reason, 'another body, sha256 ' || new_body_sha256) AS reason,
  nullif(message_id, message_id) AS error_type,
  nullif(message_id, message_id) AS error_text,
  nullif(replayed_at, replayed_at) AS started_at,
  nullif(replayed_at, replayed_at) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  operator,
  nullif(message_id, message_id) AS sent_topic,
  nullif(message_id, message_id) AS sent_message_id
FROM replays
UNION ALL
SELECT
  message_id,
  sent_at AS event_at,
  'SENT' AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempt,
  nullif(message_id, message_id) AS verdict,
  nullif(message_id, message_id) AS reason,
  nullif(message_id, message_id) AS error_type,
  nullif(message_id, message_id) AS error_text,
  nullif(sent_at, sent_at) AS started_at,
  nullif(sent_at, sent_at) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  nullif(message_id, message_id) AS operator,
  sent_topic,
  sent_message_id
FROM sent_messages
UNION ALL
SELECT
  message_id,
  written_at AS event_at,
  'WRITTEN' AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempt,
  nullif(message_id, message_id) AS verdict,
  nullif(message_id, message_id) AS reason,
  nullif(message_id, message_id) AS error_type,
  nullif(message_id, message_id) AS error_text,
  nullif(written_at, written_at) AS started_at,
  nullif(written_at, written_at) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  nullif(message_id, message_id) AS operator,
  table_name AS sent_topic,
  nullif(message_id, message_id) AS sent_message_id
FROM written_rows
UNION ALL
SELECT
  message_id,
  refused_at AS event_at,
  'SEND_REFUSED' AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempt,
  nullif(message_id, message_id) AS verdict,
  nullif(message_id, message_id) AS reason,
  code AS error_type,
  error AS error_text,
  nullif(refused_at, refused_at) AS started_at,
  nullif(refused_at, refused_at) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  nullif(message_id, message_id) AS operator,
  sent_topic,
  sent_message_id
FROM refused_sends
UNION ALL
SELECT
  message_id,
  discarded_at AS event_at,
  'SEND_DISCARDED' AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempt,
  nullif(message_id, message_id) AS verdict,
  reason,
  nullif(message_id, message_id) AS error_type,
  nullif(message_id, message_id) AS error_text,
  nullif(discarded_at, discarded_at) AS started_at,
  nullif(discarded_at, discarded_at) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  operator,
  sent_topic,
  sent_message_id
FROM discarded_sends
UNION ALL
SELECT
  message_id,
  skipped_at AS event_at,
  'SKIP' AS event,
  consumer_group,
  topic,
  broker_name,
  queue_id,
  queue_offset,
  attempts AS attempt,
  nullif(message_id, message_id) AS verdict,
  reason,
  nullif(message_id, message_id) AS error_type,
  nullif(message_id, message_id) AS error_text,
  nullif(skipped_at, skipped_at) AS started_at,
  nullif(skipped_at, skipped_at) AS next_attempt_at,
  nullif(message_id, message_id) AS worker,
  operator,
  nullif(message_id, message_id) AS sent_topic,
  nullif(message_id, message_id) AS sent_message_id
FROM skipped_messages
