"""`python -m kernel_agent`."""

import sys

from kernel_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
