"""What to look up for a kernel under work: a pure function from its situation to slots, each with its questions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag.retrieval.mechanisms import KERNELS, MMA, named
from rag.retrieval.passage import Kind, Query

FAMILY_OF = (
    ("attention", r"scaled_dot_product|attention"),
    ("recurrent", r"lstm|gru\b|gru_|rnn"),
    ("loss", r"loss|cross_entropy|kl_div"),
    ("softmax", r"softmax"),
    ("norm", r"norm"),
    ("conv", r"conv"),
    ("pooling", r"pool"),
    ("scan", r"cum(sum|prod|max|min)|logcumsumexp"),
    ("sort", r"sort|topk|kthvalue|median"),
    ("gemm", r"(^|_)(mm|bmm|addmm|baddbmm|matmul|linear|einsum|dot|mv|bilinear)$|^(tril|triu)$"),
    ("gather", r"gather|scatter|index|embedding|take|bincount|histc"),
    ("reduction", r"^(sum|mean|amax|amin|max|min|prod|var|std|var_mean|argmax|argmin|any|all|logsumexp)$"),
    ("layout", r"permute|transpose|^t$|view|reshape|cat|stack|clone|contiguous|expand|slice|select|split|pad"),
)
"""Operator families in the corpus's words, by the operator's name in ATen or torch; what fits none is pointwise."""

SIGNS = (
    ("launch", r"launch|idle|gaps?\b|tiny|small[_ ]grid|kernels of"),
    ("tail", r"\bwaves?\b|\btail\b"),
    ("occupancy", r"occupancy|registers|blocks? (per|for|on)\b|one block"),
    ("smem", r"bank|mio|short_scoreboard|shared"),
    ("sync", r"barrier|membar|__sync"),
    ("tensor", r"tensor|mma\b"),
    ("compute", r"fma|math_pipe|\bxu\b|\balu\b|division|divergen|active threads|branch|instruction mix"),
    ("latency", r"long_scoreboard|spill|local memory|latency|stall_wait|no_instruction"),
    ("l2-bw", r"\bl2\b|\blts"),
    ("dram-bw", r"dram|sectors|\bhbm|bandwidth|coalesced|bytes moved"),
)
"""Bottlenecks in the corpus's words, by what a profile says."""

WORDS = {
    "dram-bw": "DRAM bandwidth bound, fewer bytes moved, coalesced vectorized access, fusion",
    "l2-bw": "L2 cache hit rate, reuse between blocks",
    "smem": "shared memory bank conflicts, MIO throttle",
    "latency": "latency bound, more bytes in flight, independent loads",
    "occupancy": "occupancy limited by registers or shared memory",
    "compute": "arithmetic pipe busy, fewer instructions",
    "tensor": "tensor cores",
    "sync": "barriers, synchronization",
    "launch": "launch overhead, many short kernels, small grid",
    "tail": "wave quantization, last wave, tail",
    "numerics": "rounding, precision, tolerance",
    "build": "compiler flags, build",
}
"""A bottleneck as a question that its pages answer."""

DEPTHWISE = "depthwise"
"""What a convolution is called, beside its own name, whose channels have filters of their own."""

CORE = {
    "pointwise": ("fuse pointwise operators", "vectorized loads and stores"),
    "reduction": ("reductions over rows, columns or all", "warp shuffle reduction"),
    "softmax": ("online softmax", "warp shuffle reduction"),
    "norm": ("normalization statistics, mean and variance", "warp shuffle reduction"),
    "scan": ("prefix scan", "warp shuffle reduction"),
    "sort": ("top-k, argmax and sort", "warp shuffle reduction"),
    "gemm": ("block, warp and thread tiles of a matrix multiply", "tensor core instructions", "asynchronous copies"),
    "conv": ("convolution as an implicit matrix multiply", "tensor core instructions"),
    DEPTHWISE: ("depthwise and grouped convolution", "rows of a window in registers"),
    "pooling": ("pooling windows", "index arithmetic"),
    "attention": ("tiled fused attention", "online softmax", "tensor core instructions"),
    "recurrent": ("persistent recurrent kernel with weights in registers", "blocks that wait for one another"),
    "loss": ("fused loss", "online softmax"),
    "gather": ("indexed reads and writes, embedding", "atomics"),
    "layout": ("transpose through shared memory", "bank conflicts"),
}
"""What makes a kernel of each family fast at all, as questions."""

