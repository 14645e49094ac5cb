"""Who does the work of a candidate, judged from what the profiler saw (ncu_server.worker.authorship.profile).

The share is that of *attributable computing time*: own / (own + foreign), over the totals of all profiled calls. What a
call spends on allocating, reshaping, copying, on Python and on launching is neither, so that a small problem is not
judged by its overhead. `custom` is more than 95 % own, `library` less than 5 %, `hybrid` lies between (the bounds are
the design's); with no foreign computing at all a candidate is custom, whatever the clock says.

The share is of the work: where calls of torch over at most 1,024 elements go over less than 5 % of as many elements as
inputs and outputs have, what any call costs is taken off the time of each, and the silenced run below decides as well.

- CUDA: device time of kernels, own or foreign by name (`Ownership.owns`), and ATen's computing on the host beyond an
  allowance. Where the profiler sees no kernel at all (no permission to trace), the silenced run below decides.
- CPU: own is the time in functions of the candidate's libraries, and in operators whose namespace torch did not have
  before, without torch's operators nested in them; foreign is the self time of torch's computing operators on all
  threads. Where the source uses NumPy or the like, or ctypes has opened a library that the build did not make, which no
  profiler sees, the time outside both, and in operators of its own, counts as foreign beyond an allowance for Python.
  Where none of the candidate's functions could be watched (kept in tuples), those of a model made anew are; where none
  can be (called through ctypes), the time outside torch counts as own beyond the allowance.

The least launch costs about a microsecond on either device, a kernel that does nothing included. So below
`Evidence.small_us` of computing a call time is no evidence, nor is it where a decoy may spend it, or more time than its
own may hide others' computing; the candidate is made anew twice and run, once with its own kernels silenced: where less
than 5 % of the output's elements change, they are a decoy (library); else the candidate is at least hybrid.

A kernel behind a long product or convolution may be less than 5 % of a call and all that there is to write. So where a
candidate is `library` by time and its own kernels do run, the reference is profiled, too, in a process of its own:
where the candidate leaves to libraries no more than the reference does, and something of the reference's computing is
gone that takes the time of its own kernels (`replaces`), the silenced run decides as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ncu_server.rules.triton_cache import Jitted

Profile = Mapping[str, Any]
"""See worker.answers.Profiled."""

Label = Literal["custom", "hybrid", "library", "unknown"]
CUSTOM, LIBRARY = 0.95, 0.05
FEW = 0.2  # a share that noise can lift a decoy to
PYTHON_US, HIDDEN_US = 300.0, 100.0
NOTHING_US = 1e-6  # what rounding leaves of a time
LONGER = 1.5  # what another process may take for the same work, when both are profiled


@dataclass(frozen=True, slots=True)
class Evidence:
    """What counts as evidence on a kind of device: computing of less than `small_us` a call is none, nor is foreign
    computing of less than `concealed_us` a call that is there only while nobody looks. `launches`: kernels run there,
    and the profiler names them."""

    small_us: float
    concealed_us: float
    launches: bool


# Operators of ATen that a candidate may use freely: they allocate, view, copy or describe. All others compute.
FREE = """
    empty empty_like empty_strided new_empty new_empty_strided resize_ set_ zeros zeros_like ones ones_like full
    full_like new_zeros new_full new_ones zero_ fill_ scalar_tensor lift_fresh detach detach_ alias view view_as
    _unsafe_view reshape reshape_as _reshape_alias as_strided as_strided_ t transpose transpose_ numpy_T permute
    movedim flatten unflatten ravel squeeze squeeze_ unsqueeze unsqueeze_ expand expand_as broadcast_to select
    slice narrow split split_with_sizes chunk unbind unfold diagonal contiguous clone copy_ _copy_from _to_copy
    to _local_scalar_dense item is_nonzero resolve_conj resolve_neg result_type size stride numel storage_offset
    is_contiguous pin_memory is_pinned _pin_memory record_stream real imag view_as_real view_as_complex
    requires_grad_ set_data _has_compatible_shallow_copy_type lift expand_copy view_copy swapaxes swapdims mT mH
    T H positive
