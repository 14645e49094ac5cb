"""Row programs in C++ with OpenMP, written into the kernels of corpus/kernels/*/level_02.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import gcd
from textwrap import indent

from kernel_agent.proposers.templates import emit_cpu_columns
from kernel_agent.proposers.templates.express import (
    contiguous,
    expression,
    fill,
    helpers,
    index,
    leaf_name,
    operand,
    summed,
    text,
)
from kernel_agent.proposers.templates.program import Program, Read, strided_rows
from kernel_agent.proposers.templates.schedule import Pass
from kernel_agent.proposers.templates.strides import normal
from kernel_agent.proposers.templates.writer import START, TYPES, Writer

LARGE = 1 << 22  # bytes of an output from which 2 MiB pages can be had whatever its alignment
SIMD = "#pragma omp simd"
APART = 8  # elements from which on a row's are far apart
ACROSS = 128  # columns at most of a tile that is turned round
TOGETHER = 64  # rows at most of such a tile: it fits the L2 cache, and a block of rows the L1 cache
SHORT = 256  # columns of a row so short that its last vector counts
LEVEL = 64  # columns from which on a tile ends where what is read by channel changes
LANES = 16  # floats of a vector


def emit(program: Program, genes: Mapping[str, object]) -> str:
    """The whole C++ source; it exports `run`, which takes the program's leaves and then its outputs."""
    if program.strided:
        return emit_cpu_columns.emit(program, genes)
    program = strided_rows(program)
    writer = _CpuWriter(program, genes, "computed" if genes.get("keep") == "buffer" else "nothing")
    ends = [*writer.advice(), "launch(t);"]
    places = {"shape": writer.shape(), "tensors": writer.tensors(), "work": writer.work(), "run": writer.run(ends)}
    places["math"] = helpers("math/level_01.cpp", "".join(places.values()), writer.types())
    return fill(text(f"{program.family}/level_02.cpp"), places)


def flags(genes: Mapping[str, object]) -> tuple[str, ...]:
    """Compiler flags. Without errno and traps, roots and comparisons become vector code; NaN keeps its meaning."""
    width = (f"-mprefer-vector-width={genes['width']}",) if "width" in genes else ()
    unroll = ("-funroll-loops",) if genes.get("unroll") == "loops" else ()
    return ("-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", *width, *unroll)


