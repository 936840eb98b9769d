"""What one connection may cost, and its answers in the order of its requests."""
