"""How a GPU computes float32 products on its tensor cores, and whether that beats its library.

The server says which ways are exact enough for a problem and at what rates the device multiplies; nothing is taken
that these do not promise to be faster than float32 on the FMA units, which is what the library does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Any

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates import attention_tile
from kernel_agent.proposers.templates.attention import HALVES, Attention, attention_of, is_attention
from kernel_agent.proposers.templates.convolution import Convolution, convolution_of, is_convolution
from kernel_agent.proposers.templates.convolution_tile import BYTES, UNIT, ranked
from kernel_agent.proposers.templates.emit_product import CUT, DIGIT_TERMS, DIGITS, cut_bytes, scratch
from kernel_agent.proposers.templates.families import build, covers
from kernel_agent.proposers.templates.forms import is_product
from kernel_agent.proposers.templates.graph import Graph
from kernel_agent.proposers.templates.lowering import names
from kernel_agent.proposers.templates.product import TRIANGLES, Product, product_of
from kernel_agent.proposers.templates.routine import Routine, moved
from kernel_agent.run.precision import Way
from kernel_agent.run.types import Description, Device

LAUNCH_US = 3.0  # of any kernel: what is shorter is not worth one of ours
GAIN = 1.1  # over the library, as predicted, from which a product is taken
EDGE = 64  # rows and columns of the smallest tile: what is less is computed all the same
NATIVE = 0.6  # of the measured rate that mma.sync reaches where the library has no other instructions
WARP_WIDE = {"bf16_tflops": 0.18, "tf32_tflops": 0.35, "int8_tflops": 1e-9}
"""The same from sm_90 on: 147 TFLOP/s of either (an H200, benchmarks/results/products-h200.md); digits have none."""
GROUP_WIDE = {1: 0.6, 3: 0.8}
"""The same by wgmma, in one product and in three, which read the same tiles."""
ATTENDING = {"tf32x3": "fp16x3", "fp16": "fp16"}  # how attention computes where a product may be computed so
ATTENDED = 0.6  # of what three products reach, by the two of attention; not measured
WEIGHED = 3e3  # scores a nanosecond that become weights in parts: ten cycles of a warp, not measured
ATTENTION_LAUNCHES = 4  # marks, parts, attention, and what is computed again
CONVOLVED = 0.5  # the same by wgmma from boxes of an input
LIBRARY = 0.6  # of the measured rate that cuDNN's convolutions reach
LIBRARY_MADE, LIBRARY_GIVEN = 64, 8  # channels that they compute at least: times of an H200, convolutions-h200.md
HOPELESS = 2.0  # times the library's time, as predicted, that a convolution of ours is not worth a try
DEEP = 256  # terms from which a ring of wgmma's tiles fills
SAFE = 0.4  # of what is allowed: errors were found up to 2.3 times as large as predicted (an H200, KernelBench level 1)
FITS = {"inside": (0.0, 0.5), "near": (0.5, 2.0)}  # shares of what is allowed, by the server's rules
ALLOWED = 64.0  # units of error, where the server does not say


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One way: its name in a kernel and on the wire, how many products of which measured rate it takes, and why."""

    name: str
    way: str
    rate: str
    products: int
    phrase: str
    why: str


ARITHMETICS = (
    Arithmetic(
        "bf16",
        "one bfloat16 product",
        "bf16_tflops",
        1,
        "bfloat16 operands",
        "Operands of bfloat16 are exact enough here.",
    ),
    Arithmetic(
        "fp16",
        "one float16 product",
        "bf16_tflops",
        1,
        "float16 operands",
        "Operands of float16 are exact enough here.",
    ),
    Arithmetic(
        "tf32", "one TF32 product", "tf32_tflops", 1, "TF32 operands", "Operands of TF32 are exact enough here."
    ),
    Arithmetic(
        "bf16x3",
        "three bfloat16 products",
        "bf16_tflops",
        3,
        "three bfloat16 products",
        "Two bfloat16 parts of each operand make float32 products on tensor cores.",
    ),
    Arithmetic(
        "tf32x3",
        "three TF32 products",
        "tf32_tflops",
        3,
        "three TF32 products",
        "Two TF32 parts of each operand are as exact as float32.",
    ),
)
DIGITAL = Arithmetic(
    DIGITS,
    "three int8 products of fixed-point digits",
    "int8_tflops",
    3,
    "three int8 products of digits",
    "Two signed bytes of a row's steps make float32 products at the rate of int8.",
)
"""By wgmma alone, whose operands are cut beforehand."""
ATTENTIVE = Arithmetic(
    "fp16x3",
    "three TF32 products",
    "bf16_tflops",
    3,
    "three float16 products",
    "Two float16 parts of scaled operands are as exact as two of TF32, at twice the rate.",
)
"""By wgmma, in attention alone, which scales its operands tile by tile."""
BY_NAME = {one.name: one for one in (*ARITHMETICS, DIGITAL, ATTENTIVE)}


