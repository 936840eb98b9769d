"""Consumer groups: their configuration, their committed offsets, and who may move them."""
