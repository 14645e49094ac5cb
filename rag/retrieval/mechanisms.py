"""What an idea for a kernel names: mechanisms that a page explains, each with the question that its page answers."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

SHARED_TILE = "tile that a cluster shares by TMA multicast and remote arrives"
FORMATS = "wgmma of N 64, 128 and 256 in bfloat16, float16, e4m3 and int8, with row statistics in registers"
WAITING = "whole tensor in one launch, persistent blocks that wait for one another"
ODD_ROWS = "rows of odd lengths and strides, stored in whole 16-byte vectors after a head"
KERNELS = frozenset({SHARED_TILE, FORMATS, WAITING, ODD_ROWS})
"""Questions that a whole kernel of the corpus answers, and no page."""

WGMMA = "warpgroup matrix multiply on Hopper wgmma"
TENSOR_MAPS = "Tensor Memory Accelerator tensor map and mbarrier"
ROLES = "warp specialization, producer and consumer warps, setmaxnreg"
BULK = "bulk copies of contiguous memory cp.async.bulk"
MMA = "tensor cores with wmma, mma.sync and ldmatrix"
CLUSTERS = "thread block clusters and distributed shared memory"
DEPENDENT = "programmatic dependent launch, gaps between kernels"
HOPPER, FROM_HOPPER, GPUS = ("sm_90",), ("sm_9", "sm_1"), ("sm_",)
ONLY_ON = {
    **dict.fromkeys((SHARED_TILE, FORMATS, WGMMA), HOPPER),
    **dict.fromkeys((TENSOR_MAPS, ROLES, BULK, CLUSTERS, DEPENDENT), FROM_HOPPER),
    **dict.fromkeys((WAITING, ODD_ROWS), GPUS),
}
"""How the architectures begin that have what a question is on: elsewhere some other page would stand for it."""

MECHANISMS = (
    (r"\b(tma|tensor maps?)\b.*multicast|multicast.*\b(tma|tensor maps?)\b", SHARED_TILE),
    (
        r"\bwgmma\b(?=.*(\bs8\b|int8|row (sum|statistic|maxim|mean|norm)))|"
        r"(int8|row (sum|statistic|maxim|mean|norm)\w*)\b(?=.*\bwgmma\b)",
        FORMATS,
    ),
    (r"\bwgmma\b|warpgroup\W+(matrix|mma|multipl|product)", WGMMA),
    (r"mma\.sync|ldmatrix|\bwmma\b", MMA),
    (r"winograd", "Winograd convolution F(2x2, 3x3) transforms"),
    (r"\bfft\b", "FFT convolution"),
    (
        r"int8\W+(\w+\W+){0,2}(digit|slice|product)|fixed[- ]point\W+(digit|product)|\.s8\b",
        "float32 products as int8 products of fixed-point digits",
    ),
    (
        r"(bf16|bfloat16|tf32)\W*(x|\*|parts?|slices?|splits?)|3xtf32|split(ting)?\W+(\w+\W+){0,2}operands?|"
        r"(three|six|3|6) (bf16|bfloat16|tf32)|\bhi\W+lo\b",
        "float32 products on tensor cores by splitting 3xTF32 bf16 in parts",
    ),
    (
        r"cp\.async\.bulk\.tensor|tensor ?maps?\b|\btma\b.*\b(box|boxes|2d|swizzle)",
        TENSOR_MAPS,
    ),
    (r"cp\.async\.bulk(?!\.tensor)|bulk[- ]cop|bulk[- ](load|stor)|\btma\b", BULK),
    (
        r"(?<![.:])\bclusters?\b|__cluster_dims__|barrier\.cluster|cluster\.(sync|map_shared)|map_shared_rank|\bmapa\b|"
        r"multicast|\bdsmem\b|distributed shared",
        CLUSTERS,
    ),
    (
        r"setmaxnreg|warp[- ]speciali[sz]|producers?\b(?=.*\bconsumers?\b)|full (and|/) empty",
        ROLES,
    ),
    (r"cp\.async(?!\.bulk)", "multi-stage software pipeline with cp.async"),
    (r"implicit gemm|im2col|implicit matrix", "convolution as an implicit GEMM"),
    (r"grid\W?(wide)?\W?(sync|barrier)|cooperative (launch|groups?|kernel)|wait for one another", "cooperative groups"),
    (r"wait for one another|grid\W?(wide)?\W?(sync|barrier)|blocks wait", WAITING),
    (r"griddepcontrol|dependent launch|\bpdl\b", DEPENDENT),
    (r"split[- ]?k\b|stream[- ]?k\b", "split-K and stream-K for few output tiles"),
    (r"decoupled look-?back|\bscan(s|ned|ning)?\b", "scans, cumsum and cumprod in one pass"),
    (r"top-?k|\bradix\b|bitonic", "argmax, top-k and sorting"),
    (r"depthwise", "depthwise and grouped convolution"),
    (r"score matrix|running max\w*\W+(and|with)\W+(a )?rescaled|flash", "attention without the score matrix"),
    (r"online softmax|running max", "softmax in one pass over memory"),
    (
        r"welford|\bchan\b|running (mean|variance)|one-pass (mean|variance|statistics)",
        "layer norm, Welford statistics",
    ),
    (r"streaming stores?|non-?temporal|huge pages", "streaming stores, page faults on the CPU"),
    (r"\bavx\b|avx-?2|avx-?512|\bsimd\b|intrinsics", "row kernels on the CPU with OpenMP and SIMD"),
    (r"\bpack(s|ed|ing)?\b.*\bpanels?\b|micro-?kernel", "matrix products on the CPU, register tiles and packing"),
    (r"multicast", SHARED_TILE),
    (r"e4m3|e5m2|\bfp8\b", "FP8 and INT8 quantization, scales"),
)
"""A pattern over an idea's words and the question; what is most easily written wrong comes first, and last what other
pages say too."""

COMMON = (
    (r"mbarrier|expect_tx", BULK),
    (
        r"\bodd (row|stride|length|size|number)|(un|mis)aligned (row|store)|"
        r"(rows?|stores?)\W+(\w+\W+){0,3}(un|mis)aligned",
        ODD_ROWS,
    ),
    (r"persistent|resident blocks", "persistent kernels and wave quantization"),
    (r"epilogue", "fusing bias, activation and residual into the GEMM epilogue"),
    (r"matrix[- ]vector|\bgemv\b|skinny", "GEMV and skinny matrix products"),
    (r"\bevict\w*|createpolicy|access policy|l2 persist", "keeping a region in L2, eviction priority, cache hints"),
    (r"bank conflicts?|\bswizzl", "shared memory bank conflicts, padding and swizzles"),
    (r"order of (the )?tiles|raster", "order of tiles for L2 reuse"),
    (r"\batomic|red\.global", "atomics and contention"),
    (r"ex2\.approx|__expf|fast exp|rsqrt\.approx|rational|polynomial", "fast exponentials, divisions and activations"),
    (r"transpos", "transposes through shared memory"),
    (r"shuffle|shfl", "warp and block reductions with shuffles"),
    (r"register tile|outer product", "matrix product tiles for block, warp and thread"),
)
"""The same of what most authors know: asked for where an idea names nothing else, and then one alone."""

MOST = 4
"""Pages on what an idea names, of which an answer has those that fit its budget whole."""

DENIED = re.compile(
    r"\b(?:no|not|nor|never|neither|without|avoid(?:s|ing)?|instead of|rather than)\s+"
    r"(?:(?:an?|any|the|of)\s+)*[\w.:-]*\w",
    re.IGNORECASE,
)
"""What an idea says that it does without, to the end of the word."""


def named(idea: str, shown: Collection[str] = (), arch: str | None = None) -> tuple[str, ...]:
    """The questions on the mechanisms that an idea's words name, in the order of the tables, without those `shown` and
    without kernels that are not for the architecture."""

    def kept(question: str) -> bool:
        return question not in shown and (not arch or arch.startswith(ONLY_ON.get(question, "")))

    wanted = DENIED.sub(" ", idea)
    return tuple(filter(kept, _found(MECHANISMS, wanted)))[:MOST] or tuple(filter(kept, _found(COMMON, wanted)))[:1]


@lru_cache(maxsize=64)
def shown_by(source: str) -> tuple[str, ...]:
    """The questions on the mechanisms that a kernel has already: whoever changes it needs no page on them."""
    return (*_found(MECHANISMS, source), *_found(COMMON, source))


def _found(table: tuple[tuple[str, str], ...], idea: str) -> tuple[str, ...]:
    """`re` keeps the compiled patterns."""
    flags = re.IGNORECASE | re.DOTALL
    return tuple(dict.fromkeys(question for pattern, question in table if re.search(pattern, idea, flags)))
