"""Where the corpus lies: inside this package once it is installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parent

CORPUS = next((root for root in (_HERE / "corpus", _HERE.parent / "corpus") if root.is_dir()), _HERE / "corpus")
"""`docs/`, `kernels/` and `vectors/`; setup.py puts them into the package `rag.corpus` of a wheel."""
