"""Whether two texts say the same in other words.

Words are reduced to stems and to the techniques that they name, numbers do not count (tile sizes are no ideas), and two
texts are alike where their words are, or where their techniques are and many words too.
"""

from __future__ import annotations

import re
from functools import cache

ALIKE = 0.8
"""Share of their words that two ideas have in common where they are one."""

ALIKE_OF_ONE_TECHNIQUE = 0.55
"""The same where both name the same techniques and one of them is short."""

SHORT = 40
"""Words above which two ideas on one problem share many whatever they say: of 61 different ones that large models had,
those of one problem shared up to 0.68."""

FEWEST = 2
"""Words below which an idea that names no technique says too little to be compared."""

LITTLE = 12
"""Words beside shared sentences below which two ideas differ in their titles at most."""

TECHNIQUES = {
    "vector access": r"float[248]\b|(128|64).?bit (load|store|access)|16.?byte|vectori[sz]\w*|wide (load|store)\w*",
    "shared memory": r"shared.?mem\w*|smem\b|__shared__|lds\b",
    "registers": r"registers?\b|register.?(til|block|resident)\w*",
    "warp shuffle": r"shuffl\w*|__shfl\w*|warp.?(level )?reduc\w*",
    "async copy": r"cp\.?async|async\w* cop(y|ies)|tma\b|bulk cop\w*|memcpy_async",
    "pipeline": r"pipelin\w*|double.?buffer\w*|multi.?stage|prefetch\w*|overlap\w*",
    "tensor cores": r"tensor.?cores?|wgmma|mma\b|wmma|hmma",
    "fusion": r"fus(e|es|ed|ing|ion)\b|one (kernel|pass|launch)|single (kernel|pass|launch)",
    "persistent": r"persistent\w*|grid.?stride",
    "split": r"split.?k\b|split\w*|partial (sum|result)s?|two.?(stage|phase|step)s?",
    "swizzle": r"swizzl\w*|bank.?conflict\w*|padd(ed|ing)\b",
    "online": r"online|streaming softmax|running (max|maximum|sum)|welford",
    "unrolling": r"unroll\w*|instruction.?level|ilp\b|independent (chain|accumulator)s?",
    "occupancy": r"occupanc\w*|launch.?bounds?|fewer registers",
    "cache": r"l2\b.{0,20}(resid|persist|reuse)\w*|cache.?(hint|polic|stream|evict)\w*|non.?temporal|__ldcs|__stcs",
    "threads": r"openmp|omp\b|multi.?thread\w*|parallel over",
    "simd": r"simd\w*|avx\w*|intrinsics?",
    "graph": r"cuda.?graph\w*",
    "cluster": r"clusters?\b|distributed shared\w*",
    "transpose": r"transpos\w*|layout|coalesc\w*",
}
PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in TECHNIQUES.items())
_STOP_WORDS = (
    "a all an and as at be by each every for from in into is it its of on one only per so that the their them then "
    "there these this to use using via when which while with instead rather than make let do does can will would "
    "may now kernel kernels code idea transformation"
)
STOP = frozenset(_STOP_WORDS.split())
SAME = {
    "hold": "keep",
    "retain": "keep",
    "cache": "keep",
    "thread": "lane",
    "read": "load",
    "fetch": "load",
    "write": "store",
}


@cache
def techniques(text: str) -> frozenset[str]:
    """The techniques that a text names, by our names."""
    return frozenset(name for name, pattern in PATTERNS if pattern.search(text.casefold()))


@cache
def words(text: str) -> frozenset[str]:
    """The stems of a text's words, the names of techniques in their place, without numbers."""
    text = text.casefold()
    named = techniques(text)
    for _, pattern in PATTERNS:
        text = pattern.sub(" ", text)
    stems = (_stem(word) for word in re.findall(r"[^\W\d_]{2,}", text) if word not in STOP)
    return named | {SAME.get(stem, stem) for stem in stems}


def _stem(word: str) -> str:
    for ending in ("ations", "ation", "ings", "ing", "ies", "ers", "ed", "es", "er", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e")


def alike(one: str, other: str) -> float:
    """The share of their words that two texts have in common (Dice), 0 to 1."""
    a, b = words(one), words(other)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def apart(one: str, other: str) -> tuple[str, str]:
    """What each of two texts says beside the sentences that they share word for word; both whole where it is little."""
    ours, theirs = _sentences(one), _sentences(other)
    shared = ours.keys() & theirs.keys()
    rest = [" ".join(text for key, text in of.items() if key not in shared) for of in (ours, theirs)]
    return (rest[0], rest[1]) if shared and min(len(words(text)) for text in rest) >= LITTLE else (one, other)


def _sentences(text: str) -> dict[str, str]:
    """The sentences of a text by their letters and digits."""
    parts = (part.strip() for part in re.split(r"(?<=[.;:!?])\s+|\n+", text))
    return {" ".join(re.findall(r"\w+", part.casefold())): part for part in parts if part}


def says_the_same(one: str, other: str) -> bool:
    """Whether two ideas, as they were said, are one in other words."""
    one, other = apart(one, other)
    named, share = techniques(one), alike(one, other)
    if share >= ALIKE and (named or min(len(words(one)), len(words(other))) >= FEWEST):
        return True
    short = min(len(words(one)), len(words(other))) <= SHORT
    return short and bool(named) and named == techniques(other) and share >= ALIKE_OF_ONE_TECHNIQUE
