"""What `spark-submit` runs for a consumer group; its arguments are those of `lakemq consume`."""

from lakemq import own_packages

own_packages.claim()  # whatever was sent, or lies about

from jobs.entry_points import consume_task  # noqa: E402

consume_task()
