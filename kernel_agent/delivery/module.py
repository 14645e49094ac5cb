"""The delivered file: how it is built, the kernel as it was judged, and what guards its calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pprint import pformat
from typing import Any

from kernel_agent.delivery.binding import bound
from kernel_agent.delivery.contract import PLAIN, Call, Contract, contract_of
from kernel_agent.delivery.source import within, without_future
from kernel_agent.run.types import Description, Device, Problem, digest
from kernel_agent.targets import target_of

SUFFIXED = ("90", "100", "120")
"""Architectures that servers built for with the suffix `a` before they said so."""
LEVELS = {"avx512": "AVX512", "avx2": "AVX2"}


def delivered(source: str, problem: Problem, description: Description, bind: str) -> str:
    """`source`, a kernel that passed on `problem`, as a file that works without us; `bind` is `tvm_ffi` or `torch`."""
    code = without_future(source)
    parts = [
        _constants(source, problem, description, bind),
        carried("build.py"),
        *([carried("binding.py")] if bind == "torch" else []),
        "# ---- The kernel, as it was judged. ----\n"
        + within(bound(code) if bind == "torch" else code, "with _ka_as_judged:"),
        *([carried("guard.py"), carried("compiled.py")] if _is_guarded(ast.parse(source)) else []),
    ]
    return "\n\n".join(parts)


@cache
def carried(name: str) -> str:
    """A text that delivered files carry."""
    return (files("kernel_agent.delivery") / "carried" / name).read_text("utf-8")


def _constants(source: str, problem: Problem, description: Description, bind: str) -> str:
    contract, device = contract_of(description), description.device
    why = contract.why_not_compiled
    values = {
        "NAME": f"k_{''.join(c if c.isalnum() and c.isascii() else '_' for c in problem.name)[:40]}_{digest(source)}",
        "TARGET": problem.target,
        "ARCH": device.arch,
        "DEVICE": device.name,
        "DEVICE_TYPE": target_of(problem.target).device,
        "ON_GPU": target_of(problem.target).on_gpu,
        "LEVEL": LEVELS.get(device.arch.partition("-")[2], ""),
        "GUARDED": _is_guarded(ast.parse(source)),
        "BUILD": _build(device, problem.target, bind),
        "CALLS": [_call(contract, call) for call in contract.calls],
        "TAKES": takes(contract),
        "PARAMETERS": {name: (list(p.shape), p.dtype) for name, p in (contract.parameters or {}).items()},
        "CHANGES": contract.changes,
        "MADE": contract.made,
        "MODE": contract.mode,
        "LEAVES": list(contract.leaves),
        "FORM": contract.form,
        "RETURNS": contract.returns,
        "PLAIN": "".join(f", {PLAIN[k]} p{n}" for n, k in enumerate(contract.leaves) if k in PLAIN),
        "HAS_MODEL": _can_fall_back(ast.parse(source)),
        "COMPILES": why is None,
        "WHY_NOT": f"torch.compile cannot take this kernel whole: {why}; call it outside the compiled part."
        if why
        else "",
    }
    rows = [f"_KA_{name} = {pformat(value, width=112, sort_dicts=False)}" for name, value in values.items()]
    dtypes = ", ".join(f"_ka_torch.{dtype}" for dtype in sorted(set(_dtypes(contract))))
    return "\n".join(
        [
            "# ---- What was verified. ----",
            "import torch as _ka_torch",
            "",
            *rows,
            f"_KA_DTYPES = ({dtypes}{',' if dtypes else ''})",
        ]
    )


def _can_fall_back(tree: ast.Module) -> bool:
    """Whether `Model` is there, and ModelNew has no methods of its own that the original might call."""
    named = any(_names_model(node) for node in tree.body)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    methods = [one for node in classes[-1:] for one in node.body if isinstance(one, ast.FunctionDef)]
    own = {one.name for one in methods if one.name != "__init__" or not _calls_another_constructor(one)}
    return named and bool(classes) and own <= {"forward"}


def _calls_another_constructor(method: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "__init__" for node in ast.walk(method))


def _is_guarded(tree: ast.Module) -> bool:
    """Whether ModelNew is a class that is written out, whose calls can be checked."""
    return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)


def _names_model(node: ast.stmt) -> bool:
    match node:
        case ast.ClassDef(name="Model") | ast.Assign(targets=[ast.Name(id="Model")]):
            return True
    return False


def _build(device: Device, target: str, bind: str) -> dict[str, str]:
    if not target_of(target).arch_list:
        return {}
    digits = device.arch.removeprefix("sm_")
    older = f"{digits[:-1]}.{digits[-1]}{'a' if digits in SUFFIXED else ''}"
    name = "TORCH_CUDA_ARCH_LIST" if bind == "torch" else "TVM_FFI_CUDA_ARCH_LIST"
    return {name: device.build_arch or older}


def _call(contract: Contract, call: Call) -> dict[str, Any]:
    """One call; without the kinds of its inputs where an older run knows those of the first call alone."""
    return {
        "takes": [(list(t.shape), t.dtype, list(t.strides)) for t in call.takes],
        "gives": [(list(g.shape), g.dtype) for g in call.gives],
        "held": list(call.held),
        "leaves": list(call.leaves or (contract.leaves if contract.is_plain else ())),
        "form": call.form or contract.form,
    }


def takes(contract: Contract) -> str:
    """The calls in words: `float32 [16, 1024], float32 [1024]`, several joined by `or`."""
    return " or ".join(", ".join(f"{t.dtype} {list(t.shape)}" for t in call.takes) for call in contract.calls)


def _dtypes(contract: Contract) -> Iterator[str]:
    for call in contract.calls:
        yield from (taken.dtype for taken in call.takes)
        yield from (given.dtype for given in call.gives)
