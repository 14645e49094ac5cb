"""What a test needs of the machine."""

import subprocess
import sys

import pytest

NO_TRITON = subprocess.run([sys.executable, "-c", "import triton"], capture_output=True, check=False).returncode != 0
needs_triton = pytest.mark.skipif(NO_TRITON, reason="triton cannot be imported here")
