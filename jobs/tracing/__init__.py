"""Spans of a group's batches and of its handler's calls, for OpenTelemetry.

provider.py      whether there are any, where they go, and when they are sent
current_span.py  a span while a block runs, whatever goes wrong with it
batch_span.py    one for each batch, at the driver
call_spans.py    one for each call of the handler, where it is made

Without the packages, or unless somebody asks for traces, nothing of OpenTelemetry is imported.
"""
