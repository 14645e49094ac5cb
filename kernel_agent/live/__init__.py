"""The page while runs and suites go on: a server on this machine that follows what is recorded."""