class _CpuWriter(Writer):
    @property
    def tiled(self) -> bool:
        """Without folds a row is cut into tiles, each of which is an item of work; else a row is one."""
        return not self.program.folds

    def shape(self) -> str:
        p = self.program
        rows = "ROWS / GROUP" if self.across else "ROWS"
        items = f"{rows} * ((COLUMNS + BLOCK - 1) / BLOCK)" if self.tiled else "ROWS"
        block = min(int(str(self.genes["block"])), ACROSS) if self.across else self.genes["block"]
        group = f"GROUP = {self.group}, WIDE = BLOCK + 16, " if self.across else ""
        return (
            f"#ifndef BLOCK\n#define BLOCK {block}\n#endif\n"
            f"constexpr int64_t ROWS = {p.rows}, COLUMNS = {p.columns}, {group}ITEMS = {items};"
        )

    def step(self, i: int) -> int | None:
        """How far apart the elements of a row are in what is read, where that is one distance."""
        columns = self.program.places[i][1]
        return columns[0][1] if len(columns) == 1 and columns[0][0] == self.program.columns else None

    @cached_property
    def across(self) -> tuple[int, ...]:
        """What is read with its channels last: the elements of neighbouring rows lie beside each other, those of a row
        far apart. A tile of it is turned round in the cache first."""
        p, found = self.program, list[int]()
        for i, term in enumerate(p.terms):
            if self.tiled and isinstance(term, Read) and term.leaf.spec.dtype == "float32":
                rows = p.places[i][0]
                if (self.step(i) or 0) >= APART and rows and rows[-1][1] == 1 and rows[-1][0] >= APART:
                    found.append(i)
        return tuple(found)

    @property
    def group(self) -> int:
        """How many neighbouring rows a tile has: a divisor of the channels of all that lies so."""
        channels = gcd(*(self.program.places[i][0][-1][0] for i in self.across))
        return max(n for n in range(1, TOGETHER + 1) if channels % n == 0)

    def advice(self) -> list[str]:
        """Requests for 2 MiB pages under large outputs: fresh memory costs a fault a page."""
        large = self.program.rows * self.program.columns * 4 >= LARGE
        full = [n for n, output in enumerate(self.program.outputs) if output.full and large]
        return [f"k_huge_pages(t.out{n}, ROWS * COLUMNS * sizeof(*t.out{n}));" for n in full]

    def work(self) -> str:
        kept = sorted({i for plan in self.passes for i in plan.kept})
        lines = [
            line for i in kept for line in (f"const Row row{i}(COLUMNS);", f"float* __restrict__ k{i} = row{i}.data;")
        ]
        body = self._tile() if self.tiled else self._row()
        head = (
            "for (int64_t item = begin; item < end; ++item) {"
            if self.tiled
            else "for (int64_t r = begin; r < end; ++r) {"
        )
        lines += [head, indent(body, "  "), "}"]
        return "void work(const Tensors& t, int64_t begin, int64_t end) {\n" + indent("\n".join(lines), "  ") + "\n}"

    def _tile(self) -> str:
        only = self.passes[0]
        first = "o = item / blocks * GROUP" if self.across else "r = item / blocks"
        lines = [
            "constexpr int64_t blocks = (COLUMNS + BLOCK - 1) / BLOCK;",
            f"const int64_t {first}, b = item % blocks * BLOCK;",
            "const int64_t n = std::min<int64_t>(BLOCK, COLUMNS - b);",
        ]
        body = [*self._scalars(only), *self._block(only)]
        if not self.across:
            return "\n".join([*lines, *body])
        for i in self.across:
            at = summed(str(self.read(i).offset), index(self.program.places[i][0], "o"), f"b * {self.step(i)}")
            lines.append(f"alignas(64) float x{i}[GROUP * WIDE];")
            lines.append(f"k_turn<GROUP, WIDE>(t.{leaf_name(self.program, i)} + ({at}), {self.step(i)}, x{i}, n);")
        return "\n".join([*lines, "for (int64_t r = o; r < o + GROUP; ++r) {", indent("\n".join(body), "  "), "}"])

    def _row(self) -> str:
        lines = list[str]()
        for plan in self.passes:
            lines += self._scalars(plan)
            if not plan.folds and not plan.outputs:
                continue
            lines += [
                f"double f{i} = 0.0;" if self.folded(i).kind == "sum" else f"float f{i} = {START[self.folded(i).kind]};"
                for i in plan.folds
            ]
            level = self.level
            end = f"{level} - b % {level}" if level else "COLUMNS - b"
            block = [f"n = std::min<int64_t>(BLOCK, {end});", *self._block(plan)]
            lines += ["for (int64_t b = 0, n; b < COLUMNS; b += n) {", indent("\n".join(block), "  "), "}"]
            lines += [f"const float v{i} = f{i};" for i in plan.folds]
        for n, output in enumerate(self.program.outputs):
            if not output.full:
                lines.append(self._store(output.spec.dtype, f"t.out{n}", "r", operand(self.program, output.term)))
        return "\n".join(lines)

    def _scalars(self, plan: Pass) -> list[str]:
        lines = list[str]()
        for i in plan.scalars:
            term = self.program.terms[i]
            if isinstance(term, Read):
                leaf, at = f"t.{leaf_name(self.program, i)}", index(self.program.places[i][0], "r")
                lines.append(f"const float v{i} = {self._load(i, leaf, summed(str(term.offset), at))};")
            else:
                lines.append(f"const float v{i} = {expression(self.program, i)};")
        return lines + self.reciprocals(plan.loop)

    def _block(self, plan: Pass) -> list[str]:
        """One tile of one pass: loads, the loop, and what follows it."""
        p, lines, after = self.program, list[str](), list[str]()
        for i in plan.loop:
            term = p.terms[i]
            if isinstance(term, Read):
                lines.append(f"const auto* __restrict__ p{i} = {self._pointer(i)};")
        lines += self._count(plan)
        flat = [i for i in plan.loop if self._is_level(i)]
        lines += [f"const float v{i} = {self._load(i, f'p{i}', index(p.places[i][1], 'b'))};" for i in flat]
        clauses, body = list[str](), [f"const float v{i} = k{i}[b + j];" for i in plan.recalled]
        body += [
            f"const float v{i} = {self._element(i)};"
            if i not in plan.kept
            else f"const float v{i} = k{i}[b + j] = {self._element(i)};"
            for i in plan.loop
            if i not in flat
        ]
        for i in plan.folds:
            term = self.folded(i)
            head, clause, step, tail = _fold(term.kind, i, operand(p, term.arg))
            lines += head
            clauses += clause
            body += step
            after += tail
        for n in plan.outputs:
            head, step, tail = self._output(n)
            lines += head
            body += step
            after += tail
        lines += [
            " ".join([SIMD, *clauses]),
            f"for (int64_t j = 0; j < {self._bound(plan)}; ++j) {{",
            indent("\n".join(body), "  "),
            "}",
        ]
        return [*lines, *after, *self._ahead(plan)]

    def _pointer(self, i: int) -> str:
        """Where a tile's first element is read."""
        if i in self.across:
            return f"x{i} + (r - o) * WIDE"
        step = self.step(i)
        along = "0" if step is None else "b" if step == 1 else f"b * {step}"
        at = summed(str(self.read(i).offset), index(self.program.places[i][0], "r"), along)
        return f"t.{leaf_name(self.program, i)} + ({at})"

    def _bound(self, plan: Pass) -> str:
        return "m" if self._count(plan) else "n"

    def _count(self, plan: Pass) -> list[str]:
        """The number of elements computed for a short row: whole vectors, where what lies behind it may be read."""
        p = self.program
        reads = [i for i in plan.loop if isinstance(p.terms[i], Read)]
        if not self.tiled or p.columns >= SHORT or p.columns % LANES == 0 or any(self.step(i) is None for i in reads):
            return []
        ends = [
            f"p{i} + (up - 1) * {self.step(i)} < t.{leaf_name(p, i)} + {self.read(i).leaf.elements}"
            for i in reads
            if i not in self.across
        ]
        up = f"const int64_t up = (n + {LANES - 1}) / {LANES} * {LANES};"
        return [up, f"const int64_t m = {' && '.join(ends)} ? up : n;" if ends else "const int64_t m = up;"]

    @cached_property
    def level(self) -> int:
        """Columns in which what is read by channel does not change, where there is such: tiles end where they do."""
        sizes = [
            self.program.places[i][1][-1][0]
            for i, term in enumerate(self.program.terms)
            if isinstance(term, Read) and self._is_stepped(i)
        ]
        common = gcd(*sizes) if sizes and not self.tiled else 0
        return common if common >= LEVEL else 0

    def _is_stepped(self, i: int) -> bool:
        columns = self.program.places[i][1]
        return len(columns) > 1 and columns[-1][1] == 0

    def _is_level(self, i: int) -> bool:
        """Whether a read is one number throughout a tile."""
        return self.level > 0 and isinstance(self.program.terms[i], Read) and self._is_stepped(i)

    def _element(self, i: int) -> str:
        p, term = self.program, self.program.terms[i]
        if isinstance(term, Read):
            step = 1 if i in self.across else self.step(i)
            return self._load(i, f"p{i}", self._scattered(i) if step is None else "j" if step == 1 else f"j * {step}")
        return self.multiplied(i) or expression(p, i)

    def _scattered(self, i: int) -> str:
        small = self.program.columns < 2**31
        return index(self.program.places[i][1], "int32_t(b + j)" if small else "(b + j)")

    def _load(self, i: int, base: str, at: str) -> str:
        term = self.program.terms[i]
        assert isinstance(term, Read)
        return f"{base}[{at}]" if term.leaf.spec.dtype == "float32" else f"k_load({base} + ({at}))"

    def _store(self, dtype: str, base: str, at: str, value: str) -> str:
        return f"{base}[{at}] = {value};" if dtype == "float32" else f"k_store({base} + {at}, {value});"

    def _output(self, n: int) -> tuple[list[str], list[str], list[str]]:
        output = self.program.outputs[n]
        kind, value = TYPES[output.spec.dtype], operand(self.program, output.term)
        target = f"t.out{n} + (r * COLUMNS + b)"
        if self.genes.get("store") == "plain" and not self._count(self.passes[-1]):
            return [f"{kind}* __restrict__ o{n} = {target};"], [self._store(output.spec.dtype, f"o{n}", "j", value)], []
        tile = [f"alignas(64) {kind} tile{n}[BLOCK];"]
        return tile, [self._store(output.spec.dtype, f"tile{n}", "j", value)], [self._moved(target, f"tile{n}")]

    def _moved(self, to: str, tile: str) -> str:
        plain = self.genes.get("store") == "plain"
        return f"std::memcpy({to}, {tile}, n * sizeof(*{tile}));" if plain else f"k_stream({to}, {tile}, n);"

    def _ahead(self, plan: Pass) -> list[str]:
        """Requests for what comes next: a tile for the next one, the last pass over a cached row for the next row."""
        if self.genes["prefetch"] == "none" or not (plan.outputs or plan is self.passes[-1]):
            return []
        rows = normal([(self.program.rows, self.program.columns)])
        offset = "r * COLUMNS + b + BLOCK" if self.tiled else "(r + 1) * COLUMNS + b"
        ahead = [
            i
            for i, term in enumerate(self.program.terms)
            if isinstance(term, Read) and contiguous(self.program, i) and self.program.places[i][0] == rows
        ]
        pointers = [f"t.{leaf_name(self.program, i)} + ({offset})" for i in ahead]
        return [f"for (int64_t j = 0; j < n; j += 16) __builtin_prefetch({pointer} + j);" for pointer in pointers]


def _fold(kind: str, i: int, value: str) -> tuple[list[str], list[str], list[str], list[str]]:
    """Declarations before the loop, its reduction clauses, the step in it, and what follows."""
    if kind == "sum":
        return [f"float s{i} = 0.0f;"], [f"reduction(+ : s{i})"], [f"s{i} += {value};"], [f"f{i} += s{i};"]
    sign, function = (">", "k_max") if kind == "max" else ("<", "k_min")
    return (
        [f"float s{i} = {START[kind]};", f"int32_t nan{i} = 0;"],
        [f"reduction({kind} : s{i})", f"reduction(| : nan{i})"],
        [f"s{i} = {value} {sign} s{i} ? {value} : s{i};", f"nan{i} |= {value} != {value};"],
        [f"f{i} = {function}(f{i}, nan{i} ? NAN : s{i});"],
    )