@dataclass(frozen=True, slots=True)
class Offers:
    """The arithmetics that are exact enough for a problem's products on a device, the most promising first; TFLOP/s of
    each by mma.sync, and by wgmma where the device has it, what the library reaches, and GB/s of a copy. Those that
    are `near` may turn out to err more than is allowed. `narrow`: the reference shows TF32's error, so the library may
    take it in another layout too."""

    rates: Mapping[str, float]
    library: float
    copy_gbps: float
    wide: Mapping[str, float] = field(default_factory=dict)
    near: frozenset[str] = frozenset()
    narrow: bool = True
    bold: bool = True  # whether a product is taken too where only those promise to be faster
    half: float = 0.0  # TFLOP/s of one float16 product by wgmma, for attention whose tensors are of 16 bits

    def build(self, graph: Graph) -> Routine:
        """One kernel for a graph. Raises NotCovered where none covers it, or the library is predicted to be as fast."""
        if any(map(is_attention, graph.nodes)):
            return self.attend(graph)
        if not any(is_product(node) for node in graph.nodes):
            return covered(graph)
        for node in graph.nodes:
            if not is_product(node) and names(node.op)[0] not in TRIANGLES:
                require(node.op)
        product = product_of(graph)
        theirs = self._us(product, product.operations / self.library)
        ours = {name: self._us(product, _padded(product) / reached) for name, reached in self.rates.items()}
        if product.depth >= DEEP:
            held = [name for name in self.wide if name != DIGITS or product.depth <= DIGIT_TERMS]
            ours |= {name: min(ours[name], self._cut_us(product, name)) for name in held}
        faster = tuple(name for name, us in ours.items() if theirs >= GAIN * us)
        if not faster:
            raise NotCovered("the library's product is predicted to be as fast as one of ours here.")
        if faster[0] in self.near and not self.bold:
            raise NotCovered("only products that may err too much are predicted to be faster than the library's here.")
        spares = int((theirs - ours[faster[0]]) * self.copy_gbps * 1e3)
        return replace(product, arithmetics=faster, spares=spares)

    def attend(self, graph: Graph) -> Routine:
        """The same of an attention. Raises NotCovered where the library is predicted to be as fast."""
        for node in graph.nodes:
            if not is_attention(node):
                require(node.op)
        attention = attention_of(graph)
        narrow = attention.result.dtype in HALVES
        known = [name for name in self.rates if name in self.wide]
        if narrow:
            known = ["fp16"] if self.half else []
        held = [name for name in known if name in ATTENDING]
        ours = {ATTENDING[name]: self.attention_us(attention, ATTENDING[name]) for name in held}
        if not ours:
            raise NotCovered("no arithmetic of an attention's kernel is exact enough here, or known.")
        theirs = self.apart_us(attention)
        faster = tuple(name for name, us in ours.items() if theirs >= GAIN * us)
        if not faster:
            raise NotCovered("the library's attention is predicted to be as fast as one of ours here.")
        near = next(name for name in held if ATTENDING[name] == faster[0]) in self.near
        if near and not narrow and not self.bold:
            raise NotCovered(
                "only attentions that may err too much are predicted to be faster than the library's here."
            )
        return replace(attention, arithmetics=faster, spares=self.bytes_in(theirs - ours[faster[0]]))

    def attention_us(self, of: Attention, arithmetic: str) -> float:
        """Microseconds of an attention of ours: keys and values in parts, then the longer of arithmetic and softmax,
        which overlap by half, or the traffic."""
        tile = next(iter(attention_tile.ranked(of.shape, arithmetic).values()))
        padded = tile.queries * tile.blocks / of.shape.heads / of.shape.queries
        seen = of.shape.operations(of.how) / of.shape.operations("none")
        narrow = of.result.dtype in HALVES
        rate = self.half if narrow else self.wide["fp16"] if arithmetic == "fp16" else 2 * self.wide["tf32x3"]
        multiplied = padded * of.shape.operations(of.how) / rate / ATTENDED / 1e6
        weighed = padded * seen * of.shape.scores / WEIGHED / 1e3
        busy = max(multiplied, weighed) + min(multiplied, weighed) / 2
        given = (2 if narrow else 4) * of.shape.heads * of.shape.keys * (of.shape.terms + of.shape.values)
        cut = self._copy_us(given + 4 * tile.scratch)
        return ATTENTION_LAUNCHES * LAUNCH_US + cut + max(busy, self._copy_us(moved(of)))

    def apart_us(self, of: Attention) -> float:
        """The same of the calls in place of which it stands."""
        library = self.half if of.result.dtype in HALVES else self.library
        arithmetic = of.shape.operations(of.how if of.calls == 1 else "none") / library / 1e6
        return of.calls * LAUNCH_US + max(arithmetic, self._copy_us(moved(of))) + self._copy_us(of.saved)

    def convolve(self, graph: Graph) -> Routine:
        """The same where a kernel may compute a convolution too. Raises NotCovered where no arithmetic is exact enough
        for it, or the library is predicted to be far faster."""
        if not any(map(is_convolution, graph.nodes)):
            return self.build(graph)
        for node in graph.nodes:
            if not is_convolution(node):
                require(node.op)
        convolution = convolution_of(graph)
        theirs = self.library_us(convolution)
        ours = {name: self.convolution_us(convolution, name) for name in self.rates if name in BYTES and self.wide}
        if not ours:
            raise NotCovered("no arithmetic of one product is exact enough for this convolution, or known here.")
        if theirs * HOPELESS < min(ours.values()):
            raise NotCovered("the library's convolution is predicted to be far faster than one of ours here.")
        spares = int((theirs - min(ours.values())) * self.copy_gbps * 1e3)
        return replace(convolution, arithmetics=tuple(ours), spares=spares)

    def convolution_us(self, of: Convolution, arithmetic: str) -> float:
        """Microseconds of a convolution of ours: the copy of its input, then the longer of arithmetic and traffic."""
        tile = next(iter(ranked(of.shape, arithmetic).values()))
        copied = UNIT * tile.planes * prod(tile.copied)
        rate = self.wide[arithmetic] * CONVOLVED / GROUP_WIDE[1] * tile.fed
        moves = (copied + moved(of) - of.shape.given_bytes) / self.copy_gbps / 1e3
        return 3 * LAUNCH_US + self._copy_us(of.shape.given_bytes + copied) + max(tile.multiplied / rate / 1e6, moves)

    def library_us(self, of: Convolution) -> float:
        """The same of the library's: passes of layout around it, and a kernel behind it where anything follows."""
        made = of.tail.graph.leaves[of.value].spec.bytes
        both = of.shape.given_bytes + made
        behind = moved(of) - of.shape.given_bytes - of.weight.spec.bytes + made if len(of.terms) > 1 else 0
        return (
            2 * LAUNCH_US
            + max(
                self.arithmetic_us(made // 4 // of.shape.made[0], of.shape.made[0], of.shape.given[0], of.shape.taps),
                self._copy_us(both),
            )
            + self._copy_us(2 * both + behind)
        )

    def arithmetic_us(self, places: int, made: int, given: int, taps: int) -> float:
        """Microseconds of a convolution's arithmetic in the library: it computes whole tiles of channels, and of a
        transposed one all taps at all places of the result."""
        channels = -(-made // LIBRARY_MADE) * LIBRARY_MADE * -(-given // LIBRARY_GIVEN) * LIBRARY_GIVEN
        return 2.0 * places * channels * taps / (self.library * LIBRARY) / 1e6

    def bytes_in(self, us: float) -> int:
        """Bytes that a copy moves in so many microseconds."""
        return int(us * self.copy_gbps * 1e3)

    def _copy_us(self, moved: float) -> float:
        return moved / self.copy_gbps / 1e3

    def _us(self, product: Product, picoseconds: float) -> float:
        """Microseconds, given those of the arithmetic alone: a launch, and the longer of that and the traffic."""
        return LAUNCH_US + max(picoseconds / 1e6, moved(product) / self.copy_gbps / 1e3)

    def _cut_us(self, product: Product, name: str) -> float:
        """The same by wgmma, whose operands are cut before, which reads them and writes their parts."""
        parts = 4 * scratch(product, {"arithmetic": name, "tile": CUT, "split": 1})
        reads = 2 if name == DIGITS else 1  # first for the largest of each row
        cut = (parts + reads * 4 * parts / cut_bytes(name)) / self.copy_gbps / 1e3
        return reads * LAUNCH_US + cut + self._us(product, _padded(product) / self.wide[name])


def _padded(product: Product) -> float:
    """Operations of whole tiles."""
    rows, columns = (-(-size // EDGE) * EDGE for size in (product.rows, product.columns))
    return product.operations * rows / product.rows * columns / product.columns


def covered(graph: Graph) -> Routine:
    """The routine of a graph without products. Raises NotCovered, naming the operator that no template covers."""
    for node in graph.nodes:
        require(node.op)
    return build(graph)


def require(op: str) -> None:
    """Raises NotCovered where no template has a rule for this operator."""
    if not covers(names(op)[0]):
        raise NotCovered(f"no template covers {op}.")


def offered(known: Description) -> Offers | None:
    """What the measured rates and the admissible ways of a problem promise; None where products stay the library's."""
    allowed = [unit.allowed for unit in known.precision]
    found = offers(known.device, known.ways, known.arithmetic == "tf32", allowed or [ALLOWED])
    half = attends_halves(known.graph or {"nodes": ()}) * half_rate(known.device)
    if found is None and half and known.device.copy_gbps:
        return Offers({}, half, known.device.copy_gbps, half=half)
    return found and replace(found, half=half)


def attends_halves(graph: Mapping[str, Any]) -> bool:
    """Whether there is a softmax of 16 bits between calls, which may be attention."""
    made = ((node["op"], one["dtype"]) for node in graph["nodes"] for one in node["outputs"])
    return any("softmax" in op and dtype in HALVES for op, dtype in made)


def half_rate(device: Device) -> float:
    """TFLOP/s of one float16 product by wgmma; 0 where a device has none, or its rate is not known."""
    grouped = device.target == "cuda" and device.build_arch == "9.0a"
    return grouped * float(device.peaks.get("bf16_tflops") or 0) * GROUP_WIDE[1]


def _share(way: Way, allowed: Sequence[float]) -> float:
    """How much of what is allowed a way is predicted to err: the most on an output of which `fits` can have been said,
    as the server names the error of the worst output and not that output."""
    low, high = FITS.get(way.fits, (inf, inf))
    shares = [way.error / units for units in allowed] if way.error is not None else []
    return max((share for share in shares if low <= share <= high), default=high)


def rate(name: str, device: Device) -> float:
    """TFLOP/s of float32 products that an arithmetic would give at the measured rate; 0 where that is not known."""
    return float(device.peaks.get(BY_NAME[name].rate) or 0) / BY_NAME[name].products


def offers(
    device: Device, ways: Sequence[Way], narrow: bool = False, allowed: Sequence[float] = (ALLOWED,)
) -> Offers | None:
    """The same of a device and its ways, given how many units each output may err. `narrow`: the reference may take
    TF32, and so may the library.

    What is predicted to err more than is `allowed` is not taken, and what comes near to it comes last.
    """
    major = int(digits) if (digits := device.arch.removeprefix("sm_").rstrip("af")).isdigit() else 0
    if device.target != "cuda" or major < 80 or not device.copy_gbps:
        return None
    shares = {way.name: _share(way, allowed) for way in ways}
    grouped = major >= 90 and device.build_arch == "9.0a"
    rated = [(one, rate(one.name, device)) for one in (*ARITHMETICS, *([DIGITAL] if grouped else []))]
    usable = [(one, reached) for one, reached in rated if reached and shares.get(one.way, inf) <= 1]
    library = float(device.peaks.get("tf32_tflops" if narrow else "fp32_tflops") or 0)
    if not usable or not library:
        return None
    warps = {one.name: reached * (WARP_WIDE[one.rate] if major >= 90 else NATIVE) for one, reached in usable}
    groups = {one.name: reached * GROUP_WIDE[one.products] for one, reached in usable}
    wide = groups if grouped else {}

    def place(name: str) -> tuple[bool, bool, float, float]:
        share = shares[BY_NAME[name].way]
        return share > SAFE, name == DIGITS, -(wide or warps)[name], share  # digits were wrong once: 1/11 on an H200

    near = frozenset(name for name in warps if place(name)[0])
    return Offers(
        {name: warps[name] for name in sorted(warps, key=place)}, library, device.copy_gbps, wide, near, narrow
    )
