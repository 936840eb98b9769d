"""What one connection may cost, and which answers it has not sent yet."""
