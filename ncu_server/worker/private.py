"""All private and unstable parts of torch and Triton that the workers lean on, each with its purpose.

Whoever needs one takes it here, so that the list is whole: test_private holds that nobody goes round it. The fork
server asks for all of them before it imports anything else of ours: a version that lacks one is
refused in one sentence, and no kernel is blamed. `.ci/versions` tries each version of versions.TRIED.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ncu_server.machine import versions


def _there(_: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Part:
    """Something private of a package, by the path that leads to it. `fits` says of what is found, or by an exception,
    whether it can be used as it is here. What is `spared` can be done without and is asked for where it is used."""

    path: str
    purpose: str
    fits: Callable[[Any], object] = _there
    spared: bool = False

    @property
    def package(self) -> str:
        return self.path.partition(".")[0]


def _profiles(config: Any) -> bool:
    """Whether the profiler's settings are made as provenance makes them."""
    import torch

    made = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    return bool(config(torch.autograd.ProfilerState.KINETO, False, False, False, False, False, made, ""))


CACHE_VERBS = {"get_file", "get_group", "put", "put_group"}
PARTS = (
    Part("torch._C._profiler._RecordFunctionFast", "marks calls on the profiler's timeline"),
    Part("torch._C._profiler._ExperimentalConfig", "lets the profiler see every thread"),
    Part("torch.autograd.ProfilerConfig", "sets the profiler up", _profiles),
    Part("torch.autograd.ProfilerState", "sets the profiler up", lambda states: states.KINETO),
    Part("torch.autograd.ProfilerActivity", "sets the profiler up", lambda kinds: (kinds.CPU, kinds.CUDA)),
    Part("torch.autograd.DeviceType", "tells kernels from operators", lambda kinds: kinds.CPU),
    Part("torch.autograd._prepare_profiler", "profiles without torch.profiler, which a candidate could replace"),
    Part("torch.autograd._enable_profiler", "profiles without torch.profiler, which a candidate could replace"),
    Part("torch.autograd._disable_profiler", "profiles without torch.profiler, which a candidate could replace"),
    Part("torch._C._jit_get_all_schemas", "tells torch's operators from a candidate's", lambda all_: all_()[0].name),
    Part("torch._C._len_torch_function_stack", "finds modes that a call leaves on", lambda count: count() >= 0),
    Part("torch._C._get_function_stack_at", "finds modes that a call leaves on"),
    Part("torch._C._len_torch_dispatch_stack", "finds modes that a call leaves on", lambda count: count() >= 0),
    Part("torch._C._get_dispatch_stack_at", "finds modes that a call leaves on"),
    Part("torch._C._dispatch_dump", "finds operators of torch that were replaced", lambda dump: dump("aten::clone")),
    Part("torch.utils._device.DeviceContext", "tells a default device from other modes"),
    Part("torch._C._CudaEventBase", "times on a GPU without torch.cuda.Event, which a candidate could replace"),
    Part("torch.cuda._sleep", "keeps a GPU busy until the host has launched what is timed"),
    Part("torch.utils._python_dispatch.TorchDispatchMode", "counts the bytes that operators read"),
    Part(
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "traces a problem without its memory, for the count of what templates cover",
        spared=True,
    ),
    Part("torch.utils._pytree.tree_leaves", "finds tensors in arguments", lambda leaves: leaves([(1,)]) == [1]),
    Part("torch.utils._pytree.tree_map", "changes tensors in arguments", lambda change: change(str, [1]) == ["1"]),
    Part("torch.utils.flop_counter.flop_registry", "counts the work of matrix products and convolutions"),
    Part("torch.ops.aten.add.Tensor._schema", "tells which operators give views", lambda schema: schema.returns),
    Part("torch.nn.modules.dropout._DropoutNd", "finds models with dropout"),
    Part("torch.utils.cpp_extension.JIT_EXTENSION_VERSIONER", "builds with slim headers first"),
    Part("torch.utils._cpp_extension_versioner.ExtensionVersioner", "builds with slim headers first", callable),
    Part("torch._inductor.codecache.PyCodeCache", "tells what torch.compile launches", spared=True),
    Part("torch._int_mm", "measures the rate of int8 products", callable, spared=True),
    Part("torch._scaled_mm", "measures the rate of fp8 products", callable, spared=True),
    Part("torch._dynamo.lookup_backend", "compiles before the device is had", callable, spared=True),
    Part("torch._inductor.list_mode_options", "compiles before the device is had", callable, spared=True),
    Part("torch._inductor.runtime.benchmarking.benchmarker", "stops compiling at a measurement", spared=True),
    Part("triton.runtime.cache.triton_key", "makes the cache's keys before the walls stand", callable),
    Part("triton.runtime.build.platform_key", "makes the cache's keys before the walls stand", callable),
    Part("triton.backends.nvidia.driver.library_dirs", "finds libcuda before the walls stand", callable),
    Part("triton.backends.nvidia.compiler.get_ptxas_version", "makes keys before the walls stand", callable),
    Part("triton.runtime.cache.CacheManager", "is what the run's cache stands in for",
         lambda kind: set(kind.__abstractmethods__) <= CACHE_VERBS),
    Part("triton.knobs.cache", "lets the run only read the cache", lambda knobs: hasattr(knobs, "manager_class")),
    Part("triton.knobs.build", "keeps the run from compiling", lambda knobs: hasattr(knobs, "impl")),
    Part("triton.runtime.autotuner.Autotuner", "keeps the build from tuning", lambda kind: hasattr(kind, "do_bench")),
    Part("triton.compiler.compiler.compile", "tells the compiler's faults from others", lambda made: made.__code__),
    Part("triton.runtime.build", "tells the C compiler's faults from others", inspect.ismodule),
    Part("triton.runtime.build._build", "compiles Triton's own part before any candidate comes", callable),
    Part("triton.backends.nvidia.driver.dirname", "compiles Triton's own part before any candidate comes"),
    Part("triton.backends.nvidia.driver.include_dirs", "compiles Triton's own part before any candidate comes"),
    Part("triton.backends.nvidia.driver.libraries", "compiles Triton's own part before any candidate comes"),
    Part("triton.errors.TritonError", "tells the compiler's faults from others"),
    Part("triton.runtime.jit.JITFunction", "silences a candidate's kernels", lambda kind: callable(kind.run)),
)  # fmt: skip
LISTED = {part.path: part for part in PARTS}


