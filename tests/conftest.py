"""For all tests: signals as a person's shell leaves them, whatever started pytest (nohup and `&` have some ignored)."""

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
