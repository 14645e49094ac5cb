"""Reads a candidate's source. Only what can never be honest is rejected; the rest are warnings that the verdict lists.

A rule is a row: a name, a pattern on the syntax tree, and why. Comments and strings never match, with the one exception
of the rule on foreign calls in C++ text, which is a warning. Who really does the work is measured (see
rules/authorship.py), never guessed from the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from ncu_server.rules.python_source import Source


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading the source gave: a reason to reject, a fault of syntax, or warnings.

    `numeric` names the libraries other than torch that could do arithmetic unseen by a profiler (numpy, scipy, ...).
    """

    rejected: str | None = None
    syntax: str | None = None
    warnings: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()


Pattern = Callable[[Source], bool]


@dataclass(frozen=True, slots=True)
class LintRule:
    """One row: where `pattern` matches, `why` is said."""

    name: str
    pattern: Pattern
    why: str


LOADERS = {"load_inline", "load", "build_inline", "load_module"}  # they give a library, or where it lies
CACHES = ("functools.lru_cache", "functools.cache")
BUILDERS = {"load_inline", "load", "build_inline", "build", "jit", "njit", "autotune", "load_module", "compile"}
JUDGING = re.compile(
    r"torch\.(allclose|isclose|equal|eq|testing(\..+)?|Tensor\.(allclose|isclose|equal|eq|__eq__|__ne__)"
    r"|cuda\.(synchronize|Event(\..+)?|Stream\.synchronize)|(autograd\.)?profiler(\..+)?)"
    r"|time\.(perf_counter|perf_counter_ns|monotonic|monotonic_ns|time|time_ns|\*)|ncu_server(\..+)?"
)
WATCHERS = re.compile(r"\._?(is_)?_?profiler_(enabled|type)$|\._enable_record_function$|\.DisableRecordFunction$")
AS_ARRAY = (".numpy", ".__array__", ".__array_interface__")
UNNAMED = ("__import__", "importlib")
REFLECTION = (
    *("globals", "locals", "vars", "dir", "exec", "eval", "compile", "operator", "inspect", "__builtins__", "builtins"),
    *(".modules", ".__dict__", ".__globals__", ".f_globals", ".__getattribute__", "getattr", "gc"),
)
NUMERIC = ("numpy", "scipy", "cupy", "numexpr", "jax", "tensorflow", "mkl", "sklearn", "cffi")
_MOVES = (
    "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like tensor as_tensor device dtype "
    "Size no_grad inference_mode cuda is_tensor broadcast_shapes broadcast_tensors float16 bfloat16 float32 float64 "
    "int8 int16 int32 int64 uint8 bool half float double long int Tensor nn ops backends utils contiguous_format "
    "strided channels_last is_grad_enabled get_num_threads promote_types result_type finfo iinfo"
)
MOVEMENT = frozenset(_MOVES.split())
FOREIGN_CPP = re.compile(
    r"\b(at|torch)::(_ops::)?(mm|bmm|addmm|matmul|linear|conv\w*|einsum|softmax|log_softmax|layer_norm|batch_norm|relu_?|sum|"
    r"mean|add|mul|div|sub|exp|sigmoid|tanh|gelu|max_pool\w*|avg_pool\w*|baddbmm|scaled_dot_product_attention)\s*\("
    r"|\bcblas_\w+\s*\(|\b[sdcz]gemm_?\s*\(|\bcublas\w{0,60}(Gemm|gemm|Matmul)\w*\s*\(|\bcudnn\w+\s*\(|\bdlopen\s*\("
)


def _uses(source: Source, *names: str) -> bool:
    """Whether a dotted path in the source is one of `names` or lies below it; `.name` means any path that ends so."""
    return any(
        p == n or p.startswith(f"{n}.") or (n.startswith(".") and p.endswith(n)) for p in source.paths for n in names
    )


def _computes(source: Source, library: str) -> bool:
    """Whether a library is used. One whose name stands nowhere but where it is imported is not, unless names may be
    read in ways that cannot be followed."""
    if not _uses(source, library):
        return False
    return _uses(source, *REFLECTION) or any(source.mentions(name) for name in source.imported(library))


def _no_model(source: Source) -> bool:
    return "ModelNew" not in source.bound and "*" not in source.aliases


def _no_kernel(source: Source) -> bool:
    return not any(
        p.split(".")[-1] in BUILDERS and p not in ("torch.compile", "compile", "re.compile") for p in source.paths
    )


def _patches_the_judge(source: Source) -> bool:
    return any(JUDGING.fullmatch(path) for path in source.assigned())


