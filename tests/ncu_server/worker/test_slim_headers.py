"""torch's load_inline with slim headers: what they build, and when the whole ones are taken."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.cpp_extension as extension
from torch.utils._cpp_extension_versioner import ExtensionVersioner

from ncu_server.worker.building import slim_headers
from tests.support.edits import edit

SOURCE = """
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 1 && x.scalar_type() == torch::kFloat32, "a vector of floats is expected");
  auto o = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "twice", [&] {
    for (int64_t i = 0; i < x.numel(); ++i) o.data_ptr<scalar_t>()[i] = 2 * x.data_ptr<scalar_t>()[i];
  });
  return o;
}
"""
LOGS = {
    "main.cpp:9:3: error: ‘lozt’ was not declared in this scope": True,
    'cuda.cu(9): error: identifier "lozt" is undefined': True,
    'cuda.cu(9): error: expected a ";"': True,
    'cuda.cu(9): error: namespace "torch" has no member "conv1d"': False,
    'cuda.cu(9): error: identifier "lozt" is undefined\ncuda.cu(10): error: name must be a namespace name': False,
    "main.cpp:9:3: error: expected initializer before ‘TORCH_LIBRARY’": False,
    "main.cpp:1:10: fatal error: cusparse.h: No such file or directory": False,
    "undefined symbol: _Z3runv": False,
}


@pytest.mark.parametrize("log", LOGS)
def test_only_errors_that_slim_headers_cannot_cause_end_the_build(log: str) -> None:
    assert slim_headers._own_fault(log) is LOGS[log]


def test_each_slim_header_shadows_one_of_torch() -> None:
    whole = [Path(p) for p in extension.include_paths()]
    names = [p.relative_to(slim_headers.HEADERS) for p in slim_headers.HEADERS.rglob("*.h")]
    assert names and not [n for n in names if not any((w / n).exists() for w in whole)]


class Builds:
    """The real load_inline, noting which headers each call took."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.__signature__ = inspect.signature(extension.load_inline)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.took.append("slim" if str(slim_headers.HEADERS) in kwargs.get("extra_include_paths", []) else "whole")
        return extension.load_inline(*args, **kwargs)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("change", "took", "raised"),
    [
        (None, ["slim"], None),
        (("return o;", "return torch::conv1d(o.view({1, 1, 4}), o.view({1, 1, 4}));"), ["slim", "whole"], None),
        (("return o;", "return torch::ones(4, torch::requires_grad());"), ["whole"], None),
        (("x.numel()", "x.nummel()"), ["slim"], "nummel"),
        (("return o;", "return o + missing_name;"), ["slim"], "missing_name"),
    ],
    ids=["kernel", "another operator", "gradients", "no such method", "no such name"],
)
def test_whole_headers_are_taken_where_slim_ones_do_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str] | None, took: list[str], raised: str | None
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(extension, "JIT_EXTENSION_VERSIONER", ExtensionVersioner())
    builds, sources = Builds(), [edit(SOURCE, *change) if change else SOURCE]
    given: dict[str, Any] = {"name": "twice", "cpp_sources": sources, "functions": ["run"]}
    if raised:
        with pytest.raises(RuntimeError, match=raised):
            slim_headers.load_inline(builds, tmp_path, **given)
    else:
        module = slim_headers.load_inline(builds, tmp_path, **given)
        assert module.__name__ == "twice" and module.run(torch.ones(4)).numel()
    assert builds.took == took and len(sources) == 1
