"""What every job runs on: its stream's start and end, its checkpoint, its lease."""
