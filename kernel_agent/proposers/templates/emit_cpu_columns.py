"""Row programs whose rows are neighbours in memory, in C++ with OpenMP: strips of rows, by reduction/level_03.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from kernel_agent.proposers.templates.express import expression, fill, helpers, index, leaf_name, operand, summed, text
from kernel_agent.proposers.templates.program import Constant, Folded, Program, Read
from kernel_agent.proposers.templates.schedule import Pass
from kernel_agent.proposers.templates.strides import Pattern, split
from kernel_agent.proposers.templates.writer import START, Writer

SIMD = "#pragma omp simd"
STRIP = 256  # rows of a strip at most: their sums and scalars stay in the L1 cache


def emit(program: Program, genes: Mapping[str, object]) -> str:
    """The whole C++ source; it exports `run`, which takes the program's leaves and then its outputs."""
    writer = _StripWriter(program, genes, "nothing")
    places = {
        "shape": writer.shape(),
        "tensors": writer.tensors(),
        "work": writer.work(),
        "run": writer.run(["launch(t);"]),
    }
    places["math"] = helpers("math/level_01.cpp", "".join(places.values()), writer.types())
    return fill(text("reduction/level_03.cpp"), places)


class _StripWriter(Writer):
    @property
    def inner(self) -> int:
        """How many rows follow each other in memory."""
        return self.program.stores[0][-1][0]

    def shape(self) -> str:
        p, block = self.program, min(int(str(self.genes["block"])), STRIP)
        return (
            f"#ifndef BLOCK\n#define BLOCK {block}\n#endif\n"
            f"constexpr int64_t ROWS = {p.rows}, COLUMNS = {p.columns}, INNER = {self.inner};\n"
            "constexpr int64_t STRIPS = (INNER + BLOCK - 1) / BLOCK, ITEMS = ROWS / INNER * STRIPS;"
        )

    def work(self) -> str:
        lines = [
            "const int64_t o = item / STRIPS, b = item % STRIPS * BLOCK, n = std::min<int64_t>(BLOCK, INNER - b);",
            *(line for plan in self.passes for line in self._pass(plan)),
            *self._row_outputs(),
        ]
        body = ["for (int64_t item = begin; item < end; ++item) {", indent("\n".join(lines), "  "), "}"]
        return "void work(const Tensors& t, int64_t begin, int64_t end) {\n" + indent("\n".join(body), "  ") + "\n}"

    def _pass(self, plan: Pass) -> list[str]:
        """Numbers of each row, then one turn over the columns, then what it folded."""
        p, lines = self.program, self._scalars(plan)
        if not plan.folds and not plan.outputs:
            return lines
        for i in plan.folds:
            kind = self.folded(i).kind
            lines.append(f"alignas(64) {'double' if kind == 'sum' else 'float'} f{i}[BLOCK];")
            lines.append(f"for (int64_t j = 0; j < n; ++j) f{i}[j] = {'0.0' if kind == 'sum' else START[kind]};")
        body = [f"const float v{i} = {self._element(i)};" for i in self._columnwise(plan)]
        body += [line for i in plan.folds for line in self._step(i)]
        for n in plan.outputs:
            rows, columns = p.stores
            at = summed(self._row_index(rows), index(columns, "c"))
            body.append(self._store(n, at))
        wide = [f"const float v{i} = {self._recalled(i)};" for i in self._used(plan)]
        loop = [SIMD, "for (int64_t j = 0; j < n; ++j) {", indent("\n".join([*wide, *body]), "  "), "}"]
        lines += ["for (int64_t c = 0; c < COLUMNS; ++c) {", indent("\n".join(loop), "  "), "}"]
        return [*lines, *(self._kept(i, f"float(f{i}[j])") for i in plan.folds)]

    def _columnwise(self, plan: Pass) -> list[int]:
        """What a pass computes at every column, rows' numbers left out."""
        return [i for i in plan.loop if self.program.by_column[i]]

    def _used(self, plan: Pass) -> list[int]:
        """The rows' numbers that a pass over the columns mentions."""
        p = self.program
        roots = [*plan.loop, *(p.outputs[n].term for n in plan.outputs), *(self.folded(i).arg for i in plan.folds)]
        found = set[int]()
        for i in roots:
            term = p.terms[i]
            args = (i, *getattr(term, "args", ()))
            found |= {a for a in args if not p.by_column[a] and not isinstance(p.terms[a], Constant)}
        return sorted(found)

    def _scalars(self, plan: Pass) -> list[str]:
        lines = list[str]()
        for i in plan.scalars:
            term = self.program.terms[i]
            if isinstance(term, Read):
                at = summed(str(term.offset), self._row_index(self.program.places[i][0]))
                lines.append(self._kept(i, self._load(i, at)))
            else:
                args = [a for a in getattr(term, "args", ()) if not isinstance(self.program.terms[a], Constant)]
                names = "".join(f"const float v{a} = {self._recalled(a)}; " for a in dict.fromkeys(args))
                lines.append(self._kept(i, expression(self.program, i), names))
        return lines

    def _kept(self, i: int, value: str, before: str = "") -> str:
        return (
            f"alignas(64) float r{i}[BLOCK];\n{SIMD}\nfor (int64_t j = 0; j < n; ++j) {{ {before}r{i}[j] = {value}; }}"
        )

    def _recalled(self, i: int) -> str:
        return f"r{i}[j]"

    def _element(self, i: int) -> str:
        p, term = self.program, self.program.terms[i]
        if not isinstance(term, Read):
            return expression(p, i)
        rows, columns = p.places[i]
        return self._load(i, summed(str(term.offset), self._row_index(rows), index(columns, "c")))

    def _row_index(self, rows: Pattern) -> str:
        """A row's place: its strip's, and its own in the strip."""
        halves = split(rows, self.inner)
        if halves is None:
            return index(rows, "(o * INNER + b + j)")
        return summed(index(halves[0], "o"), index(halves[1], "(b + j)"))

    def _load(self, i: int, at: str) -> str:
        element = f"t.{leaf_name(self.program, i)}[{at}]"
        return element if self.type(i) == "float" else f"k_load({element})"

    def _store(self, n: int, at: str) -> str:
        output = self.program.outputs[n]
        value = operand(self.program, output.term)
        if output.spec.dtype == "float32":
            return f"t.out{n}[{at}] = {value};"
        return f"k_store(t.out{n}[{at}], {value});"

    def _step(self, i: int) -> list[str]:
        term: Folded = self.folded(i)
        value = operand(self.program, term.arg)
        if term.kind == "sum":
            return [f"f{i}[j] += {value};"]
        return [f"f{i}[j] = k_{term.kind}(f{i}[j], {value});"]

    def _row_outputs(self) -> list[str]:
        lines = list[str]()
        for n, output in enumerate(self.program.outputs):
            if output.full:
                continue
            constant = isinstance(self.program.terms[output.term], Constant)
            name = [] if constant else [f"const float v{output.term} = {self._recalled(output.term)};"]
            body = [*name, self._store(n, "o * INNER + b + j")]
            lines += [SIMD, "for (int64_t j = 0; j < n; ++j) {", indent("\n".join(body), "  "), "}"]
        return lines
