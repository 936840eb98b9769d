"""What a client receives: problems, and small answers in one write."""
