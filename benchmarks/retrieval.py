"""How well and how fast the library finds: python -m benchmarks.retrieval [QUESTIONS.jsonl ...] [--profiles FILE ...].

A line of QUESTIONS is {"id", "query", "topics": ids of the pages that answer, "arch"?, "language"?, "avoid"?: ids of
pages for another architecture}. A line of a profiles file is {"id", "source": PyTorch, "signals": what a profile says,
"arch"?, "topics"}; of an ideas file {"id", "idea", "operators", "arch"?, "language"?, "topics": pages that the prompt
for its code has to hold whole, "avoid": pages that it must not}. Without arguments our own in benchmarks/queries/ are
asked. `--write` keeps the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

from benchmarks.serving import table
from ncu_server.sandbox.enter import die_with_parent
from rag import Library, Query
from rag.corpus_path import CORPUS
from rag.index import build
from rag.retrieval.plan import Situation, families_of, operators_in

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "retrieval.md"
MODES: tuple[Literal["lexical", "hybrid"], ...] = ("lexical", "hybrid")
Row = dict[str, Any]


def rows(path: Path) -> list[Row]:
    """The JSON objects of a file, one a line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def ranked(library: Library, row: Row, limit: int = 10) -> list[str]:
    """The pages that answer one question, best first."""
    query = Query(row["query"], row.get("arch"), row.get("language"), limit=limit, kinds=("page",))
    return [passage.page for passage in library.search(query).passages]


def situation(row: Row) -> Situation:
    """A profile case as the agent would put it: operators read off the source, signals as they stand."""
    operators = operators_in(row["source"])
    return Situation(
        families=families_of(operators),
        operators=operators,
        arch=row.get("arch"),
        language=row.get("language", "cuda"),
        signals=tuple(row["signals"]),
    )


def covered(library: Library, row: Row, places: int = 8) -> float:
    """The share of a case's topics among the first pages that its brief would show; kernels are no topics."""
    answer = library.consult(situation(row), budget=10**6)
    found = [passage.page for passage in answer.passages if passage.kind == "page"][:places]
    return len(set(found) & set(row["topics"])) / len(row["topics"])


def idea_case(row: Row) -> Situation:
    """An idea's case as the agent would put it for its code."""
    operators = tuple(row["operators"])
    language = row.get("language", "cuda")
    return Situation(families_of(operators), operators, ("float32",), row.get("arch"), language, idea=row["idea"])


def served(library: Library, row: Row, corpus: Path = CORPUS) -> dict[str, bool]:
    """The pages that a code prompt gets for an idea, each with whether it is there whole."""
    found = library.consult(idea_case(row)).passages
    return {one.page: one.text.strip() in (corpus / one.source).read_text() and one.heading == "" for one in found}


def whole(library: Library, row: Row, corpus: Path) -> tuple[float, int]:
    """The share of a case's topics that are there whole, and how many pages are there that it does not want."""
    pages = served(library, row, corpus)
    share = sum(pages.get(topic, False) for topic in row["topics"]) / len(row["topics"])
    return share, len(set(pages) & set(row["avoid"]))


def scored(asked: list[Row], found: dict[str, list[str]]) -> Row:
    """hit@k, MRR over the first ten, wrong architectures in the first five, and what was missed."""
    hits = dict.fromkeys((1, 3, 5, 10), 0)
    reciprocal, wrong, missed = 0.0, 0, []
    for row in asked:
        pages = found[row["id"]]
        place = next((n for n, page in enumerate(pages, 1) if page in row["topics"]), None)
        reciprocal += 1 / place if place else 0.0
        for k in hits:
            hits[k] += place is not None and place <= k
        wrong += bool(set(row.get("avoid", ())) & set(pages[:5]))
        if place is None or place > 5:
            missed.append(row["id"])
    n = len(asked)
    return {
        "n": n,
        **{f"hit@{k}": count / n for k, count in hits.items()},
        "mrr": reciprocal / n,
        "wrong": f"{wrong}/{sum('avoid' in row for row in asked)}",
        "missed": missed,
    }


def by_kind(asked: list[Row], found: dict[str, list[str]]) -> str:
    """hit@5 of each kind of question."""
    kinds: dict[str, list[bool]] = defaultdict(list)
    for row in asked:
        kinds[row.get("kind", "-")].append(bool(set(found[row["id"]][:5]) & set(row["topics"])))
    return ", ".join(f"{kind} {sum(h)}/{len(h)}" for kind, h in sorted(kinds.items()))


def quality(cache: Path, corpus: Path, questions: list[Path], profiles: list[Path], ideas: list[Path]) -> Iterable[str]:
    """The lines of the three tables of scores."""
    head = ["questions", "mode", "n", "hit@1", "hit@3", "hit@5", "hit@10", "MRR", "wrong arch in top 5"]
    scores, details, cover, code = [], [], [], []
    for mode in MODES:
        with Library.open(cache, mode, corpus=corpus) as library:
            for path in questions:
                asked = rows(path)
                found = {row["id"]: ranked(library, row) for row in asked}
                s = scored(asked, found)
                figures = [f"{s[key]:.3f}" for key in ("hit@1", "hit@3", "hit@5", "hit@10", "mrr")]
                scores.append([path.name, mode, str(s["n"]), *figures, s["wrong"]])
                details.append(f"- {path.name}, {mode}, hit@5 by kind: {by_kind(asked, found)}")
                details.append(f"  - missed at 5: {' '.join(s['missed']) or 'none'}")
            for path in profiles:
                shares = [covered(library, row) for row in rows(path)]
                cover.append([path.name, mode, str(len(shares)), f"{statistics.mean(shares):.3f}"])
            for path in ideas:
                pages = [whole(library, row, corpus) for row in rows(path)]
                share, unwanted = statistics.mean(one for one, _ in pages), sum(n for _, n in pages)
                code.append([path.name, mode, str(len(pages)), f"{share:.3f}", str(unwanted)])
    yield from (table(head, scores), "", *details, "")
    yield from (table(["ideas", "mode", "n", "named pages whole", "unwanted pages"], code), "")
    yield table(["profiles", "mode", "n", "coverage@8"], cover)


