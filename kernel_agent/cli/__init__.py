"""The command line: run, resume, show, evaluate, experience, doctor."""
