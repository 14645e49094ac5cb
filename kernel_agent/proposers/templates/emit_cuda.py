"""Row programs in CUDA C++, written into the kernels of corpus/kernels/*/level_02.cu."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from textwrap import indent

from kernel_agent.proposers.templates import emit_transpose
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
from kernel_agent.proposers.templates.program import Output, Program, Read
from kernel_agent.proposers.templates.schedule import Pass, reads
from kernel_agent.proposers.templates.strides import split
from kernel_agent.proposers.templates.writer import START, TYPES, Writer

STAGED = 40 << 10  # bytes of shared memory for rows, beside what they are folded in


def emit(program: Program, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the program's leaves and then its outputs."""
    if program.transposed:
        return emit_transpose.emit(program, genes)
    writer = _CudaWriter(program, genes, "everything" if genes.get("row") == "registers" else "nothing")
    work = indent(writer.rows() if program.folds else writer.points(), "    ")
    end = ["launch(t, out0.device());"]
    places = {"shape": writer.shape(), "tensors": writer.tensors(), "work": work, "run": writer.run(end)}
    places["math"] = helpers("math/level_01.cu", "".join(places.values()), writer.types())
    return fill(text("reduction/level_03.cu" if program.strided else f"{program.family}/level_02.cu"), places)


def flags(genes: Mapping[str, object]) -> tuple[str, ...]:
    """Compiler flags; line numbers let a profiler name the source."""
    return ("-O3", "-lineinfo")


def vector(program: Program, wanted: int) -> int:
    """The most elements, at most `wanted`, that every row and every contiguous leaf can be cut into."""
    if program.strided:
        return 1
    sizes = [program.columns]
    for i, (rows, _) in program.places.items():
        term = program.terms[i]
        if isinstance(term, Read) and contiguous(program, i):
            sizes += [term.offset, *(stride for _, stride in rows)]
    sizes += [n for o in program.outputs if o.slab for n in (o.slab.run, o.slab.pitch, o.slab.begin)]
    while any(size % wanted for size in sizes):
        wanted //= 2
    return wanted


