"""One request as it comes in: its head, its body, its end."""
