"""Runs of jobs and the datasets they read and write, for OpenLineage.

environment.py   whether anybody wants to know, as OpenLineage's own variables and files say it
datasets.py      what topics and tables are called there
event.py         what became of a run, and OpenLineage's event of it
event_sender.py  events on their way: nobody waits for them
job_run.py       a run, from its start to its end; group_run.py that of a consumer group

Without the package, or unless somebody asks, nothing of OpenLineage is imported.
"""
