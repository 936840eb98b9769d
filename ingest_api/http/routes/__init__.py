"""The administrative API, one module a noun; each has ``router(broker)``."""
