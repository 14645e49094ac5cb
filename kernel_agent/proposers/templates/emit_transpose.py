"""Pointwise programs that read across their output's order, in CUDA C++, by corpus/kernels/pointwise/level_03.cu."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from kernel_agent.proposers.templates.express import expression, fill, helpers, index, leaf_name, operand, summed, text
from kernel_agent.proposers.templates.genes import Space, numbers, starting, strategy
from kernel_agent.proposers.templates.program import Constant, Program
from kernel_agent.proposers.templates.transposed import Transposed
from kernel_agent.proposers.templates.writer import TYPES, Writer

LINE = 128  # elements along the output that a tile has at most
NARROWEST = 4  # elements across it at least
LEAST = 4 * 512  # elements of a tile of which every thread has a vector
SHARED = 48 << 10  # bytes of shared memory that every block may have
UNROLL = "#pragma unroll"


def space(program: Program) -> Space:
    """What can be varied."""
    most = SHARED // 4 // max(len(_geometry(program).reads), 1)
    flight = "Tiles of {0} elements: each thread asks for its share of them before it uses the first."
    stores = [
        ("stream", "streaming stores", "Output lines leave the L2 cache first."),
        ("plain", "plain stores", "The output may be found in the L2 cache by whoever reads it next."),
    ]
    loads = [
        ("stream", "streaming loads", "Inputs that are read once don't push others out of the L2 cache."),
        ("cached", "cached loads", "Inputs may still be in the L2 cache from whoever wrote them."),
    ]
    genes = [
        strategy("load", loads),
        strategy("store", stores),
        numbers("tile", [n for n in (4096, 8192, 2048) if n <= most] or [1024], "tiles of {0}", flight, None),
        numbers("threads", (256, 512, 128), "blocks of {0}", "Blocks of {0} threads share a tile.", "THREADS"),
    ]
    return starting(
        genes,
        [
            {"tile": 2048, "store": "plain"},
            {"load": "cached", "store": "plain"},
            {"tile": 8192, "threads": 512},
            {"tile": 2048, "threads": 128},
        ],
    )


def emit(program: Program, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the program's leaves and then its outputs."""
    writer = _TransposeWriter(program, genes, "nothing")
    places = {
        "shape": writer.shape(),
        "tensors": writer.tensors(),
        "work": indent("\n".join(writer.work()), "  "),
        "run": writer.run(["launch(t, out0.device());"]),
    }
    places["math"] = helpers("math/level_01.cu", "".join(places.values()), writer.types())
    return fill(text("pointwise/level_03.cu"), places)


def _geometry(program: Program) -> Transposed:
    found = program.transposed
    assert found is not None, "the program reads along its output"
    return found