def _asks_for_watchers(source: Source) -> bool:
    return any(WATCHERS.search(path) for path in source.paths)


def _patches_torch(source: Source) -> bool:
    return any(path.startswith("torch.") and not path.startswith("torch.backends.") for path in source.assigned())


def _keyed_by_address(source: Source) -> bool:
    """A subscript, a membership test or a `get` whose key holds data_ptr() or id(), or a name that was given one."""

    def addresses(node: ast.AST) -> bool:
        return any(
            isinstance(n, ast.Call) and (source.path(n.func) or "").split(".")[-1] in ("data_ptr", "id")
            for n in ast.walk(node)
        )

    named = {
        t.id
        for n in ast.walk(source.tree)
        if isinstance(n, ast.Assign) and addresses(n.value)
        for t in n.targets
        if isinstance(t, ast.Name)
    }

    def key(node: ast.AST) -> bool:
        return addresses(node) or any(isinstance(n, ast.Name) and n.id in named for n in ast.walk(node))

    for node in ast.walk(source.tree):
        match node:
            case ast.Subscript(slice=inner) | ast.Call(func=ast.Attribute(attr="get" | "setdefault"), args=[inner, *_]):
                if key(inner):
                    return True
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq()], comparators=right):
                if key(left) or any(key(r) for r in right):
                    return True
    return False


def _forwards(source: Source) -> Iterator[ast.AST]:
    reference = ("Model", source.aliases.get("Model"))
    for cls in ast.walk(source.tree):
        if isinstance(cls, ast.ClassDef) and cls.name not in reference:
            yield from (
                n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name not in ("__init__", "extra_repr")
            )


def _tries_in_forward(source: Source) -> bool:
    return any(isinstance(n, ast.Try) for f in _forwards(source) for n in ast.walk(f))


