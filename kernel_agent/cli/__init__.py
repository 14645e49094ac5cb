"""The command line: the commands, their flags, and what they show."""
