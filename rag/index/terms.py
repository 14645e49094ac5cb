"""Index terms: identifiers whole and in parts, word forms that meet, and the other names of what a question names."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

_TOKEN = re.compile(r"\w+(?:\.[A-Za-z_]\w*)*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_METRIC = re.compile(r"[a-z0-9]+__\w+\.\S+")
_STOP_WORDS = (
    "a about an and any are as at be been but by can do does for from had has have how i if in into is it its me my no "
    "not of on one or our out so than that the their them then there these they this to too up use used using was we "
    "were what when where which while who why will with would you your"
)
_STOP = frozenset(_STOP_WORDS.split())


def words(text: str) -> Iterator[str]:
    """The index terms of prose or code: identifiers whole, and their snake and camel parts, stemmed; no stop words."""
    return (term for token in _TOKEN.findall(text) for term in _terms(token))


@functools.lru_cache(maxsize=1 << 16)
def _terms(token: str) -> tuple[str, ...]:
    whole = token.strip("_").replace(".", "_").lower()
    if _METRIC.fullmatch(token):  # what follows the dot says how it was summed up, not what was counted
        return (whole, *_terms(token.split(".")[0]))
    parts = [stem(part.lower()) for part in _PART.findall(token)]
    names = [whole] if len(parts) > 1 else []
    return (*names, *(part for part in parts if part not in _STOP and (len(part) > 1 or part.isdigit())))


def stem(word: str) -> str:
    """A light English stem: fused, fuses and fusing meet; reduction and reduce meet. Never longer than the word."""
    for suffix, rest in (("ations", ""), ("ation", ""), ("ctions", "c"), ("ction", "c"), ("ings", ""), ("ing", "")):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return _undouble(word.removesuffix(suffix) + rest)
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    if word.endswith("ed") and len(word) > 4:
        word = _undouble(word[:-2])
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _undouble(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] in "bdgmnprt" else word


NAMES = (
    "gemm; matmul; matrix multiply; matrix multiplication; matrix product; mm; linear",
    "gemv; matvec; mv; matrix vector; skinny",
    "bmm; baddbmm; batched; batched gemm; batched matrix multiply",
    "pointwise; elementwise; element-wise",
    "activation; relu; gelu; silu; swish; sigmoid; mish; hardswish; leaky_relu; elu",
    "exp; tanh; sin; cos; erf; log; transcendental; special function",
    "softmax; log_softmax; logsumexp; softmax normalizer",
    "attention; scaled_dot_product_attention; sdpa; mha; flash attention",
    "norm; layer norm; layer_norm; layernorm; batch norm; batch_norm; batchnorm; group norm; group_norm; groupnorm; "
    "instance_norm; instancenorm; rms norm; rms_norm; rmsnorm",
    "scan; prefix sum; cumsum; cumprod; cumulative sum",
    "recurrent; lstm; gru; rnn; lstmcell; grucell",
    "sort; argsort; topk; top-k; kthvalue",
    "argmax; argmin; arg max",
    "convolution; conv; conv1d; conv2d; conv3d",
    "depthwise; groups channels; separable",
    "transposed convolution; conv_transpose; convtranspose2d; deconvolution",
    "pooling; max_pool2d; avg_pool2d; maxpool; avgpool; adaptive_avg_pool2d",
    "embedding; index_select; gather; scatter; scatter_add; lookup",
    "loss; cross_entropy; cross entropy; nll_loss; kl_div; mse_loss",
    "triangular; tril; triu; symmetric; diagonal; sparse",
    "reduction; reduce; sum; mean; amax",
    "transpose; permute; channels last; nhwc; nchw",
    "histogram; bincount; atomicadd; atomic",
    "shared memory; smem; shared; lds",
    "block; cta; thread block; ctas",
    "sm; multiprocessor",
    "warp; wavefront",
    "bandwidth; memory bound; dram throughput; dram bw; hbm",
    "latency bound; latency",
    "register spill; spill; local memory; local_ld; local_st; lmem",
    "deadlock; hang; hangs; stuck",
    "nondeterministic; non-deterministic; deterministic; determinism; reproducible; bitwise",
    "divergence; divergent; branch; predicated; thread_inst_executed",
    "tail; tail effect; last wave; wave quantization; waves",
    "launch; launch overhead; launch latency; idle gap; tiny kernels",
    "tensor core; tensor cores; tensor pipe; mma; hmma; pipe_tensor",
    "wgmma; warpgroup mma; warpgroup",
    "tcgen05; umma; tensor memory; tmem",
    "tma; bulk tensor; tensor map; cp.async.bulk",
    "mbarrier; expect_tx; asynchronous barrier",
    "cp.async; cp_async; async copy; asynchronous copy; memcpy_async",
    "producer; consumer; warp specialization; warp specialized; warp-specialized",
    "double buffer; multistage; multi-stage; pipeline; prefetch",
    "cluster; thread block cluster; distributed shared memory; dsmem; map_shared_rank",
    "persistent; tile scheduler",
    "split-k; split k; stream-k; parallel k",
    "epilogue; fused bias; bias relu",
    "fuse; fusion; merge kernels",
    "swizzle; xor; bank conflict; bank_conflict; bank conflicts",
    "raster; rasterization; block order; tile order; group m",
    "bf16; bfloat16; half; fp16; float16",
    "fp8; e4m3; e5m2; quantized; quantization; int8",
    "tolerance; allclose; assert_close; rtol; atol; not close; mismatch",
    "benchmark; timing; measure time; cuda event; warm-up; warm up",
    "cuda graph; graph capture; cudagraph; capture; replay",
    "cooperative groups; grid sync; this_grid; grid.sync",
    "__syncthreads; barrier; syncthreads",
    "integer division; modulo; div mod; index arithmetic; fastdivmod",
    "vectorized; float4; int4; 128-bit; 16 bytes; reinterpret_cast",
    "coalesced; uncoalesced; sectors; strided access",
    "read-only cache; __ldg; ld.global.nc; const restrict",
    "evict; evicted; persisting; set-aside; access policy window",
    "illegal memory access; illegal address; out of bounds; memcheck; compute-sanitizer; race; racecheck",
    "no kernel image; arch list; gencode; sm_90a; fatbin",
    "load_inline; cpp_extension; inline extension; ninja; pybind",
    "custom_op; custom op; register_fake; fake tensor; torch.library",
    "data_ptr; contiguous; currentstream; at_dispatch",
    "triton; tl.dot; tl.load; triton.jit",
    "hip; rocm; amd; mfma; cdna; mi300; mi250; gfx942; gfx90a; wave64",
    "hopper; h100; h200; gh200; sm_90",
    "blackwell; b100; b200; gb200; sm_100",
    "ampere; a100; sm_80; a10; rtx 3090; sm_86",
    "ada; l4; l40; rtx 4090; sm_89",
)
"""The names of one thing, a row each: a question that uses one of them is searched by the others too."""


_FILLER_WORDS = (
    "all also always any anyone better each ever every get gets good got handle help just know like lot make makes "
    "many may maybe more most much need needs now only per please properly really right same should some something "
    "still take takes thing try trying very want way well work works would wrong"
)
_FILLERS = frozenset(stem(word) for word in _FILLER_WORDS.split())
"""Words that say nothing in a question, though a text may mean something by them."""


def asked(text: str) -> tuple[list[str], list[str]]:
    """The terms of a question, and those that it does not use but means: other names of what it names.

    Bare numbers and filler words are left out, unless the question has nothing else.
    """
    every = list(dict.fromkeys(words(text)))
    own = [term for term in every if term not in _FILLERS and not term.isdigit()]
    meant = dict.fromkeys(term for n in _named(every) for name in _rows()[n] for term in name.split())
    return own or every, [term for term in meant if term not in every and not term.isdigit()]


def spelt_out(text: str) -> str:
    """The question with other names of what it names behind it, for a model that does not know them to be the same."""
    names = [name.strip() for n in _named(words(text)) for name in NAMES[n].split(";")[:3]]
    said = text.lower()
    extra = [name for name in dict.fromkeys(names) if name not in said][:8]
    return f"{text} ({', '.join(extra)})" if extra else text


def _named(terms: Iterable[str]) -> Iterator[int]:
    """The places of the rows of which the terms hold a name."""
    line = f" {' '.join(terms)} "
    return (n for n, row in enumerate(_rows()) if any(f" {name} " in line for name in row))


@functools.cache
def _rows() -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(" ".join(words(name)) for name in row.split(";")) for row in NAMES)
