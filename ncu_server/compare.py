"""What a candidate's outputs are held against: structure first, then the error budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Bound on the error in units of the reference's own: honest kernels measured 0.15 to 16, precision cheats 4,600 and up.
BOUND = 64.0


def structure_fault(expected: dict[str, Any], tensors: list[dict[str, Any]], got: dict[str, Any]) -> str | None:
    """In words, how what is seen differs in tree, shape or dtype from the reference's; None where they agree."""
    if expected["structure"] != got["structure"]:
        return f"returns {_words(got['structure'])} where the reference returns {_words(expected['structure'])}"
    for want, have in zip(tensors, got["tensors"], strict=True):
        for what in ("shape", "dtype"):
            if want[what] != have[what]:
                return f"{want['name']} has {what} {have[what]}, the reference's has {want[what]}"
    return None


def _words(structure: dict[str, Any]) -> str:
    kind, body = next(iter(structure.items()))
    if kind in ("list", "tuple"):
        return f"a {kind} of {len(body)}"
    if kind == "dict":
        return f"a dict with keys {', '.join(k for k, _ in body)}"
    return "a tensor" if kind == "tensor" else repr(body)


def value_fault(names: list[str], results: list[dict[str, Any]], bound: float) -> str | None:
    """In words, where and by how much the values are off; None where every output is inside the bound."""
    for name, r in zip(names, results, strict=True):
        if r["outside"]:
            share = r["outside"] / max(r["total"], 1)
            return (
                f"{name}: {r['outside']} of {r['total']} elements ({share:.1%}) are off; the worst, flat index "
                f"{r['index']}, is {r['have']:.9g} where {r['want']:.9g} is right "
                f"(error {r['error']:.3g} units, at most {bound:g} allowed)"
                + "".join(f"; {said}" for said in _pattern(r))
            )
    return None


def _pattern(result: dict[str, Any]) -> Iterator[str]:
    """What those outside the bound have in common: the box that they lie in, zeros, NaN."""
    span, shape = result.get("span"), result.get("shape")
    if span and shape and any(b - a + 1 < size for (a, b), size in zip(span, shape, strict=True)):
        box = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in span)
        yield f"all of them lie in [{box}] of {shape}"
    for name, what in (("zeros", "0"), ("nans", "NaN")):
        if count := result.get(name):
            yield f"{count / result['outside']:.0%} of them are {what}"


def largest(results: list[dict[str, Any]]) -> float:
    """The largest error of any output, in units."""
    return max((float(r["error"]) for r in results), default=0.0)
