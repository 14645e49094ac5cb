"""What can be varied in a row program's kernel on each target."""

from __future__ import annotations

from kernel_agent.templates.genes import Gene, Space, numbers, starting, strategy
from kernel_agent.templates.program import Call, Program
from kernel_agent.templates.schedule import passes
from kernel_agent.types import Device


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


def cpu_space(program: Program, device: Device) -> Space:
    """Genes of C++ with OpenMP."""
    genes = []
    keeps = any(plan.kept for plan in passes(program, "computed"))
    if keeps:
        genes.append(_keep(program))
    genes.append(
        strategy(
            "store",
            [
                (
                    "stream",
                    "streaming stores",
                    "Stores past the cache skip reading a line before overwriting it.",
                ),
                (
                    "plain",
                    "plain stores",
                    "Plain stores copy no tile and leave the output in the cache.",
                ),
            ],
        )
    )
    genes.append(
        strategy(
            "pages",
            [
                (
                    "huge",
                    "2 MiB pages",
                    "A fresh output costs a fault a page, and 2 MiB pages make them 512 times fewer.",
                ),
                ("normal", "4 KiB pages", "Where large pages come by themselves, asking costs a call."),
            ],
        )
    )
    if program.folds:
        genes.append(
            strategy(
                "prefetch",
                [
                    (0, "", "The processor's own prefetcher sees rows coming."),
                    (
                        1,
                        "next row prefetched",
                        "The last pass runs from the cache: memory can fetch the next row.",
                    ),
                ],
            )
        )
    if divides(program):
        genes.append(DIVIDE)
    if "avx512" in device.arch:
        genes.append(
            strategy(
                "width",
                [
                    (512, "512-bit vectors", "The arithmetic between loads and stores takes half the instructions."),
                    (256, "256-bit vectors", "Narrower vectors keep the clock up where memory is the limit."),
                ],
            )
        )
    why = "Tiles of {0} elements stay in the L1 cache while a loop of vector code runs over them."
    genes.append(numbers("block", (1024, 2048, 512, 4096, 256), "tiles of {0}", why, "BLOCK"))
    return starting(
        genes,
        [
            {"store": "plain", "prefetch": 1, "block": 2048},
            {"keep": "reread", "width": 256, "block": 512},
            {"keep": "reread", "store": "plain", "divide": "exact", "block": 4096},
            {"width": 256, "store": "plain", "prefetch": 1, "block": 512},
            {"pages": "normal", "block": 2048},
            {"width": 256, "prefetch": 1, "divide": "exact", "block": 4096},
            {"keep": "reread", "pages": "normal", "store": "plain", "block": 1024},
        ],
    )


def _keep(program: Program) -> Gene:
    kept = (
        "buffer",
        "row kept in cache",
        "What a pass computes stays in a row buffer: no input is read twice.",
    )
    again = (
        "reread",
        "row computed again",
        "Computing a row again from cached inputs saves the buffer's stores.",
    )
    long = program.columns * 4 > 256 * 1024  # a row that no L2 cache holds beside its inputs
    return strategy("keep", [again, kept] if long else [kept, again])