OPENED = """
import time; began = time.perf_counter()
from pathlib import Path
from rag import Library, Query
with Library.open(Path({cache!r}), {mode!r}, corpus=Path({corpus!r})) as library:
    opened = time.perf_counter()
    library.search(Query("uncoalesced loads", arch="sm_90", language="cuda"))
    print(opened - began, time.perf_counter() - opened)
"""


def speed(cache: Path, corpus: Path, questions: list[Row]) -> Iterable[str]:
    """The lines of the table of times, wall clock in seconds unless it says otherwise."""
    yield f"Wall clock on {os.cpu_count()} cores; load before, from other work: {os.getloadavg()[0]:.1f}."
    yield ""
    yield table(["what", "time"], _times(cache, corpus, questions))


def _times(cache: Path, corpus: Path, questions: list[Row]) -> Iterable[tuple[str, str]]:
    lexical, hybrid = (_fresh(cache, corpus, mode) for mode in MODES)
    yield "first lexical query of a fresh process, interpreter and all", f"{lexical[0]:.2f} s"
    words = f"{hybrid[0]:.2f} s: {hybrid[1]:.2f} s opening Chroma, {hybrid[2]:.2f} s for the model to load and embed"
    yield "first hybrid query of a fresh process", words
    for mode in MODES:
        with Library.open(cache, mode, corpus=corpus) as library:
            library.search(Query("warm up"))
            times = sorted(_timed(library, row) for row in questions)
            at = [times[int(len(times) * share)] * 1e3 for share in (0.5, 0.95)]
            yield f"warm {mode} query, median and 95 %", f"{at[0]:.0f} ms, {at[1]:.0f} ms"
    with tempfile.TemporaryDirectory() as new:
        said: list[str] = []
        began = time.perf_counter()
        Library.open(Path(new), "hybrid", said.append, corpus).close()
        words = f"{time.perf_counter() - began:.1f} s ({said[-1]})"
        yield "index of the corpus made anew with the shipped vectors", words
    yield "20,000 chunks of source, lexical: read, cut, indexed", _large()


def _fresh(cache: Path, corpus: Path, mode: str) -> tuple[float, float, float]:
    """(whole process, opening, first query) in seconds."""
    code = OPENED.format(cache=str(cache), mode=mode, corpus=str(corpus))
    began = time.perf_counter()
    done = _run([sys.executable, "-c", code])
    opened, asked = map(float, done.stdout.split())
    return time.perf_counter() - began, opened, asked


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A program that ends with this one, and with nothing between, since it is timed. Raises CalledProcessError."""
    return subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=die_with_parent)


def _timed(library: Library, row: Row) -> float:
    began = time.perf_counter()
    ranked(library, row, limit=5)
    return time.perf_counter() - began


def _large(wanted: int = 20_000) -> str:
    """The time to add a directory of sources that make as many chunks: the corpus's kernels under other names."""
    sources = [path.read_text() for path in sorted((CORPUS / "kernels").rglob("*.cu"))]
    with tempfile.TemporaryDirectory() as new:
        root, n = Path(new) / "sources", 0
        root.mkdir()
        for n in range(wanted // 11):
            text = sources[n % len(sources)].replace("k_", f"k{n}_").replace("rows", f"rows{n}")
            (root / f"kernel_{n}.cu").write_text(f"// The kernel of number {n}.\n{text}")
        command = [sys.executable, "-m", "rag", "--cache", f"{new}/cache", "--mode", "lexical", "add", str(root)]
        began = time.perf_counter()
        done = _run(command)
        took = time.perf_counter() - began
    return f"{took:.1f} s ({done.stderr.splitlines()[-1]})"


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.retrieval", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("questions", nargs="*", type=Path, default=[HERE / "queries" / "questions.jsonl"])
    parser.add_argument("--profiles", nargs="*", type=Path, default=[HERE / "queries" / "profiles.jsonl"])
    parser.add_argument("--ideas", nargs="*", type=Path, default=[HERE / "queries" / "ideas.jsonl"])
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--cache", type=Path, default=build.default_cache())
    parser.add_argument("--quick", action="store_true", help="the scores alone, no times")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name} as well")
    args = parser.parse_args()
    with Library.open(args.cache, corpus=args.corpus, progress=lambda line: print(line, file=sys.stderr)) as library:
        held = f"{library.pages} pages and kernels in {library.chunks} chunks; {library.mode_reason}"
    lines = [
        "# Retrieval",
        "",
        f"{date.today()}, {platform.machine()}, Python {platform.python_version()}: {held}.",
        "`python -m benchmarks.retrieval --write` makes this page.",
        "",
        *quality(args.cache, args.corpus, args.questions, args.profiles, args.ideas),
    ]
    if not args.quick:
        lines += ["", *speed(args.cache, args.corpus, rows(args.questions[0]))]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
