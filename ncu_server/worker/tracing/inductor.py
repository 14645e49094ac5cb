"""What torch.compile made in this process: the kernels that its code launches, in order.

Inductor names a generated kernel after its kind and the operators that it fuses, such as
`triton_per_fused_add_native_layer_norm_0` or `cpp_fused_gelu_1`.
"""

from __future__ import annotations

import re
from pathlib import Path

from ncu_server.worker import private

LAUNCH = re.compile(r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+|\w*_fused_\w+?)(?:\.run)?\(", re.MULTILINE)


def launches() -> list[str]:
    """Names of generated kernels and of library calls; empty where nothing was compiled, or its code is not kept.

    Inductor's cache is torch's own affair: where another version keeps it otherwise, nothing is told, and no problem
    is to blame.
    """
    try:
        cache = private.take("torch._inductor.codecache.PyCodeCache")
        files = dict.fromkeys(module.__file__ for module in cache.modules)  # twice what is compiled ahead
        return [name for file in files for name in launched(Path(file).read_text())]
    except (ImportError, AttributeError, TypeError, OSError):
        return []


def launched(code: str) -> list[str]:
    """The same of one generated module."""
    return LAUNCH.findall(code.partition("def call(")[2])
