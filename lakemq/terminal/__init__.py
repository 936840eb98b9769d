"""What a person at a terminal sees: failures in a sentence, tables, progress; Ctrl-C."""