PRODUCTS = frozenset({"gemm", "conv", "attention"})
SPLIT = "float32 products on tensor cores by splitting operands"
DIGITS = "float32 products as int8 products of fixed-point digits, what each way measured"
TENSOR_CORES = "matrix multiply instruction of the tensor cores, descriptors or fragments, one whole kernel"
"""For products that arithmetic bounds: what decides how fast a kernel can be; the best page on each is given whole."""

BEFORE_HOPPER = frozenset({"sm_75", "sm_80", "sm_86", "sm_87", "sm_89"})
"""Architectures whose tensor cores are fed from registers alone."""

FEEDING = "tensor cores fed by asynchronous copies: stages of a pipeline, warp specialization, order of the tiles"
"""What the bottleneck `compute` asks of such a product, instead of fewer instructions."""

TECHNIQUES, OPERATORS, STALLS, PITFALLS, EXAMPLES, OWN, ERRORS = 3, 2, 2, 1, 1, 1, 3
"""Passages for each slot. A stall that no profile names leaves its place to a technique, then to an operator."""

PLACES = 8
"""Pages of the corpus in an answer; what the slots leave free goes to techniques."""


_PIPE = re.compile(r"\b(tensor|fma|xu|alu|fp64|lsu)\w*[ _]pipe\D*([\d.]+) ?%", re.IGNORECASE)
IDLE_PCT = 30.0


