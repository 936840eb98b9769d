"""What `spark-submit` runs for a consumer group; its arguments are those of `lakemq consume`."""

from jobs.entry_points import consume_task

consume_task()
