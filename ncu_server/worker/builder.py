"""The build child: imports the candidate where compilers are allowed and records each library it makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ncu_server.worker.libraries import Libraries
from ncu_server.worker.modules import load


class Builder:
    """One candidate's build in a directory of its own."""

    def build(self, fds: list[int], source: str, directory: str, environment: dict[str, str]) -> dict[str, Any]:
        """Import the candidate and say which libraries it made; what the compiler printed travels in the exception."""
        place = Path(directory)
        place.mkdir(parents=True, exist_ok=True)
        os.environ.update(environment)
        os.environ["TVM_FFI_CACHE_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] = str(place)
        with Libraries.recording(place) as built:
            module = load(source, "candidate")
        return {"libraries": built, "classes": [n for n in ("ModelNew",) if hasattr(module, n)]}
