"""What a person at a terminal sees.

output.py        tables, JSON
progress_bar.py  progress towards an end
living_line.py   how something goes that has none
failure.py       a failure in a sentence
guard.py         text, and nothing that steers the terminal
interrupts.py    Ctrl-C
"""
