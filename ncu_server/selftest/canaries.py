"""What a candidate must leave alone, laid out where it may try: a file, a key, a port, a process of somebody else."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from ncu_server.places import PACKAGE

TEXT = "years of work\n"
PATIENCE_S = 3.0  # what a dead candidate left behind is killed soon after, not at once


class Canaries:
    """For the time of one case: `fill` puts into its source where everything is, `touched` says what it did."""

    def __init__(self) -> None:
        self.mark = f"canary-{secrets.token_hex(8)}"
        self.key = f"sk-{self.mark}"
        self._directory = Path(tempfile.mkdtemp(prefix="canary-"))
        self._directory.chmod(0o777)
        self._file = self._directory / "thesis.txt"
        self._file.write_text(TEXT)
        self._file.chmod(0o666)
        self._port = socket.create_server(("127.0.0.1", 0))
        self._port.setblocking(False)
        self._victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "print(flush=True); input()"],
            env={"CANARY_API_KEY": self.key},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._victim.stdout is not None
        self._victim.stdout.readline()  # until its exec is done a process has neither an environment nor a command line

    def __enter__(self) -> Canaries:
        return self

    def __exit__(self, *_: object) -> None:
        self._port.close()
        self._victim.kill()
        self._victim.communicate()
        shutil.rmtree(self._directory, ignore_errors=True)

    def fill(self, source: str) -> str:
        """The source with the places filled in."""
        places = {
            "@DIRECTORY@": str(self._directory),
            "@PORT@": str(self._port.getsockname()[1]),
            "@VICTIM@": str(self._victim.pid),
            "@MARK@": self.mark,
        }
        for word, value in places.items():
            source = source.replace(word, value)
        return source

    async def touched(self, said: str) -> tuple[str, ...]:
        """What was done to them, in the words of a case's `effects`; `said` is all that the judge tells."""
        found = {
            "file": self._changed(),
            "key": self.key in said,
            "network": self._visited(),
            "process": await self._left(),
            "victim": self._victim.poll() is not None,
        }
        return tuple(what for what, happened in found.items() if happened)

    def _changed(self) -> bool:
        """Whether the file is other than it was, or anything new bears the mark."""
        names = [p.name for p in self._directory.iterdir()] if self._directory.exists() else []
        if names != [self._file.name] or self._file.read_text() != TEXT or self._file.stat().st_mode & 0o777 != 0o666:
            return True
        places = (Path(sysconfig.get_path("purelib")), PACKAGE, Path.home(), Path(tempfile.gettempdir()))
        return any(list(place.glob(f"*{self.mark}*")) for place in places)

    def _visited(self) -> bool:
        try:
            self._port.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    async def _left(self) -> bool:
        until = time.monotonic() + PATIENCE_S
        while _running(self.mark):
            if time.monotonic() > until:
                return True
            await asyncio.sleep(0.05)
        return False


def _running(mark: str) -> bool:
    """Whether a process bears the mark in its command line."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in place.read_bytes():
                return True
        except OSError:
            continue
    return False
