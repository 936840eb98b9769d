"""The group job: batches of messages go to a handler, verdicts to the ledger.

job.py              the job; start.py is where it begins without a checkpoint
registration.py     what its start makes at brokers, and takes back when it is refused
slice_tasks.py      a batch is read where it is handled; map_arrow.py is Spark's part of it
older_checkpoint.py  a checkpoint that is older than the ledger is refused
batch_outcomes.py   writes what a batch came to; named_batch.py is its name there
outcome_rules.py    what holds for all batches; outcome_commit.py appends what one came to
frame_decisions.py  a function of DataFrames decides before
learned_of_handler.py  what is known of the handler by then
batch_range.py      what a batch covers; batch_parts.py first deliveries, and what comes again
handled_messages.py  messages as a handler sees them; message_frame.py as a DataFrame
outcomes.py         from messages to rows of `deliveries`; outcome_rows.py: what a result means for its row,
                    carried.py: what their verdicts send and write, addressing.py: the messages of it
task_pieces.py      messages of a task that are handled at a time
batch_report.py     what a batch came to; told_batches.py tells a broker of it for its metrics
progress_report.py  how far a batch brought the group; offset_report.py tells the brokers
waiting_retries.py  what a run leaves for a later one
long_calls.py       calls that a batch does not wait for
batch_size.py       how many messages, by the time they take
worker_death.py     a handler ended its worker; quarantine.py is what the group does about it
parted_batch.py     a batch that ends workers all the same, part by part; task_part.py is such a part,
                    task_attempt.py says how often Spark has started a task
known_attempts.py   retried messages that the ledger has are not handled again
retry_shares.py     which task handles which of the others
lost_retries.py     what did not come back is sent again
orderly/            messages that are handled one after the other
skips/              messages that an operator gave up
loss_record.py      what could not be read; truncated_log.py goes on where offsets were given again,
                    given_again.py is what the ledger calls such messages
fence.py            whose appends a table takes
ledger_consumer.py  the streams beside it, over rows of one kind; ledger_stream.py is where they begin
landed_rows.py      rows that such a stream worked off before
"""