class _CudaWriter(Writer):
    @property
    def held(self) -> bool:
        """Whether a row stays in registers from pass to pass."""
        return self.genes.get("row") == "registers"

    def shape(self) -> str:
        p, genes = self.program, self.genes
        macros = [("THREADS", genes["threads"])]
        macros.append(("ROWS_PER_BLOCK", genes["together"]) if p.folds else ("UNROLL", genes["unroll"]))
        lines = [f"#ifndef {name}\n#define {name} {value}\n#endif" for name, value in macros]
        lines.append(f"constexpr int64_t ROWS = {p.rows}, COLUMNS = {p.columns};")
        lines.append(f"constexpr int VECTOR = {vector(p, int(str(genes['vector'])))};")
        lines.append(f"constexpr bool PERSISTENT = {'true' if genes['grid'] == 'resident' else 'false'};")
        if p.folds and self.staged:
            lines.append("constexpr int PITCH = COLUMNS | 1;")
        if not p.folds:
            wholes = [p.rows * p.columns // o.slab.run * o.slab.pitch for o in p.outputs if o.slab]
            most = max([p.rows * p.columns, *(leaf.elements for leaf in p.leaves), *wholes])
            lines.append(f"using index_t = {'uint32_t' if most < 2**31 else 'int64_t'};")
        return "\n".join(lines)

    def points(self) -> str:
        """The body of a kernel over points: all vectors are asked for, then used."""
        only = self.passes[0]
        vectors = self._vectors(only)
        lines = [f"k_vector<{self.type(i)}, VECTOR> p{i}[UNROLL];" for i in vectors]
        lines += _loop("UNROLL", "#pragma unroll", [*self._where(only), *(self._fetch(i, f"p{i}[i]") for i in vectors)])
        use = [*self._where(only), *self._scalars(only), *self._elements(only, ())]
        return "\n".join([*lines, *_loop("UNROLL", "#pragma unroll", use)])

    def rows(self) -> str:
        """The body of a kernel over rows: pass by pass, each ending in the reductions that the next one needs."""
        lines = [line for i in self.staged for line in self._stage(i)]
        lines += ["__syncthreads();"] if self.staged else []
        for plan in self.passes:
            lines += self._scalars(plan)
            lines += self._pass(plan)
        for n, output in enumerate(self.program.outputs):
            if not output.full:
                store = self._store(output.spec.dtype, f"t.out{n}[r]", operand(self.program, output.term))
                lines.append(f"if (real && lane == 0) {store}")
        lines += ["__syncthreads();  // before the next rows take the places of these"] if self.staged else []
        return "\n".join(lines)

    @cached_property
    def staged(self) -> tuple[int, ...]:
        """Reads of whole rows, one after the other, under neighbouring results: a block takes its rows as one piece."""
        p = self.program
        if not p.strided:
            return ()
        whole = ((p.rows, p.columns),), ((p.columns, 1),)
        found = tuple(i for i, places in p.places.items() if places == whole)
        room = STAGED // (4 * 64 * (p.columns | 1))  # for the largest number of rows a block
        return found[:room]

    def _stage(self, i: int) -> list[str]:
        """A block's rows of a read, loaded in memory's order, and kept with neighbouring rows in different banks."""
        at = summed(str(self.read(i).offset), "group * (ROWS_PER_BLOCK * COLUMNS)", "i")
        value = self._load(i, f"k_fetch<1, {self._once(i)}>(t.{leaf_name(self.program, i)} + ({at})).at[0]")
        real = "if (group * (ROWS_PER_BLOCK * COLUMNS) + i < ROWS * COLUMNS)"
        body = f"  {real} s{i}[i / int(COLUMNS) * PITCH + i % COLUMNS] = {value};"
        loop = "for (int i = threadIdx.x; i < int(ROWS_PER_BLOCK * COLUMNS); i += THREADS * ROWS_PER_BLOCK) {"
        return [f"__shared__ float s{i}[ROWS_PER_BLOCK * PITCH];", "#pragma unroll 8", loop, body, "}"]

    def _once(self, i: int) -> str:
        """Whether a read of a kernel over columns asks not to stay in the caches."""
        streamed = self.genes["load"] == "stream" and self.program.strided
        return "true" if streamed and (i in self.staged or self._read_once(i)) else "false"

    def _pass(self, plan: Pass) -> list[str]:
        if not plan.folds and not plan.outputs:
            return []
        unroll = "#pragma unroll" if self.held else f"#pragma unroll {self._flight(plan)}"
        vectors = self._vectors(plan)
        column = "const int c = i * STEP + lane * VECTOR;"
        lines = [f"float k{i}[STEPS * VECTOR];" for i in plan.kept]
        lines += [f"float f{i} = {START[self.folded(i).kind]};" for i in plan.folds]
        if self.held and vectors:
            lines += [f"k_vector<{self.type(i)}, VECTOR> p{i}[STEPS];" for i in vectors]
            lines += _loop("STEPS", unroll, [column, *(self._fetch(i, f"p{i}[i]") for i in vectors)])
        lines += _loop("STEPS", unroll, [column, *self._elements(plan, vectors if self.held else ())])
        for i in plan.folds:
            lines.append(f"const float v{i} = k_reduce<k_{self.folded(i).kind}>(f{i}, area, turn);")
        return lines

    def _flight(self, plan: Pass) -> int:
        """How many turns of a loop over columns are in flight: fewer where each of them reads much."""
        if not self.program.strided:
            return 4
        return max(1, 16 // max(len(reads(self.program, plan.loop)), 2))

    def _elements(self, plan: Pass, fetched: tuple[int, ...]) -> list[str]:
        """What happens at one vector: loads not yet made, the elements' loop, and the stores."""
        p, held = self.program, "i * VECTOR + j"
        lines, arrays = list[str](), fetched or (self._vectors(plan) if not p.folds else ())
        for i in (i for i in self._contiguous(plan) if i not in arrays):
            lines += [f"k_vector<{self.type(i)}, VECTOR> p{i};", self._fetch(i, f"p{i}")]
        body = [f"const float v{i} = k{i}[{held}];" for i in plan.recalled]
        for i in plan.loop:
            body.append(f"const float v{i} = {self._element(i, f'p{i}[i]' if i in arrays else f'p{i}')};")
            body += [f"k{i}[{held}] = v{i};"] if i in plan.kept else []
        for i in plan.folds:
            term = self.folded(i)
            body.append(f"f{i} = k_{term.kind}(f{i}, {operand(p, term.arg)});")
        after = list[str]()
        for n in plan.outputs:
            output = p.outputs[n]
            kind = TYPES[output.spec.dtype]
            lines.append(f"k_vector<{kind}, VECTOR> o{n};")
            body.append(self._store(output.spec.dtype, f"o{n}.at[j]", operand(p, output.term)))
            once = "true" if self.genes["store"] == "stream" else "false"
            put = f"k_put<{once}>(t.out{n} + ({self._place(output)}), o{n});"
            after.append(f"if (real) {put}" if p.folds else put)
        lines += ["#pragma unroll", "for (int j = 0; j < VECTOR; ++j) {", indent("\n".join(body), "  "), "}"]
        return [*lines, *after]

    def _place(self, output: Output) -> str:
        """Where in a full output a vector goes."""
        p = self.program
        if output.slab:
            pattern = output.slab.pattern(p.rows * p.columns)
            halves = split(pattern, p.columns) if p.folds else None
            return summed(index(halves[0], "r"), "c") if halves else index(pattern, "static_cast<index_t>(e)")
        if not self.program.folds:
            return "e"
        if not self.program.strided:
            return "r * COLUMNS + c"
        rows, columns = self.program.stores
        return summed(index(rows, "r"), index(columns, "int64_t(c)"))

    def _vectors(self, plan: Pass) -> tuple[int, ...]:
        """Contiguous reads that vary by row, worth asking for ahead: the others, shared by rows, are in a cache."""
        return tuple(i for i in self._contiguous(plan) if self.program.by_row[i] or self.program.rows == 1)

    def _contiguous(self, plan: Pass) -> tuple[int, ...]:
        found = (i for i in reads(self.program, plan.loop) if contiguous(self.program, i))
        return tuple(i for i in found if i not in self.staged)

    def _where(self, plan: Pass) -> list[str]:
        """The point of a vector, and its row and column where something is broadcast."""
        lines = ["const int64_t e = first + i * (THREADS * VECTOR);"]
        p = self.program
        if any(not self._dense(i) for i in range(len(p.terms)) if isinstance(p.terms[i], Read)):
            lines.append("[[maybe_unused]] const index_t r = static_cast<index_t>(e) / static_cast<index_t>(COLUMNS);")
            lines.append(
                "[[maybe_unused]] const index_t c = static_cast<index_t>(e) - r * static_cast<index_t>(COLUMNS);"
            )
        return lines

    def _dense(self, i: int) -> bool:
        """Whether a read has one element a point, in order."""
        p, term = self.program, self.program.terms[i]
        return isinstance(term, Read) and term.pattern == ((p.rows * p.columns, 1),)

    def _fetch(self, i: int, to: str) -> str:
        term = self.program.terms[i]
        assert isinstance(term, Read)
        once = "true" if self.genes["load"] == "stream" and self._dense(i) and self._read_once(i) else "false"
        if self._dense(i) and not self.program.folds:
            at = summed(str(term.offset), "e")
        else:
            at = summed(str(term.offset), index(self.program.places[i][0], "r"), "c")
        return f"{to} = k_fetch<VECTOR, {once}>(t.{leaf_name(self.program, i)} + ({at}));"

    def _read_once(self, i: int) -> bool:
        return sum(i in plan.loop for plan in self.passes) == 1

    def _scalars(self, plan: Pass) -> list[str]:
        lines = list[str]()
        for i in plan.scalars:
            term = self.program.terms[i]
            if isinstance(term, Read):
                at = summed(str(term.offset), index(self.program.places[i][0], "r"))
                value = self._load(i, f"t.{leaf_name(self.program, i)}[{at}]")
            else:
                value = expression(self.program, i)
            lines.append(f"const float v{i} = {value};")
        return lines + self.reciprocals(plan.loop)

    def _element(self, i: int, at: str) -> str:
        term = self.program.terms[i]
        if i in self.staged:
            return f"s{i}[threadIdx.x % ROWS_PER_BLOCK * PITCH + c + j]"
        if isinstance(term, Read):
            if contiguous(self.program, i):
                return self._load(i, f"{at}.at[j]")
            rows, columns = self.program.places[i]
            large = term.leaf.elements >= 2**31
            where = summed(str(term.offset), index(rows, "r"), index(columns, "int64_t(c + j)" if large else "(c + j)"))
            return self._load(i, f"k_fetch<1, {self._once(i)}>(t.{leaf_name(self.program, i)} + ({where})).at[0]")
        return self.multiplied(i) or expression(self.program, i)

    def _load(self, i: int, element: str) -> str:
        return element if self.type(i) == "float" else f"k_load({element})"

    def _store(self, dtype: str, to: str, value: str) -> str:
        return f"{to} = {value};" if dtype == "float32" else f"k_store({to}, {value});"


def _loop(count: str, unroll: str, body: list[str]) -> list[str]:
    """A loop over a thread's vectors: the first lines say where one is, the rest runs where it is in the tensor."""
    split = sum(line.startswith(("const int64_t e", "const int c", "[[maybe_unused]]")) for line in body)
    bound = "WHOLE || e < POINTS" if body[0].startswith("const int64_t e") else "WHOLE || c < COLUMNS"
    inner = [f"if ({bound}) {{", indent("\n".join(body[split:]), "  "), "}"]
    return [unroll, f"for (int i = 0; i < {count}; ++i) {{", indent("\n".join([*body[:split], *inner]), "  "), "}"]
