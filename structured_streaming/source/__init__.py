"""The source: `readStream` and `read` of a topic; consume queues are its partitions."""
