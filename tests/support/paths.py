"""Where things of the repository lie."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NSIGHT = ROOT / "tests" / "support" / "nsight"
