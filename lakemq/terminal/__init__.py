"""What a person at a terminal sees.

output.py        tables, JSON
progress_bar.py  progress
failure.py       a failure in a sentence
guard.py         text, and nothing that steers the terminal
interrupts.py    Ctrl-C
"""
