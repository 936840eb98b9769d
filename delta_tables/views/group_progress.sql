-- One row per group and queue: how far the group has come, from its newest report.
-- lag counts queue positions, so with a tag filter it also counts messages the group does not take.
-- rate_per_s is the queue positions of the newest batch over the time since the report before it, idle time
-- too; null where there is none before it. age is how old the report is; while messages come in, a growing age means that nothing is being handled.
SELECT
  consumer_group,
  topic,
  broker_name,
  queue_id,
  next_offset AS reached_offset,
  max_offset,
  lag,
  subscription,
  recorded_at,
  current_timestamp() - recorded_at AS age,
  CASE WHEN recent_ms > 0 THEN recent_messages * 1000.0 / recent_ms END AS rate_per_s
FROM (
  SELECT
    consumer_group,
    topic,
    broker_name,
    queue_id,
    next_offset,
    max_offset,
    lag,
    subscription,
    recorded_at,
    next_offset - begin_offset AS recent_messages,
    recorded_ms - lag(recorded_ms) OVER (
      PARTITION BY consumer_group, topic, broker_name, queue_id ORDER BY recorded_at, batch_id
    ) AS recent_ms,
    row_number() OVER (
      PARTITION BY consumer_group, topic, broker_name, queue_id ORDER BY recorded_at DESC, batch_id DESC
    ) AS newest_first
  FROM consumer_offsets
  WHERE query_id <> 'retention'
) AS reports
WHERE newest_first = 1
