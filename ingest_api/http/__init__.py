"""The HTTP front door of the broker."""