class _TransposeWriter(Writer):
    @property
    def geometry(self) -> Transposed:
        return _geometry(self.program)

    def shape(self) -> str:
        g = self.geometry
        most, long = int(str(self.genes["tile"])), _power(g.along)
        across = max(NARROWEST, min(_power(g.across), most // min(LINE, long)))
        along = min(long, most // across)
        across = max(across, LEAST // along)
        lines = [f"#ifndef THREADS\n#define THREADS {self.genes['threads']}\n#endif"]
        lines.append(f"constexpr int64_t OUTER = {g.outer}, ACROSS = {g.across}, ALONG = {g.along};")
        lines.append(
            f"constexpr int TILE_ACROSS = {across}, TILE_ALONG = {along}, TILES = {len(g.reads)};\n"
            f"constexpr int VECTOR_ACROSS = {self._vector_across()}, VECTOR_ALONG = {self._vector_along()};"
        )
        return "\n".join(lines)

    def _vector_across(self) -> int:
        g = self.geometry
        sizes = [g.across]
        for i in g.reads:
            outer, _, along = g.parts(self.read(i).pattern)
            sizes += [self.read(i).offset, *(stride for _, stride in (*outer, *along))]
        return next(n for n in (4, 2, 1) if all(size % n == 0 for size in sizes))

    def _vector_along(self) -> int:
        g = self.geometry
        sizes = [g.along]
        for i in self._beside():
            outer, across, _ = g.parts(self.read(i).pattern)
            sizes += [self.read(i).offset, *(stride for _, stride in (*outer, *across))]
        return next(n for n in (4, 2, 1) if all(size % n == 0 for size in sizes))

    def _is_read(self, i: int) -> bool:
        return i in self.program.places

    def _beside(self) -> list[int]:
        """Reads that go along the output, as it does."""
        return [
            i
            for i in self.program.places
            if self.geometry.parts(self.read(i).pattern)[2] == ((self.geometry.along, 1),)
        ]

    def work(self) -> list[str]:
        """The tiles are asked for, and what lies along the output; then kept; then used."""
        turned, beside = list(self.geometry.reads), self._beside()
        ask, keep = [*_item("VECTOR_ACROSS", "TILE_ACROSS", "TILE_ALONG", "y", "x")], list[str]()
        real = "if (d < ALONG && a < ACROSS)"
        once = "true" if self.genes["load"] == "stream" else "false"
        for n, i in enumerate(turned):
            ask.append(f"{real} q{n}[i] = k_fetch<VECTOR_ACROSS, {once}>({self._at(i, 'd', 'a')});")
            element = self._load(i, f"q{n}[i].at[j]")
            keep.append(f"for (int j = 0; j < VECTOR_ACROSS; ++j) tile[{n}][k_place(x, y + j)] = {element};")
        keep = [line for pair in ((UNROLL, line) for line in keep) for line in pair]
        lines = [f"k_vector<{self.type(i)}, VECTOR_ACROSS> q{n}[LOADS];" for n, i in enumerate(turned)]
        lines += _loop("LOADS", ask)
        if beside:
            lines += [f"k_vector<{self.type(i)}, VECTOR_ALONG> p{i}[STORES];" for i in beside]
            fetch = [f"{real} p{i}[i] = k_fetch<VECTOR_ALONG, {once}>({self._at(i, 'd', 'a')});" for i in beside]
            lines += _loop("STORES", [*_item("VECTOR_ALONG", "TILE_ALONG", "TILE_ACROSS", "x", "y"), *fetch])
        lines += _loop("LOADS", [*_item("VECTOR_ACROSS", "TILE_ACROSS", "TILE_ALONG", "y", "x")[:2], *keep])
        lines.append("__syncthreads();")
        use = [*_item("VECTOR_ALONG", "TILE_ALONG", "TILE_ACROSS", "x", "y"), f"{real} {{"]
        return [*lines, *_loop("STORES", [*use, indent("\n".join(self._use()), "  "), "}"])]

    def _use(self) -> list[str]:
        """What is computed of a vector along the output, and its stores."""
        p, g, beside = self.program, self.geometry, self._beside()
        before, body, puts = list[str](), list[str](), list[str]()
        steady = set[int]()
        for i, term in enumerate(p.terms):
            if isinstance(term, Constant):
                steady.add(i)
            elif not self._is_read(i):
                args = getattr(term, "args", ())
                steady |= {i} if all(a in steady for a in args) else set()
                (before if i in steady else body).append(f"const float v{i} = {expression(p, i)};")
            elif i in g.reads:
                body.append(f"const float v{i} = tile[{g.reads.index(i)}][k_place(x + j, y)];")
            elif i in beside:
                body.append(f"const float v{i} = {self._load(i, f'p{i}[i].at[j]')};")
            elif not any(stride for _, stride in g.parts(self.read(i).pattern)[2]):
                steady.add(i)
                value = self._load(i, f"k_fetch<1, false>({self._at(i, 'd', 'a')}).at[0]")
                before.append(f"const float v{i} = {value};")
            else:
                value = self._load(i, f"k_fetch<1, false>({self._at(i, '(d + j)', 'a')}).at[0]")
                body.append(f"const float v{i} = {value};")
        once = "true" if self.genes["store"] == "stream" else "false"
        for n, output in enumerate(p.outputs):
            before.append(f"k_vector<{TYPES[output.spec.dtype]}, VECTOR_ALONG> o{n};")
            value, plain = operand(p, output.term), output.spec.dtype == "float32"
            body.append(f"o{n}.at[j] = {value};" if plain else f"k_store(o{n}.at[j], {value});")
            puts.append(f"k_put<{once}>(t.out{n} + ((o * ACROSS + a) * ALONG + d), o{n});")
        return [*before, UNROLL, "for (int j = 0; j < VECTOR_ALONG; ++j) {", indent("\n".join(body), "  "), "}", *puts]

    def _at(self, i: int, along: str, across: str) -> str:
        """The address of a read's element."""
        parts = self.geometry.parts(self.read(i).pattern)
        where = [index(part, name) for part, name in zip(parts, ("o", across, along), strict=True)]
        return f"t.{leaf_name(self.program, i)} + ({summed(str(self.read(i).offset), *where)})"

    def _load(self, i: int, element: str) -> str:
        return element if self.type(i) == "float" else f"k_load({element})"


def _item(vector: str, line: str, lines: str, first: str, second: str) -> list[str]:
    """The places of an item in the tile, x along the output and y across it, and in the tensors, d and a."""
    return [
        "int x, y;",
        f"k_item<{vector}, {line}, {lines}>(i * THREADS + threadIdx.x, {first}, {second});",
        "const int64_t d = along0 + x, a = across0 + y;",
    ]


def _loop(count: str, body: list[str]) -> list[str]:
    return [UNROLL, f"for (int i = 0; i < {count}; ++i) {{", indent("\n".join(body), "  "), "}"]


def _power(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << (n - 1).bit_length()
