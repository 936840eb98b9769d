-- Positions a group should have a first delivery for and has none. Zero rows when all is well.
-- recorded: how many of them data_losses knows to be lost (--on-data-loss record), with the reason; a gap
-- is explained when recorded = missing.
-- Queue offsets are dense, so a hole between two rows is a gap, and so is anything a report in
-- consumer_offsets calls done that has no row. Limits: with a tag filter holes are what the filter left
-- out and cannot be told from gaps, so topics a group read with one are left out here; the group's
-- retry topic is not looked at (pending_retries shows what is missing there). Where maintenance has deleted
-- rows (--keep-days), a queue is looked at from behind them on (retained_from.py).
SELECT
  consumer_group,
  topic,
  broker_name,
  queue_id,
  from_offset,
  to_offset,
  missing,
  sum(CASE WHEN last_lost >= first_lost THEN last_lost - first_lost + 1 ELSE 0 END) AS recorded,
  min(reason) AS reason
FROM (
  SELECT
    gaps.consumer_group,
    gaps.topic,
    gaps.broker_name,
    gaps.queue_id,
    gaps.from_offset,
    gaps.to_offset,
    gaps.missing,
    lost.reason,
    -- least and greatest pass over nulls: without a loss there must be no range at all.
    CASE WHEN lost.from_offset IS NOT NULL THEN
      greatest(
        gaps.from_offset,
        lost.from_offset,
        -- Ranges of several batches may overlap: each position counts in the first one that names it.
        coalesce(
          max(lost.to_offset) OVER (
            PARTITION BY gaps.consumer_group, gaps.topic, gaps.broker_name, gaps.queue_id, gaps.from_offset
            ORDER BY lost.from_offset, lost.to_offset
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
          ) + 1,
          gaps.from_offset
        )
      )
    END AS first_lost,
    CASE WHEN lost.from_offset IS NOT NULL THEN least(gaps.to_offset, lost.to_offset) END AS last_lost
  FROM (
      SELECT
        holes.consumer_group,
        holes.topic,
        holes.broker_name,
        holes.queue_id,
        greatest(holes.from_offset, coalesce(kept.first_offset, holes.from_offset)) AS from_offset,
        holes.to_offset,
        holes.to_offset - greatest(holes.from_offset, coalesce(kept.first_offset, holes.from_offset)) + 1 AS missing
      FROM (
        SELECT
          consumer_group,
          topic,
          broker_name,
          queue_id,
          previous_offset + 1 AS from_offset,
          queue_offset - 1 AS to_offset
        FROM (
          SELECT
            consumer_group,
            topic,
            broker_name,
            queue_id,
            queue_offset,
            lag(queue_offset) OVER (
              PARTITION BY consumer_group, topic, broker_name, queue_id ORDER BY queue_offset
            ) AS previous_offset
          FROM deliveries
          WHERE source_topic = topic
        ) AS neighbours
        WHERE queue_offset - previous_offset > 1
        UNION ALL
        SELECT
          done.consumer_group,
          done.topic,
          done.broker_name,
          done.queue_id,
          coalesce(there.last_offset + 1, done.begin_offset) AS from_offset,
          done.next_offset - 1 AS to_offset
        FROM (
          SELECT
            consumer_group, topic, broker_name, queue_id,
            min(begin_offset) AS begin_offset,
            max(next_offset) AS next_offset
          FROM consumer_offsets
          GROUP BY consumer_group, topic, broker_name, queue_id
        ) AS done
        LEFT JOIN (
          SELECT
            consumer_group, topic, broker_name, queue_id,
            min(queue_offset) AS first_offset,
            max(queue_offset) AS last_offset
          FROM deliveries
          WHERE source_topic = topic
          GROUP BY consumer_group, topic, broker_name, queue_id
        ) AS there
          ON there.consumer_group = done.consumer_group
          AND there.topic = done.topic
          AND there.broker_name = done.broker_name
          AND there.queue_id = done.queue_id
        WHERE done.next_offset > coalesce(there.last_offset + 1, done.begin_offset)
        UNION ALL
        SELECT
          done.consumer_group,
          done.topic,
          done.broker_name,
          done.queue_id,
          done.begin_offset AS from_offset,
          there.first_offset - 1 AS to_offset
        FROM (
          SELECT consumer_group, topic, broker_name, queue_id, min(begin_offset) AS begin_offset
          FROM consumer_offsets
          GROUP BY consumer_group, topic, broker_name, queue_id
        ) AS done
        JOIN (
          SELECT consumer_group, topic, broker_name, queue_id, min(queue_offset) AS first_offset
          FROM deliveries
          WHERE source_topic = topic
          GROUP BY consumer_group, topic, broker_name, queue_id
        ) AS there
          ON there.consumer_group = done.consumer_group
          AND there.topic = done.topic
          AND there.broker_name = done.broker_name
          AND there.queue_id = done.queue_id
        WHERE there.first_offset > done.begin_offset
      ) AS holes
      LEFT JOIN (
        SELECT consumer_group, topic, broker_name, queue_id, max(next_offset) AS first_offset
        FROM consumer_offsets
        WHERE query_id = 'retention'
        GROUP BY consumer_group, topic, broker_name, queue_id
      ) AS kept
        ON kept.consumer_group = holes.consumer_group
        AND kept.topic = holes.topic
        AND kept.broker_name = holes.broker_name
        AND kept.queue_id = holes.queue_id
      WHERE substr(holes.topic, 1, 7) <> '%RETRY%'
        AND holes.to_offset >= coalesce(kept.first_offset, holes.to_offset)
        AND NOT EXISTS (
          SELECT 1
          FROM consumer_offsets AS filtered
          WHERE filtered.consumer_group = holes.consumer_group
            AND filtered.topic = holes.topic
            AND filtered.subscription <> '*'
        )
  ) AS gaps
  LEFT JOIN data_losses AS lost
    ON lost.consumer_group = gaps.consumer_group
    AND lost.topic = gaps.topic
    AND lost.broker_name = gaps.broker_name
    AND lost.queue_id = gaps.queue_id
    AND lost.from_offset <= gaps.to_offset
    AND lost.to_offset >= gaps.from_offset
) AS parts
GROUP BY consumer_group, topic, broker_name, queue_id, from_offset, to_offset, missing
