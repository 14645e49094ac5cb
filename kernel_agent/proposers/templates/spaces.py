"""What can be varied in a row program's kernel on each target."""

from __future__ import annotations

from math import log2

from kernel_agent.proposers.templates import emit_transpose
from kernel_agent.proposers.templates.emit_cuda import vector
from kernel_agent.proposers.templates.genes import Gene, Space, numbers, starting, strategy
from kernel_agent.proposers.templates.program import Call, Program
from kernel_agent.proposers.templates.routine import moved
from kernel_agent.proposers.templates.schedule import passes
from kernel_agent.run.types import Device


def divides(program: Program) -> bool:
    """Whether some division at every column shares its divisor over the row."""
    return any(
        isinstance(term, Call)
        and term.function == "div"
        and program.by_column[i]
        and program.by_row[term.args[1]]
        and not program.by_column[term.args[1]]
        for i, term in enumerate(program.terms)
    )


DIVIDE = strategy(
    "divide",
    [
        ("reciprocal", "one division a row", "A division shared by the whole row is done once and multiplied by."),
        ("exact", "exact divisions", "Dividing every element keeps the last bit and hides behind memory traffic."),
    ],
)
STREAM = ("stream", "streaming stores", "Stores past the cache skip reading a line before overwriting it.")
PLAIN = ("plain", "plain stores", "Plain stores copy no tile and leave the output in the cache.")
CACHED = 1 << 23  # bytes of an output that the last cache may still hold when it is read
NEXT_ROW = strategy(
    "prefetch",
    [
        ("none", "", "The processor's own prefetcher sees rows coming."),
        ("next", "next row prefetched", "The last pass runs from the cache: memory can fetch the next row."),
    ],
)
NEXT_TILE = strategy(
    "prefetch",
    [
        ("none", "", "The processor's own prefetcher sees tiles coming."),
        ("next", "next tile prefetched", "Asked for by name, the next tile does not wait at the end of a page."),
    ],
)
UNROLL = strategy(
    "unroll",
    [
        ("none", "", "One vector a turn keeps the code short, and the processor overlaps turns by itself."),
        ("loops", "loops unrolled", "Several vectors a turn share the loop's own instructions."),
    ],
)
WIDTH = strategy(
    "width",
    [
        (512, "512-bit vectors", "The arithmetic between loads and stores takes half the instructions."),
        (256, "256-bit vectors", "Narrower vectors keep the clock up where memory is the limit."),
    ],
)
BUFFER = ("buffer", "row kept in cache", "What a pass computes stays in a row buffer: no input is read twice.")
AGAIN = ("reread", "row computed again", "Computing a row again from cached inputs saves the buffer's stores.")
LAST_CACHE = 50 << 20  # bytes that a GPU's last cache has, where the server does not say
L2 = 1 << 18  # bytes of a row that a cache surely holds beside its inputs


def cpu_space(program: Program, device: Device) -> Space:
    """Genes of C++ with OpenMP."""
    if program.strided:
        strip = "Strips of {0} neighbouring results keep their sums in the L1 cache."
        tiles = numbers("block", (256, 64, 128, 32), "strips of {0}", strip, "BLOCK")
        return starting([UNROLL, tiles], [{"block": 64}, {"unroll": "loops", "block": 128}, {"block": 32}])
    keeps = any(plan.kept for plan in passes(program, "computed"))
    full = any(output.full for output in program.outputs)
    why = "Tiles of {0} elements stay in the L1 cache while a loop of vector code runs over them."
    genes = [
        *([strategy("keep", [AGAIN, BUFFER] if program.columns * 4 > L2 else [BUFFER, AGAIN])] if keeps else []),
        *(
            [strategy("store", [PLAIN, STREAM] if program.rows * program.columns * 4 < CACHED else [STREAM, PLAIN])]
            if full
            else []
        ),
        UNROLL,
        NEXT_ROW if program.folds else NEXT_TILE,
        *([DIVIDE] if divides(program) else []),
        *([WIDTH] if "avx512" in device.arch else []),
        numbers("block", (1024, 2048, 512, 4096, 256), "tiles of {0}", why, "BLOCK"),
    ]
    return starting(
        genes,
        [
            {"store": "plain", "unroll": "loops", "block": 512},
            {"store": "stream"},
            {"keep": "reread", "width": 256, "block": 256},
            {"keep": "reread", "store": "plain", "divide": "exact", "block": 4096},
            {"width": 256, "store": "plain", "prefetch": "next", "block": 512},
            {"prefetch": "next", "block": 4096},
            {"width": 256, "prefetch": "next", "divide": "exact", "unroll": "loops", "block": 4096},
            {"keep": "reread", "unroll": "loops", "prefetch": "next", "block": 2048},
        ],
    )