"""
NEUTRAL = frozenset(FREE.split())
# Kernels that only move or fill bytes.
NEUTRAL_KERNEL = re.compile(r"Memcpy|Memset|direct_copy_kernel|FillFunctor|spin_kernel")
# Names that only libraries bear; those of the second row are words that a kernel of one's own may well bear.
LIBRARY_KERNEL = re.compile(
    r"\bat::|\bat_cuda_detail::|\bc10::|pytorch_flash|cublas|cudnn|cusparse|cusolver|nccl|nvjet|xmma|Cijk_|splitKreduce"
    r"|\b(ampere|hopper|volta|turing|maxwell|sm\d\d)_|gemmk1_kernel|gemv2[TN]_kernel"
)
INDUCTOR_KERNEL = re.compile(r"\btriton_(poi|red|per|tem|for|mm)_")
COMMON_KERNEL = re.compile(r"cutlass|gemm|gemv|flash_(fwd|bwd)|fmha|convolve|winograd|dot_kernel|_fft|cub::|thrust::")
VENDOR = re.compile(
    r"cblas_\w+|[sdczh]b?gemm\w*|[sdcz](gemv|symm|syrk|trsm|trmm|axpy|dot)_|mkl_\w+|MKL_\w+|dnnl\w*|openblas\w*|cublas\w+"
    r"|cudnn\w+|cusparse\w+|cusolver\w+|cufft\w+|nccl\w+"
    # functions of ATen that its dispatcher, and so a profiler, does not see, and the one that blinds it
    r"|_ZN2at(3cpu|6native|4cuda4blas)\w+|_ZN2at20enableRecordFunctionEb"
)
MOVES, MOVING_KERNEL = ("aten::copy_", "aten::_copy_from"), re.compile(r"Memcpy|direct_copy_kernel")


BY_NAME = {"dlsym", "dlvsym"}
IDENTIFIER = re.compile(rb"(?<![\w.$])[a-z]\w{3,60}(?=\0)")


def vendors(asked: tuple[str, ...], image: bytes) -> set[str]:
    """Functions of BLAS and its like that a library calls: those it is linked to, and those that it may ask the dynamic
    linker for (names in its text, where it uses dlsym at all). `asked` are its undefined symbols."""
    named = {n.decode() for n in IDENTIFIER.findall(image)} if BY_NAME & set(asked) else set()
    return {name for name in {*asked, *named} if VENDOR.fullmatch(name.removeprefix("scipy_"))}


@dataclass(frozen=True, slots=True)
class Ownership:
    """What tells the candidate's own from the rest: its source, its built libraries, what they ask of other libraries.

    `vendor` are functions of BLAS and its like that it calls; `numeric` as in lint.Reading, with libraries that ctypes
    has opened; `jitted` are the kernels that Triton compiled in its build.
    """

    source: str
    images: tuple[bytes, ...] = ()
    vendor: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    jitted: Jitted = field(default_factory=Jitted)

    def beside(self, opened: list[str], named: list[str]) -> Ownership:
        """The same where it has opened other libraries through ctypes, and asked for functions by name."""
        asked = {n for n in vendors(tuple(named), b"") if not any(b"\0%s\0" % n.encode() in i for i in self.images)}
        return replace(self, numeric=(*self.numeric, *opened), vendor=(*self.vendor, *sorted(asked)))

    def owns(self, kernel: str) -> bool:
        """Whether a kernel, by its demangled name, is the candidate's: a symbol of its libraries, what Triton compiled
        from it, or else in its source (NVRTC) and not of a library's naming. What bears no library's name is taken for
        its own."""
        name = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
        parts = re.split(r"[<(]", name, maxsplit=1)[0].strip().split("::")
        if parts[0] in ("at", "at_cuda_detail", "c10"):
            return False
        symbol = "".join(f"{len(p)}{p}" for p in parts).encode()
        if any(symbol in image or b"\0%s\0" % parts[-1].encode() in image for image in self.images):
            return True
        if LIBRARY_KERNEL.search(kernel):
            return False
        if parts[-1] in self.jitted.own:
            return True
        if parts[-1] in self.jitted.foreign or INDUCTOR_KERNEL.search(kernel):
            return False
        return not COMMON_KERNEL.search(kernel) or bool(re.search(rf"\b{re.escape(parts[-1])}\s*[(<\[]", self.source))


@dataclass(frozen=True, slots=True)
class Authorship:
    """The label and what it rests on; shares are of attributable computing time (absent where they cannot be told).

    `top` is the largest foreign part; `doubtful` says that the times are too short to be evidence, `moves` that nobody
    else was seen, or could be unseen, to do more than move data.
    """

    label: Label
    own: float | None
    foreign: float | None
    top: str | None = None
    top_share: float = 0.0
    why: str = ""
    doubtful: bool = False
    moves: bool = False

    def refusal(self, strict: bool) -> str | None:
        """Why the candidate is turned away, in one sentence; None where the rules let it pass."""
        if self.label == "custom" or (self.label in ("hybrid", "unknown") and not strict):
            return None
        said = []
        if self.own is not None and self.foreign is not None:
            top = f", mostly {self.top} ({self.top_share:.0%})" if self.top else ""
            said.append(f"library code does {self.foreign:.0%} of the computing{top}")
            said.append(f"the candidate's own kernels do {self.own:.0%}")
        said += [self.why] if self.why else []
        said += ["the strict rules ask for over 95 % of its own"] if self.label == "hybrid" else []
        return "; ".join(said)

    def facts(self) -> dict[str, str | float]:
        """What the result says of it."""
        facts: dict[str, str | float] = {"label": self.label}
        if self.own is not None and self.foreign is not None:
            facts |= {"own_share": self.own, "library_share": self.foreign}
        if self.top:
            facts["library_top"] = self.top
        return facts


def unknown(why: str) -> Authorship:
    """Nobody could see who does the work: the profiler failed. It is said, and only the default rules let it pass."""
    return Authorship("unknown", None, None, why=f"who does the work could not be seen: {why}")


def attribute(seen: Profile, evidence: Evidence, own: Ownership, elements: int = 0) -> Authorship:
    """Label by time alone. `seen` is what authorship.profile gave, `evidence` its device's, `elements` how many the
    inputs and outputs of a call have together."""
    lighter = _without_overhead(seen, own, elements)
    author = _attributed(lighter, evidence, own)
    if lighter is seen or author.label == "library":
        return author
    return replace(author, doubtful=True, moves=False)


def _without_overhead(seen: Profile, own: Ownership, elements: int) -> Profile:
    """The profile without what tiny calls of torch cost whatever they compute; the same where they are not few, or
    where no kernel of the candidate's can be silenced, so that the output cannot decide."""
    if not seen["own_started"] and not own.jitted.own:
        return seen
    overhead = {n: us for n, us in seen.get("overhead", {}).items() if us and (computes(n) or not own.owns(n))}
    if not overhead or seen["tiny_elements"] > LIBRARY * elements:
        return seen
    lighter = {
        kind: {name: us - overhead.get(name, 0.0) for name, us in seen[kind].items()} for kind in ("ops", "kernels")
    }
    return {**seen, **{kind: {n: us for n, us in rows.items() if us > NOTHING_US} for kind, rows in lighter.items()}}


