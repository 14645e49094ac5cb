"""`.env`, in whatever encoding it was saved in."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values
from pydantic_settings import DotEnvSettingsSource

from kernel_agent.errors import UsageError
from rag import text_files


class DotEnv(DotEnvSettingsSource):
    """`.env` in whatever encoding it was saved in."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name if self.case_sensitive else name.lower(): v for name, v in dotenv().items() if v}


def dotenv(file: Path = Path(".env")) -> dict[str, str | None]:
    """What `.env` says; nothing where there is none. Raises UsageError, which names it, where it cannot be read."""
    if not file.is_file():
        return {}
    try:
        return dotenv_values(stream=io.StringIO(text_files.read(file, otherwise="cp1252")))
    except OSError as fault:
        raise UsageError(f"{file.absolute()} cannot be read ({fault.strerror}).") from None
    except text_files.NotText as fault:
        raise UsageError(f"{file.absolute()} {fault}.") from None