DEEP = 16
"""Pages ranked for each question of a slot."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of a kernel under work. Everything may be missing.

    `bottlenecks` are the corpus's words, the worst first; `signals` lines of a profile; `stalls` its reasons, the
    longest first; `errors` a build's or judge's log; `tried` the titles of what the lineage tried; `served` the ids of
    passages that siblings were given; `turn` tells siblings of one idea apart; `has_kernel` says that there is one to
    depart from, which is an example itself, and `shown` which mechanisms it has (see mechanisms.shown_by).
    """

    families: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    arch: str | None = None
    language: str | None = None
    bottlenecks: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    stalls: tuple[str, ...] = ()
    errors: str = ""
    tried: tuple[str, ...] = ()
    idea: str = ""
    served: tuple[str, ...] = ()
    turn: int = 0
    has_kernel: bool = False
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in the answer: the `count` best pages of its questions, their rankings fused.

    `fresh` slots leave out what the lineage tried and take what siblings were not given, while there is any; `skip`
    passes over as many of the best. `up_to` fills the answer to as many pages of the corpus. Of a
    `whole` slot the best page is given as it is, and not the passage of it that was found: half a kernel is of no use;
    where it is `prose`, without its code, which whoever has ideas does not need. Where there are `families`, pages of
    others are left out.
    """

    name: str
    queries: tuple[Query, ...]
    count: int
    fresh: bool = False
    skip: int = 0
    up_to: int | None = None
    whole: bool = False
    prose: bool = False
    families: frozenset[str] = frozenset()


def plan(known: Situation) -> tuple[Slot, ...]:
    """The slots for a situation, in order of importance. A log of errors leaves room for nothing else, and an idea for
    nothing that it does not name."""
    if known.errors.strip():
        return (Slot("error", (_query(known, plain_error(known.errors)),), ERRORS),)
    return tuple(_for_code(known) if known.idea.strip() else _for_ideas(known))


def _for_code(known: Situation) -> Iterator[Slot]:
    """The pages on what the idea names, whole; where it names nothing, the one on the operator, a passage that is like
    the idea, and a kernel of the family unless there is one to depart from."""
    mechanisms = named(known.idea, known.shown, known.arch)
    for text in mechanisms:  # by the words alone: the operators' families would lift other pages
        kind: Kind = "kernel" if text in KERNELS else "page"
        yield Slot("named", (Query(text, known.arch, known.language, limit=DEEP, kinds=(kind,)),), 1, whole=True)
    if not mechanisms:
        if not known.has_kernel:
            yield from (Slot("operator", (_query(known, text),), 1, whole=True) for text in _essence(known, ()))
        yield Slot("technique", (_query(known, known.idea),), 1, skip=known.turn)
    work = " ".join((*known.operators, *known.families))
    if not mechanisms and not known.has_kernel:
        yield _example(known, f"{work} {known.idea}", None)
    yield Slot("own", (_query(known, f"{work} {known.idea}", None, ("own",)),), OWN)


def _for_ideas(known: Situation) -> Iterator[Slot]:
    stalls = known.stalls or tuple(s for s in known.signals if "stall" in s)
    signals = tuple(s for s in known.signals if s not in stalls)
    bottlenecks = known.bottlenecks or bottlenecks_in((*signals, *stalls))
    signals = tuple(_read(s) for s in signals if not _SHARE.fullmatch(s.strip()))
    main = bottlenecks[known.turn % len(bottlenecks)] if bottlenecks else None
    work = " ".join((*known.operators, *known.families, *_narrow(known.dtypes)))
    techniques = [_query(known, signal, main) for signal in signals]
    decisive = tuple(_decisive(known, bottlenecks))
    asked = WORDS | ({"compute": FEEDING} if decisive else {})
    techniques += [_query(known, asked.get(name, ""), name) for name in bottlenecks[:3]]
    core = [_query(known, work, main)]
    core += [_query(known, text, main) for kind in _kinds(known) for text in CORE.get(kind, ())]
    named = min(len(stalls), STALLS)
    slots = [
        *(
            Slot("operator", (_query(known, text),), 1, whole=True, prose=True)
            for text in (*_essence(known, decisive), *decisive)
        ),
        Slot("technique", tuple(techniques), TECHNIQUES + (named < 2), fresh=True),
        Slot("operator", tuple(core), OPERATORS - 1 + (named < 1)),
        Slot("stall", tuple(_query(known, f"stall {stall}", limit=2) for stall in stalls), named),
        Slot("pitfall", (_query(known, f"trap {work}", main),), PITFALLS),
        Slot("technique", (*techniques, *core), PLACES, fresh=True, up_to=PLACES),
        Slot("own", (_query(known, work, main, ("own",)),), OWN),
    ]
    yield from (slot for slot in slots if any(query.text.strip() for query in slot.queries))


def _example(known: Situation, text: str, main: str | None) -> Slot:
    """A kernel of the operators' own families; siblings of one idea get others."""
    query = _query(known, text, main, ("kernel",))
    families = _telling(known.families)
    return Slot("example", (query,), EXAMPLES, skip=known.turn, whole=True, families=families)


def _decisive(known: Situation, bottlenecks: Sequence[str]) -> Iterator[str]:
    on_chip = known.arch is not None and known.arch.startswith("sm_") and known.language == "cuda"
    if on_chip and PRODUCTS & set(_kinds(known)) and {"compute", "tensor"} & set(bottlenecks):
        if not _narrow(known.dtypes):
            yield SPLIT
            yield from [DIGITS] if known.arch == "sm_90" else []  # the one that has the page
        yield MMA if known.arch in BEFORE_HOPPER else TENSOR_CORES


def _essence(known: Situation, decisive: Sequence[str]) -> Iterator[str]:
    """The first question on the family that decides; not on a plain product's tiles, where other pages decide more."""
    first = next((kind for kind in _kinds(known) if kind != "pointwise"), None)
    if first and not (decisive and first == "gemm"):
        yield from CORE.get(first, ())[:1]


def _telling(families: Iterable[str]) -> frozenset[str]:
    """The families without pointwise operators, which stand around nearly everything; with them where they are all."""
    every = frozenset(families)
    return every - {"pointwise"} or every


def _kinds(known: Situation) -> Iterator[str]:
    """The families, a convolution of channels by themselves apart: it is bound by memory, and no product."""
    for family in known.families:
        alone = any(DEPTHWISE in name for name in known.operators)
        yield DEPTHWISE if family == "conv" and alone else family


