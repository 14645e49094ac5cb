"""`python -m kernel_agent`."""

import sys
from pathlib import Path

if __name__ == "__main__" and not sys.flags.safe_path and Path.cwd() != Path(__file__).resolve().parents[1]:
    del sys.path[0]  # the working folder, where `-m` looks first: a rag/ or a mcp.py there is not ours

from kernel_agent.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