def cuda_space(program: Program, device: Device) -> Space:
    """Genes of CUDA C++."""
    if program.transposed:
        return emit_transpose.space(program)
    if program.strided:
        return _columns_space(program, _common(program, plain=True))
    if program.folds:
        return _rows_space(program, _common(program, plain=False))
    large = moved(program) > float(device.peaks.get("last_cache_bytes") or LAST_CACHE)
    return _many_points_space(_common(program, plain=True)) if large else _points_space(_common(program, plain=False))


def _common(program: Program, plain: bool) -> list[Gene]:
    """Genes of every row program; `plain` says that loads and stores without a hint to the caches come first."""
    loads = [
        ("stream", "streaming loads", "Inputs that are read once don't push others out of the L2 cache."),
        ("cached", "cached loads", "Inputs may still be in the L2 cache from whoever wrote them."),
    ]
    stores = [
        ("stream", "streaming stores", "Output lines leave the L2 cache first."),
        ("plain", "plain stores", "The output may be found in the L2 cache by whoever reads it next."),
    ]
    grids = [
        ("exact", "", "The scheduler starts a block as soon as another ends."),
        ("resident", "resident blocks that loop", "As many blocks as fit at once: none starts late."),
    ]
    return [
        strategy("load", loads[::-1] if plain else loads),
        *([strategy("store", stores[::-1] if plain else stores)] if program.full else []),
        strategy("grid", grids),
        _vector(program),
    ]


