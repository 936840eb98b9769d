"""The broker without a protocol: sends, pulls, topics, groups, over one store."""