def _attributed(seen: Profile, evidence: Evidence, own: Ownership) -> Authorship:
    own = own.beside(seen.get("opened", []), seen.get("named", []))
    if hidden := _concealed(seen, evidence, own):
        top = max(hidden, key=lambda name: hidden[name])
        why = (
            f"it computes otherwise once its kernels are watched: before, {top} takes {hidden[top]:.0f} us more a call"
        )
        return Authorship("library", None, None, top, why=why)
    if seen["kernels"]:
        mine, foreign = _on_device(seen, own)
    elif evidence.launches and (seen["own_done"] or "triton" in own.source):
        return Authorship("hybrid", None, None, why="the profiler saw no kernel on the device", doubtful=True)
    else:
        mine, foreign = _on_host(seen, own)
        if own.vendor and not foreign:
            return Authorship("hybrid", None, None, why=f"it calls {', '.join(own.vendor[:3])}")
    if not foreign:
        # What NumPy does in less than the allowance for Python is seen by nobody, and where torch moves data for longer
        # than the candidate computes, moving may be all that there is to do: then the silenced run decides.
        unseen = bool(own.numeric) or _hidden(seen) > mine
        return Authorship("custom", 1.0, 0.0, doubtful=unseen or _moved(seen) > mine, moves=not unseen)
    total = mine + sum(foreign.values())
    share = mine / total if total else 0.0
    top = max(foreign, key=lambda name: foreign[name])
    label: Label = "custom" if share > CUSTOM else "library" if share < LIBRARY else "hybrid"
    short = total / seen["calls"] < evidence.small_us
    decoy = LIBRARY <= share < FEW or (evidence.launches and seen["own_started"] > 0 and label != "library")
    doubtful = (mine > 0 or seen["own_done"] > 0) and (short or decoy)
    doubtful |= label != "library" and _hidden(seen) > mine
    return Authorship(label, round(share, 4), round(1 - share, 4), top, foreign[top] / (total or 1), doubtful=doubtful)


def replaces(seen: Profile, reference: Profile, own: Ownership) -> bool:
    """Whether a candidate whose own share is small leaves to libraries only what the reference leaves to them, and its
    kernels stand for the rest of the reference's computing.

    So it is where whatever else computes in it computes in the reference, too, under the same name and for as long, and
    what computes in the reference alone takes at least half of the time of the candidate's own. A kernel that adds a
    zero beside the whole of the reference replaces nothing; another library's function has a name of its own.
    """
    mine, foreign = _by_call(seen, own)
    _, whole = _by_call(reference, Ownership(""))
    if not mine or not foreign or own.vendor or own.numeric:
        return False
    same = all(us <= whole.get(name, 0.0) * LONGER for name, us in foreign.items() if us > NOTHING_US)
    gone = sum(us - foreign.get(name, 0.0) for name, us in whole.items() if foreign.get(name, 0.0) < us / 2)
    return same and gone >= mine / 2


