"""A user's handler in a job: found, called on a batch, and what became of each message."""
