"""The two paths of messages, past the web framework: sends and pulls."""
