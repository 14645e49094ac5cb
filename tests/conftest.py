"""For all tests: signals as a person's shell leaves them, whatever started pytest (nohup and `&` have some ignored);
and device queues of their own, so that no server of this machine is waited for."""

import os
import signal
import tempfile

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
LEASES = tempfile.TemporaryDirectory(prefix="leases-")
os.environ["NCU_SERVER_LEASES"] = LEASES.name