def _by_call(seen: Profile, own: Ownership) -> tuple[float, dict[str, float]]:
    """Its own and others' computing in one call."""
    mine, foreign = _on_device(seen, own) if seen["kernels"] else _on_host(seen, own)
    return mine / seen["calls"], {name: us / seen["calls"] for name, us in foreign.items()}


def settle(doubtful: Authorship, decides: float) -> Authorship:
    """The label where the times were no evidence: `decides` is the share of the output that its kernels decide."""
    if decides < LIBRARY:
        why = f"with its own kernels silenced {1 - decides:.0%} of the output stays the same"
        return replace(doubtful, label="library", own=round(decides, 4), foreign=round(1 - decides, 4), why=why)
    unseen = not doubtful.foreign and decides <= CUSTOM
    return replace(doubtful, label="hybrid" if doubtful.label == "library" or unseen else doubtful.label)


def unsettled(doubtful: Authorship, why: str) -> Authorship:
    """The label where the times were no evidence and there is none beside them: custom is what nobody has seen."""
    return replace(doubtful, label="library" if doubtful.label == "library" else "hybrid", why=why)


def _concealed(seen: Profile, evidence: Evidence, own: Ownership) -> dict[str, float]:
    """Foreign computing that is there only while nobody watches the candidate's own, where it is worth a lie."""
    told = seen.get("concealed", {})
    hidden = {n: us for n, us in told.items() if (computes(n) if _is_operator(n) else _is_foreign(n, own))}
    return hidden if sum(hidden.values()) > evidence.concealed_us else {}


def _on_device(seen: Profile, own: Ownership) -> tuple[float, dict[str, float]]:
    mine, foreign = 0.0, {}
    for name, us in seen["kernels"].items():
        if own.owns(name) and not NEUTRAL_KERNEL.search(name):
            mine += us
        elif _is_foreign(name, own):
            foreign[name] = us
    host = _computing(seen)
    if sum(host.values()) > PYTHON_US * seen["calls"]:
        foreign |= host
    return mine, foreign | _unseen(seen, own)


def _on_host(seen: Profile, own: Ownership) -> tuple[float, dict[str, float]]:
    foreign, mine = _computing(seen), seen["own_us"] if seen["own_done"] else 0.0
    if not own.numeric:
        mine += seen["own_ops_us"] + (0.0 if seen["own_started"] else _beyond(seen))
    return mine, foreign | _unseen(seen, own)


def _computing(seen: Profile) -> dict[str, float]:
    """Self times of torch's operators that compute."""
    return {name: us for name, us in seen["ops"].items() if computes(name)}


def _moved(seen: Profile) -> float:
    """Time of torch's copies, on the device and on the host."""
    device = sum(us for name, us in seen["kernels"].items() if MOVING_KERNEL.search(name))
    return float(device + sum(seen["ops"].get(name, 0.0) for name in MOVES))


def _is_operator(name: str) -> bool:
    """Operators are `namespace::name`; kernels of the device bear C++ names with parameters, or none of a namespace."""
    return "::" in name and "(" not in name


def computes(operator: str) -> bool:
    """Whether an operator does more than allocate, view, copy or describe."""
    _, colons, op = operator.partition("::")
    return bool(colons) and op not in NEUTRAL


def _is_foreign(kernel: str, own: Ownership) -> bool:
    return not own.owns(kernel) and not NEUTRAL_KERNEL.search(kernel)


def _unseen(seen: Profile, own: Ownership) -> dict[str, float]:
    """Time that NumPy or its like may have spent, under an operator of the candidate's too, whose body may be Python;
    nothing where the source names none."""
    us = _beyond(seen, seen["own_ops_us"]) if own.numeric else 0.0
    return {f"{' or '.join(own.numeric)}, outside torch and its kernels": us} if us else {}


def _hidden(seen: Profile) -> float:
    """Time on the host outside torch and its own functions, beyond what the Python of a call takes: others may have
    computed in it. Nothing where kernels run on a device, or where none of its functions is watched: it is theirs.
    """
    if seen["kernels"] or not seen["own_started"]:
        return 0.0
    return max(0.0, (float(seen["outside_us"]) - HIDDEN_US) * float(seen["calls"]))


def _beyond(seen: Profile, more_us: float = 0.0) -> float:
    return max(0.0, (float(seen["outside_us"]) - PYTHON_US) * float(seen["calls"]) + more_us)
