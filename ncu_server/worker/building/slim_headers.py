"""torch's `load_inline` against slim headers first: a third of the time, the same code, the source unchanged.

Nine tenths of a build are torch's headers. The folder `slim` shadows those that sources name (`torch/extension.h`,
`torch/types.h`, `ATen/ATen.h`) with torch's own declarations of what kernels use: tensors, factories, dispatch, checks,
bindings. What is not among them fails to compile, and then the whole headers are taken; the log is theirs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch.utils.cpp_extension

from ncu_server.worker import private

ExtensionVersioner = private.take("torch.utils._cpp_extension_versioner.ExtensionVersioner")
HEADERS = Path(__file__).parent / "slim"
SOURCES = ("cpp_sources", "cuda_sources")
# Known to need the whole headers; with `requires_grad` slim factories would compile and refuse when they run.
WHOLE = re.compile(r"requires_grad|torch::(nn|autograd|jit|tensor|from_blob)\b|TORCH_LIBRARY|globalContext")
ERROR = re.compile(r"\berror: (.*)")
QUOTED = re.compile(r"[\"'‘]([A-Za-z_]\w*)[\"'’]")
TORCH_FOLDERS = ("ATen", "c10", "torch")


def load_inline(real: Callable[..., Any], directory: Path, *args: Any, **kwargs: Any) -> Any:
    """What `real` gives for these arguments, built below `directory` where slim headers do. Raises what `real` does."""
    given = inspect.signature(real).bind(*args, **kwargs).arguments
    if not WHOLE.search("\n".join(_texts(given))):
        try:
            return _slim(real, directory, given)
        except (RuntimeError, ImportError) as fault:
            if _own_fault(str(fault)):
                raise
    return real(**_copied(given))


def _slim(real: Callable[..., Any], directory: Path, given: dict[str, Any]) -> Any:
    place = directory / f"slim-{len(list(directory.glob('slim-*')))}"
    place.mkdir()
    paths = [str(HEADERS), *(given.get("extra_include_paths") or [])]
    # torch numbers extensions of one name; a second build with the whole headers is to be the first of its name.
    with patch.object(torch.utils.cpp_extension, "JIT_EXTENSION_VERSIONER", ExtensionVersioner()):
        return real(**_copied(given) | {"extra_include_paths": paths, "build_directory": str(place)})


def _copied(given: dict[str, Any]) -> dict[str, Any]:
    """torch adds lines to the lists that it is given."""
    return {name: list(value) if isinstance(value, list) else value for name, value in given.items()}


def _texts(given: dict[str, Any]) -> Iterator[str]:
    for name in SOURCES:
        value = given.get(name) or []
        yield from [value] if isinstance(value, str) else value


def _own_fault(log: str) -> bool:
    """Whether the whole headers would not help: all errors are of grammar or name what no header of torch does."""
    errors = [(error, set(QUOTED.findall(error))) for error in ERROR.findall(log)]
    known = _named_by_torch(set().union(*(names for _, names in errors)))
    return bool(errors) and all(names - known or (e.startswith("expected") and not names) for e, names in errors)


def _named_by_torch(names: set[str]) -> set[str]:
    """Those of `names` that stand in a header of torch; reading all headers takes two seconds."""
    words = re.compile(rb"\b(?:%s)\b" % "|".join(names).encode())
    folders = [Path(p) / f for p in torch.utils.cpp_extension.include_paths() for f in TORCH_FOLDERS]
    files = (file for folder in folders if names for file in folder.rglob("*.h"))
    return {word.decode() for file in files for word in words.findall(file.read_bytes())}
