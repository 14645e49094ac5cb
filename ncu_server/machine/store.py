"""What outlives the server: folders of builds, graphs and reports, and single files of what was measured."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CAP_BYTES = 1 << 30
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def write_whole(path: Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all: beside the file, then in its place. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".new-", delete=False) as half:
        half.write(text)
    Path(half.name).replace(path)


class Store:
    """Folders of files below `place`, each under a name that says what is in it (a hash of it, say).

    A folder is complete or absent: it is made elsewhere and renamed. Several servers may use one store. The least
    recently used go where there are more than `cap_bytes`.
    """

    def __init__(self, place: Path, cap_bytes: int = CAP_BYTES) -> None:
        self._place, self._cap = place, cap_bytes

    def find(self, name: str) -> Path | None:
        """The folder of this name, which is from now on the most recently used; None where there is none."""
        folder = self._place / name
        if not NAME.fullmatch(name) or not folder.is_dir():
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return folder

    def keep(self, name: str, files: Mapping[str, bytes]) -> Path:
        """Write a folder and return it; what is there under the name already stays. Old ones may go."""
        self._place.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=self._place))
        for file, content in files.items():
            (made / file).write_bytes(content)
        with contextlib.suppress(OSError):  # another call, or another server, was quicker
            made.rename(self._place / name)
        shutil.rmtree(made, ignore_errors=True)
        self._make_room(name)
        return self._place / name

    def drop(self, name: str) -> None:
        """Remove a folder."""
        shutil.rmtree(self._place / name, ignore_errors=True)

    def _make_room(self, newest: str) -> None:
        held = 0
        for _, size, folder in sorted(self._folders(), key=lambda f: (f[2].name == newest, f[0]), reverse=True):
            held += size
            if held > self._cap and folder.name != newest:
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> Iterator[tuple[float, int, Path]]:
        """Last use, bytes and path of each folder; what was left unfinished an hour ago counts as never used."""
        for folder in self._place.iterdir():
            with contextlib.suppress(OSError):
                used = folder.stat().st_mtime
                left = folder.name.startswith(".new-") and used < time.time() - 3600
                size = self._cap if left else sum(file.stat().st_size for file in folder.iterdir())
                yield (0.0 if left else used), size, folder