@dataclass(frozen=True, slots=True)
class Form:
    """Something that torch or Triton writes and we read, for which nobody can be asked. `test` holds it."""

    what: str
    reader: str
    test: str


FORMS = (
    Form(
        "torch.cuda._sleep's kernel is called spin_kernel",
        "worker/authorship/profile.py",
        "worker/test_authorship_profile_cuda.py",
    ),
    Form(
        "operators of torch are called aten:: on the timeline",
        "worker/authorship/profile.py",
        "worker/test_authorship_profile.py",
    ),
    Form(
        "c10::Allocator and c10::SetCPUAllocator of torch's headers",
        "worker/timing/allocator.cpp",
        "worker/test_allocator.py",
    ),
    Form(
        "names in torch's headers that slim ones stand in for",
        "worker/building/slim_headers.py",
        "worker/test_slim_headers.py",
    ),
    Form("what torch.export's program tells of its signature and outputs", "worker/tracing/graph.py", "test_server.py"),
    Form(
        "Inductor's kernels are called triton_ and cpp_, then _fused_",
        "worker/tracing/inductor.py",
        "worker/test_inductor.py",
    ),
    Form(
        "Triton's cache: name in K.json, place in K.source, groups in __grp__K",
        "rules/triton_cache.py",
        "targets/test_triton.py",
    ),
    Form(
        "Triton's autotuner keeps what it measured in K.autotune.json",
        "worker/building/triton_cache.py",
        "targets/test_triton.py",
    ),
)


@functools.cache
def take(path: str) -> Any:
    """The part at `path`, which has to be listed. Raises ImportError with what there is to say where it is missing."""
    part = LISTED[path]
    if fault := _fault(part):
        raise ImportError(fault)
    return _found(path)


def take_spared(path: str) -> Any | None:
    """The part at `path`, None where this version has none that can be used."""
    return None if _fault(LISTED[path]) else _found(path)


def take_if_imported(path: str) -> Any | None:
    """The part at `path` where something has imported its package already, else None."""
    return take(path) if LISTED[path].package in sys.modules else None


def refusal(packages: Sequence[str]) -> tuple[str, str] | None:
    """What these packages lack of what is needed here, in one sentence, and what to do; None where nothing is."""
    for package in packages:
        try:
            importlib.import_module(package)
        except (ImportError, OSError) as error:
            return f"{package} cannot be imported: {error}", f"see `python -c 'import {package}'`"
    for part in PARTS:
        if part.package in packages and not part.spared and (fault := _fault(part)):
            return fault, f"install a version that was tried: pip install '{versions.wanted(part.package)}'"
    return None


def shapes(package: str) -> dict[str, str]:
    """Of each part of a package its kind and the names of what it takes, as far as it tells."""
    return {part.path: _shape(_found(part.path)) for part in PARTS if part.package == package}


def _fault(part: Part) -> str | None:
    try:
        why = "" if part.fits(_found(part.path)) else "has another form"
    except (ImportError, AttributeError) as fault:
        why = f"is missing: {fault}"
    except (TypeError, ValueError, RuntimeError, LookupError) as fault:
        why = f"has another form: {fault}"
    if not why:
        return None
    known = f"this server was tried with {part.package} {versions.span(part.package)}"
    return (
        f"{part.package} {versions.installed(part.package)} is not supported: {part.path}, which {part.purpose}, "
        f"{' '.join(why.split())}; {known}"
    )


def _found(path: str) -> Any:
    names = path.split(".")
    found: Any = importlib.import_module(names[0])
    for end, name in enumerate(names[1:], 2):
        try:
            found = getattr(found, name)
        except AttributeError:
            if not inspect.ismodule(found):
                raise
            try:
                found = importlib.import_module(".".join(names[:end]))
            except ModuleNotFoundError:
                raise AttributeError(f"{'.'.join(names[: end - 1])} has no {name}") from None
    return found


def _shape(found: Any) -> str:
    kind = type(found).__name__
    try:
        return f"{kind}({', '.join(inspect.signature(found).parameters)})"
    except (TypeError, ValueError):
        return kind