def _computes_with_torch(source: Source) -> bool:
    for node in (n for f in _forwards(source) for n in ast.walk(f)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return True
        path = source.path(node.func) if isinstance(node, ast.Call) else None
        if path and re.match(r"torch\.(nn\.functional|special|linalg|fft|_C\._nn)\.", path):
            return True
        if path and path.startswith("torch.") and path.count(".") == 1 and path.split(".")[1] not in MOVEMENT:
            return True
    return False


def _subclasses_tensor(source: Source) -> bool:
    bases = (source.path(b) for n in ast.walk(source.tree) if isinstance(n, ast.ClassDef) for b in n.bases)
    return any(b in ("torch.Tensor", "torch.nn.Parameter") for b in bases)


def _foreign_calls_in_cpp(source: Source) -> bool:
    texts = (n.value for n in ast.walk(source.tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return any(FOREIGN_CPP.search(t) for t in texts)


def _on(*names: str) -> Pattern:
    return partial(_uses_any, names)


def _uses_any(names: tuple[str, ...], source: Source) -> bool:
    return _uses(source, *names)


def _remembers(source: Source) -> bool:
    """A cache of functools, but for one around functions that only build a library: it keeps no result."""
    uses = [n for n in ast.walk(source.tree) if source.path(n) in CACHES]
    builders = (n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef) and _only_builds(source, n))
    around = [n for builder in builders for d in builder.decorator_list for n in ast.walk(d)]
    return _uses(source, *CACHES) and not (uses and all(n in around for n in uses))


def _only_builds(source: Source, function: ast.FunctionDef) -> bool:
    """Whether each return gives what a builder gave, or a name in it."""
    built = {
        t.id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and _builds(source, n.value)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
    return bool(returns) and all(v is not None and _builds(source, v, built) for v in returns)


def _builds(source: Source, node: ast.AST, built: Collection[str] = ()) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        return node.id in built
    return isinstance(node, ast.Call) and (source.path(node.func) or "").split(".")[-1] in LOADERS


REJECT = (
    LintRule("no ModelNew", _no_model, "the module defines no `ModelNew`"),
    LintRule(
        "no kernel",
        _no_kernel,
        "the module builds no kernel of its own: neither a load_inline call nor a Triton kernel is in it",
    ),
    LintRule(
        "patches what judges it",
        _patches_the_judge,
        "the candidate replaces functions that compare or time (of torch, time or the judge)",
    ),
    LintRule(
        "asks for watchers",
        _asks_for_watchers,
        "the candidate asks whether it is being profiled, which only a kernel that then behaves otherwise has to know",
    ),
)

WARNINGS = (
    LintRule("frames", _on("sys._getframe", "inspect", "traceback", ".f_back", ".f_locals"), "walks the call stack"),
    LintRule("gc", _on("gc"), "looks at the garbage collector's objects"),
    LintRule("sys.modules", _on("sys.modules"), "looks at what other code has loaded"),
    LintRule("ctypes", _on("ctypes", "cffi"), "reaches native code or memory past Python"),
    LintRule(
        "processes",
        _on("os.fork", "os.exec", "os.system", "os.popen", "os.kill", "subprocess", "multiprocessing", "signal"),
        "starts or signals processes",
    ),
    LintRule("exit", _on("os._exit", "sys.exit", "atexit"), "ends the process or runs code at its end"),
    LintRule(
        "threads", _on("threading", "concurrent", "_thread"), "computes in threads; the work may end after the call"
    ),
    LintRule("network", _on("socket", "urllib", "http", "requests"), "opens connections"),
    LintRule("files", _on("open", "os.remove", "os.unlink", "shutil", "pathlib", "tempfile"), "touches files"),
    LintRule("environment", _on("os.environ", "os.getenv"), "reads the environment"),
    LintRule(
        "hidden code",
        _on("exec", "eval", "compile", "base64", "importlib", "__import__"),
        "runs code that is not in plain sight",
    ),
    LintRule("address keys", _keyed_by_address, "remembers something by a tensor's address or identity"),
    LintRule("data_ptr", _on(".data_ptr"), "handles raw addresses"),
    LintRule("caches", _remembers, "remembers results between calls"),
    LintRule("fallback", _tries_in_forward, "catches exceptions in its computation; something else may do the work"),
    LintRule(
        "torch.compile",
        _on("torch.compile", "torch.jit", "torch._dynamo", "torch._inductor"),
        "lets a compiler write kernels",
    ),
    LintRule(
        "CUDA graphs",
        _on("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"),
        "replays captured work",
    ),
    LintRule("streams", _on("torch.cuda.Stream", "torch.cuda.stream"), "uses streams of its own"),
    LintRule("events", _on("torch.cuda.Event", ".elapsed_time"), "touches event timing"),
    LintRule("comparison", _on("torch.allclose", "torch.isclose", "torch.testing"), "compares outputs"),
    LintRule("numeric libraries", _on(*NUMERIC, *AS_ARRAY), "can compute outside torch and its own kernels"),
    LintRule(
        "threads of torch",
        _on("torch.set_num_threads", "torch.set_num_interop_threads", ".set_num_threads"),
        "changes the process's thread count",
    ),
    LintRule(
        "defaults of torch",
        _on(
            "torch.set_default_dtype",
            "torch.set_default_device",
            "torch.set_float32_matmul_precision",
            "torch.use_deterministic_algorithms",
            "torch.manual_seed",
            "torch.backends",
        ),
        "changes or reads torch's settings",
    ),
    LintRule("patches torch", _patches_torch, "assigns to attributes of torch"),
    LintRule(
        "profiler",
        _on("torch.profiler", "torch.autograd.profiler"),
        "can tell whether it is being profiled",
    ),
    LintRule("lying tensors", _subclasses_tensor, "defines a tensor class with behaviour of its own"),
    LintRule("torch computes", _computes_with_torch, "calls torch for arithmetic in its computation"),
    LintRule("foreign calls in C++", _foreign_calls_in_cpp, "C++ text calls ATen, BLAS, cuBLAS, cuDNN or dlopen"),
)


@lru_cache(maxsize=64)
def read(source: str) -> Reading:
    """Parse and read one candidate module; of the same one all who ask get the same answer."""
    try:
        return _read(Source.of(source))
    except (MemoryError, RecursionError):
        return Reading(syntax="the module cannot be read: its expressions or blocks are nested too deeply")
    except ValueError as fault:
        return Reading(syntax=f"the module cannot be parsed: {type(fault).__name__} {fault}")
    except SyntaxError as fault:
        place = f"line {fault.lineno}" if fault.lineno else "the module cannot be parsed"
        return Reading(syntax=f"{place}: {fault.msg}")


def _read(source: Source) -> Reading:
    numeric = tuple(n for n in NUMERIC if _computes(source, n)) or (("numpy",) if _uses(source, *AS_ARRAY) else ())
    numeric = numeric or (("a library of no plain name",) if _uses(source, *UNNAMED) else ())
    for rule in REJECT:
        if rule.pattern(source):
            return Reading(rejected=rule.why, numeric=numeric)
    return Reading(warnings=tuple(f"{r.name}: {r.why}" for r in WARNINGS if r.pattern(source)), numeric=numeric)