def _vector(program: Program) -> Gene:
    """Elements a load: 16 bytes of the widest input, or as many as its alignment allows."""
    narrow = any(leaf.spec.dtype in ("float16", "bfloat16") for leaf in program.leaves)
    best = vector(program, 8 if narrow else 4)
    sizes = [best, best // 2] if best > 1 else [1]
    why = "Fewer, wider loads put more bytes in flight for each instruction."
    return strategy("vector", [(n, f"vectors of {n}" if n > 1 else "single elements", why) for n in sizes])


def _points(common: list[Gene], unrolls: tuple[int, ...], threads: tuple[int, ...]) -> list[Gene]:
    flight = "{0} vectors of every input are asked for before the first is used."
    even = "Blocks of {0} threads fill a multiprocessor evenly."
    return [
        *common,
        numbers("unroll", unrolls, "{0} vectors in flight", flight, "UNROLL", "one vector in flight"),
        numbers("threads", threads, "blocks of {0}", even, "THREADS"),
    ]


def _many_points_space(common: list[Gene]) -> Space:
    """Of more than the last cache holds: short blocks that end (an H200, 12.9 GB: 3.07 ms, 3.55 ms by blocks that
    loop; 3.02 ms by PyTorch, whose threads have 16 bytes each)."""
    return starting(
        _points(common, (1, 2, 4, 8), (128, 256, 512)),
        [
            {"store": "stream"},
            {"load": "stream", "store": "stream", "unroll": 2},
            {"unroll": 2, "threads": 256},
            {"load": "stream", "unroll": 4, "threads": 256},
            {"vector": common[-1].values[-1], "unroll": 2},
            {"grid": "resident", "unroll": 4, "threads": 512},
        ],
    )


def _points_space(common: list[Gene]) -> Space:
    return starting(
        _points(common, (4, 2, 8, 1), (256, 128, 512)),
        [
            {"load": "cached", "store": "plain", "unroll": 1, "threads": 128},
            {"unroll": 8, "threads": 128},
            {"load": "cached", "store": "plain", "unroll": 2, "threads": 512},
            {"vector": common[-1].values[-1], "unroll": 8},
            {"grid": "resident", "unroll": 2, "store": "plain"},
            {"grid": "resident", "unroll": 4, "threads": 512},
        ],
    )


def _columns_space(program: Program, common: list[Gene]) -> Space:
    """A thread a result, or several that share one; neighbours have neighbouring results.

    Plain loads and stores of 64 neighbours by 4 threads a result came first on an H200: 3.72 ms of 3.51 (RMS norm over
    64 channels, 15 GB), and 2.15 ms where others took 2.24 to 2.51 (maximum of 4096, 8.6 GB).
    """
    fits = [n for n in (1, 2, 4, 8, 16, 32) if program.columns <= n * HELD]
    order = sorted((2, 4, 8, 16, 32), key=lambda n: abs(log2(n * program.rows / BUSY)))
    few = order[0] > 4
    shares = [n for n in (order if few else (4, 2, 8, 1)) if n <= max(program.columns // 2, 1)] or [1]
    held = [n for n in shares if n in fits]
    rows = [
        ("registers", "column in registers", "Every input is read once: what is folded waits in registers."),
        (
            "reread",
            "column read again",
            "Reading again from the caches frees registers, so more threads are in flight.",
        ),
    ]
    single = not any(plan.kept for plan in passes(program, "everything"))
    if single and len(program.places) > MANY_READS:
        held = []  # nothing waits in registers, and a loop that is unrolled as a whole would run out of them
    several = "{0} threads share a result, so that few results fill the device."
    neighbours = "{0} neighbouring results share a block: their loads are whole lines."
    genes = [
        strategy("row", rows if held else rows[1:]),
        *([DIVIDE] if divides(program) else []),
        *common,
        numbers("threads", held or shares, "{0} threads a result", several, "THREADS", ""),
        numbers(
            "together",
            tuple(n for n in (64, 32, 128) if n * max(held or shares) <= 1024),
            "{0} results a block",
            neighbours,
            "ROWS_PER_BLOCK",
        ),
    ]
    return starting(
        genes,
        [
            {"threads": (held or shares)[1 % len(held or shares)], "together": 128},
            {"row": "reread", "store": "stream"},
            {"store": "stream"},
            {"load": "stream", "store": "stream", "together": 32},
            {"row": "reread", "threads": (held or shares)[-1]},
        ],
    )


BUSY = 132 << 10  # threads with a load each that keep a large device's memory busy
MANY_READS = 6  # at each column, such as the places of windows
HELD = 32  # floats of a row that one thread may hold twice without running out of its 255 registers


def _rows_space(program: Program, common: list[Gene]) -> Space:
    width = int(common[-1].values[0])
    rows = [
        ("registers", "row in registers", "Every input is read once: the row waits in registers for its reductions."),
        (
            "reread",
            "row read again",
            "Reading the row again from the caches frees registers, so more rows are in flight.",
        ),
    ]
    fits = program.columns <= 1024 * HELD
    needed = max(1, min(1024, program.columns // width))
    most = 1 << (needed - 1).bit_length() if needed > 1 else 1  # threads that have one vector each
    target = max(min(most, 32), min(most, 1 << max(0, (program.columns // 16 - 1).bit_length())))
    threads = [t for t in (target, target * 2, target // 2, target * 4) if 1 <= t <= most]
    threads = [t for t in threads if not fits or program.columns <= t * HELD] or [1024]
    together = [max(1, 256 // max(threads)), max(1, 128 // max(threads)), max(1, 512 // max(threads))]
    genes = [
        strategy("row", rows if fits else rows[1:]),
        *([DIVIDE] if divides(program) else []),
        *common,
        numbers("threads", threads, "{0} threads a row", "{0} threads share a row and agree on its sums.", "THREADS"),
        numbers(
            "together",
            list(dict.fromkeys(together)),
            "{0} rows a block",
            "{0} rows share a block, so that no block is too small to fill a multiprocessor.",
            "ROWS_PER_BLOCK",
            "",
        ),
    ]
    return starting(
        genes,
        [
            {"threads": threads[1 % len(threads)], "load": "cached"},
            {"threads": threads[2 % len(threads)], "store": "plain", "load": "cached"},
            {"row": "reread", "load": "cached"},
            {"divide": "exact", "vector": common[-1].values[-1]},
            {"grid": "resident", "store": "plain"},
            {"row": "reread", "load": "cached", "threads": threads[1 % len(threads)], "grid": "resident"},
        ],
    )
