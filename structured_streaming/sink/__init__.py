"""The sink: rows become messages, each once however often a batch is written."""