def _query(
    known: Situation,
    text: str,
    bottleneck: str | None = None,
    kinds: tuple[Kind, ...] = ("page",),
    limit: int = DEEP,
) -> Query:
    return Query(text, known.arch, known.language, known.families, bottleneck, limit=limit, kinds=kinds)


_SHARE = re.compile(r"(dram|sm|gpu|compute|memory)\S*( throughput| workload)?[\s:=]*[\d.]+ ?%?", re.IGNORECASE)
"""A share of peak tells the bottleneck, and is no question of its own."""


def _read(signal: str) -> str:
    """A line of a profile as a question: of a pipe, whether it is idle or saturated, and not by how much."""
    match = _PIPE.search(signal)
    if match is None:
        return signal
    idle = float(match[2]) < IDLE_PCT
    if match[1].lower() == "tensor":
        return "tensor cores idle, tensor core instructions" if idle else "tensor cores fed by asynchronous copies"
    return f"{match[1]} pipe {'idle' if idle else 'saturated, math pipe throttle'}"


def bottlenecks_in(lines: Iterable[str]) -> tuple[str, ...]:
    """The bottlenecks that lines of a profile speak of, in the order in which they do."""
    found = (name for line in lines for name, pattern in SIGNS if re.search(pattern, line, re.IGNORECASE))
    return tuple(dict.fromkeys(found))


def families_of(operators: Iterable[str]) -> tuple[str, ...]:
    """The families of operators by name, each once, in the order of their first appearance."""
    return tuple(dict.fromkeys(_family(name) for name in operators))


def _family(operator: str) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operator).lower()
    return next((family for family, pattern in FAMILY_OF if re.search(pattern, name)), "pointwise")


_CALL = re.compile(r"\b(?:torch|nn|functional|F)\.([A-Za-z]\w*)\s*\(|(?<=[\w)\]])\.([a-z]\w*)\(|\s(@)\s")
_NO_OPERATORS = (
    "Module Parameter ModuleList Sequential manual_seed randn rand tensor zeros ones empty arange size dim numel item "
    "append get_inputs to float half double cuda cpu device super forward init_ randint items keys format shape"
)
_NO_OPERATOR = frozenset(_NO_OPERATORS.split())


def operators_in(source: str) -> tuple[str, ...]:
    """The names of torch operators and layers that PyTorch source calls, each once: for what could not be traced."""

    def names() -> Iterator[str]:
        for match in _CALL.finditer(source):
            name = match[1] or match[2] or "matmul"
            if name not in _NO_OPERATOR and not name.startswith("_"):
                yield name

    return tuple(dict.fromkeys(names()))


def _narrow(dtypes: Iterable[str]) -> tuple[str, ...]:
    """The dtypes that ask for care, or allow something, of their own."""
    return tuple(dtype for dtype in dtypes if dtype not in ("float32", "int64", "int32", "bool"))


_ERROR = re.compile(
    r"error|fatal|warning|exception|assert|invalid|undefined|illegal|not supported|mismatch", re.IGNORECASE
)
_PLACE = re.compile(
    r"(?:[\w.-]*/)+[\w.+-]*(?:\(\d+(?:,\s*\d+)?\)|:\d+(?::\d+)?)?:?"
    r"|\b\w+\.(?:cu|cuh|cpp|py|h|cc)\b[:(]?[\d,:)]*|line \d+,?"
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\b\d[\d.,e+-]*\b")
ERROR_LINES, ERROR_LENGTH, LINE_READ = 3, 300, 2000


def plain_error(log: str) -> str:
    """The first lines of a log that tell the error, without paths, lines, addresses and numbers."""
    lines = [line.strip()[:LINE_READ] for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _ERROR.search(line)] or lines
    kept: dict[str, None] = {}
    for line in telling:
        plain = " ".join(_NUMBER.sub(" ", _PLACE.sub(" ", line)).split()).strip("-:^~| ")
        if plain:
            kept.setdefault(plain[:ERROR_LENGTH])
    return "\n".join(list(kept)[:ERROR_LINES])
