"""A user's function of DataFrames in a job: a batch's messages in, the same rows with their verdicts out.

frame_handler.py     the function, or the text in SQL, and what its frame must have
evaluation.py        the function applied to a batch; where it fails, to parts of it
frame_verdicts.py    what its rows say of the messages: one verdict each
spark_failure.py     what a failed action of Spark says, in a sentence
decided_verdicts.py  the verdicts on their way to the tasks that make the outcomes
"""
