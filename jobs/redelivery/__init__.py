"""Messages that come back: which attempt counts, after what delay, and what a message carries along."""
