"""Pointwise programs that read across their output's order, in CUDA C++, by corpus/kernels/pointwise/level_03.cu."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from textwrap import indent

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.express import expression, fill, helpers, index, leaf_name, operand, summed, text
from kernel_agent.proposers.templates.genes import Space, numbers, starting, strategy
from kernel_agent.proposers.templates.program import Constant, Program
from kernel_agent.proposers.templates.strides import Pattern
from kernel_agent.proposers.templates.transposed import Transposed
from kernel_agent.proposers.templates.writer import TYPES, Writer

LINE = 128  # elements along the output that a tile has at most
NARROWEST = 4  # elements across it at least
LEAST = 4 * 512  # elements of a tile of which every thread has a vector
SHARED = 48 << 10  # bytes of shared memory that every block may have
UNROLL = "#pragma unroll"


def space(program: Program) -> Space:
    """What can be varied."""
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
        numbers("tile", (4096, 8192, 2048), "tiles of {0}", flight, None),
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
        "work": indent(writer.work(), "  "),
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

    @cached_property
    def side(self) -> tuple[str, ...]:
        """On which side of the tile each term is: `across`, `along`, or `any`."""
        found: list[str] = []
        for i, term in enumerate(self.program.terms):
            if i in self.geometry.reads:
                found.append("across")
            elif self._is_read(i):
                found.append("along" if _varies(self._parts(i)[2]) else "any")
            else:
                sides = {found[a] for a in getattr(term, "args", ())}
                found.append("along" if "along" in sides else "across" if "across" in sides else "any")
        return tuple(found)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The terms that go through tiles: those that are used along the output and come of what lies across it."""
        terms, side = self.program.terms, self.side
        used = {a for i, term in enumerate(terms) if side[i] == "along" for a in getattr(term, "args", ())}
        used |= {output.term for output in self.program.outputs}
        return tuple(sorted(i for i in used if side[i] == "across"))

    def shape(self) -> str:
        """Sizes of the output and of tiles."""
        g, room = self.geometry, SHARED // 4 // len(self.kept)
        if room < LEAST:
            raise NotCovered(f"no template changes the layout of {len(self.kept)} tensors in one kernel.")
        most, long = max(LEAST, min(int(str(self.genes["tile"])), _power(room + 1) // 2)), _power(g.along)
        across = max(NARROWEST, min(_power(g.across), most // min(LINE, long)))
        along = min(long, most // across)
        across = max(across, LEAST // along)
        elements = max([g.outer * g.across * g.along, *(leaf.elements for leaf in self.program.leaves)])
        return "\n".join(
            [
                f"#ifndef THREADS\n#define THREADS {self.genes['threads']}\n#endif",
                f"constexpr int64_t OUTER = {g.outer}, ACROSS = {g.across}, ALONG = {g.along};",
                f"constexpr int TILE_ACROSS = {across}, TILE_ALONG = {along}, TILES = {len(self.kept)};",
                f"constexpr int VECTOR_ACROSS = {self._vector_across()}, VECTOR_ALONG = {self._vector_along()};",
                f"using index_t = {'int32_t' if elements < 2**31 else 'int64_t'};",
            ]
        )

    def _vector_across(self) -> int:
        return _divisor(self.geometry.across, *(n for i in self.geometry.reads for n in self._steps(i, (0, 2))))

    def _vector_along(self) -> int:
        return _divisor(self.geometry.along, *(n for i in self._beside() for n in self._steps(i, (0, 1))))

    def _steps(self, i: int, which: tuple[int, ...]) -> list[int]:
        """The offset of a read, and its strides by some of outer points, across and along."""
        return [self.read(i).offset, *(stride for part in which for _, stride in self._parts(i)[part])]

    def _parts(self, i: int) -> tuple[Pattern, Pattern, Pattern]:
        return self.geometry.parts(self.read(i).pattern)

    def _is_read(self, i: int) -> bool:
        return i in self.program.places

    def _beside(self) -> list[int]:
        """Reads that go along the output, as it does."""
        return [i for i in self.program.places if self._parts(i)[2] == ((self.geometry.along, 1),)]

    def work(self) -> str:
        """What lies across is asked for, and what lies along the output; what comes of the first is kept, then used."""
        load = _item("VECTOR_ACROSS", "TILE_ACROSS", "TILE_ALONG", "y", "x")
        store = _item("VECTOR_ALONG", "TILE_ALONG", "TILE_ACROSS", "x", "y")
        beside, across = self._beside(), self.geometry.reads
        lines = [f"k_vector<{self.type(i)}, VECTOR_ACROSS> q{i}[LOADS];" for i in across]
        lines += [f"k_vector<{self.type(i)}, VECTOR_ALONG> p{i}[STORES];" for i in beside]
        lines += _loop("LOADS", [*load, *_real([self._fetch(i, f"q{i}[i]", "VECTOR_ACROSS") for i in across])])
        if beside:
            lines += _loop("STORES", [*store, *_real([self._fetch(i, f"p{i}[i]", "VECTOR_ALONG") for i in beside])])
        lines += _loop("LOADS", [*load, *_real(self._keep())])
        return "\n".join([*lines, "__syncthreads();", *_loop("STORES", [*store, *_real(self._use())])])

    def _fetch(self, i: int, to: str, count: str) -> str:
        once = "true" if self.genes["load"] == "stream" else "false"
        return f"{to} = k_fetch<{count}, {once}>({self._at(i, 'd', 'a')});"

    def _keep(self) -> list[str]:
        """What is computed of a vector across the output, and kept in the tiles."""
        before, body = list[str](), list[str]()
        for i in self._needed(self.kept, ()):
            if i in self.geometry.reads:
                value = self._load(i, f"q{i}[i].at[j]")
            elif self._is_read(i):
                value, fetch = self._shared(i)
                before += fetch
            else:
                value = expression(self.program, i)
            body.append(f"const float v{i} = {value};")
        body += [f"tile[{n}][k_place(x, y + j)] = {operand(self.program, i)};" for n, i in enumerate(self.kept)]
        return [*before, *_elements("VECTOR_ACROSS", body)]

    def _shared(self, i: int) -> tuple[str, list[str]]:
        """A read that is the same all along the output, beside a vector across it: the element, and what is fetched."""
        across, count = self._parts(i)[1], self._vector_across()
        whole = across == ((self.geometry.across, 1),) and all(n % count == 0 for n in self._steps(i, (0,)))
        if _varies(across) and not whole:
            return self._load(i, f"k_fetch<1, false>({self._at(i, 'd', '(a + j)')}).at[0]"), []
        many, at = ("VECTOR_ACROSS", "j") if whole else ("1", "0")
        fetch = f"const auto s{i} = k_fetch<{many}, false>({self._at(i, 'd', 'a')});"
        return self._load(i, f"s{i}.at[{at}]"), [fetch]

    def _use(self) -> list[str]:
        """What is computed of a vector along the output, and its stores."""
        p, beside = self.program, self._beside()
        before, body, puts = list[str](), list[str](), list[str]()
        for i in self._needed([output.term for output in p.outputs], self.kept):
            steady = self.side[i] == "any"
            if i in self.kept:
                value = f"tile[{self.kept.index(i)}][k_place(x + j, y)]"
            elif i in beside:
                value = self._load(i, f"p{i}[i].at[j]")
            elif self._is_read(i):
                value = self._load(i, f"k_fetch<1, false>({self._at(i, 'd' if steady else '(d + j)', 'a')}).at[0]")
            else:
                value = expression(p, i)
            (before if steady else body).append(f"const float v{i} = {value};")
        once = "true" if self.genes["store"] == "stream" else "false"
        for n, output in enumerate(p.outputs):
            before.append(f"k_vector<{TYPES[output.spec.dtype]}, VECTOR_ALONG> o{n};")
            value, plain = operand(p, output.term), output.spec.dtype == "float32"
            body.append(f"o{n}.at[j] = {value};" if plain else f"k_store(o{n}.at[j], {value});")
            puts.append(f"k_put<{once}>(t.out{n} + ((int64_t(o) * ACROSS + a) * ALONG + d), o{n});")
        return [*before, *_elements("VECTOR_ALONG", body), *puts]

    def _needed(self, roots: Iterable[int], ends: tuple[int, ...]) -> list[int]:
        """The terms that these rest on, in order and without constants; what the `ends` rest on is left out."""
        found, stack = set[int](), list(roots)
        while stack:
            i = stack.pop()
            if i not in found and not isinstance(self.program.terms[i], Constant):
                found.add(i)
                stack += () if i in ends else getattr(self.program.terms[i], "args", ())
        return sorted(found)

    def _at(self, i: int, along: str, across: str) -> str:
        """The address of a read's element."""
        where = [index(part, name) for part, name in zip(self._parts(i), ("o", across, along), strict=True)]
        return f"t.{leaf_name(self.program, i)} + ({summed(str(self.read(i).offset), *where)})"

    def _load(self, i: int, element: str) -> str:
        return element if self.type(i) == "float" else f"k_load({element})"


def _varies(pattern: Pattern) -> bool:
    return any(stride for _, stride in pattern)


def _divisor(*sizes: int) -> int:
    """The most elements of a vector that all of these are multiples of."""
    return next(n for n in (4, 2, 1) if all(size % n == 0 for size in sizes))


def _real(body: list[str]) -> list[str]:
    """What happens at items inside of the tensors."""
    return ["if (d < ALONG && a < ACROSS) {", indent("\n".join(body), "  "), "}"]


def _elements(count: str, body: list[str]) -> list[str]:
    return [UNROLL, f"for (int j = 0; j < {count}; ++j) {{", indent("\n".join(body), "  "), "}"]


def _item(vector: str, line: str, lines: str, first: str, second: str) -> list[str]:
    """The places of an item in the tile, x along the output and y across it, and in the tensors, d and a."""
    return [
        "int x, y;",
        f"k_item<{vector}, {line}, {lines}>(i * THREADS + threadIdx.x, {first}, {second});",
        "[[maybe_unused]] const index_t d = along0 + x, a = across0 + y;",
    ]


def _loop(count: str, body: list[str]) -> list[str]:
    return [UNROLL, f"for (int i = 0; i < {count}; ++i) {{", indent("\n".join(body), "  "), "}"]


def _power(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << (n - 1).bit_length()
