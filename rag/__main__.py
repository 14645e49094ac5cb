"""`python -m rag search TEXT`, `status`, `build`, `vectors`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from rag import ingest, shipped
from rag.embed import Embedder, packaged_model
from rag.errors import LibraryError
from rag.library import Library
from rag.passage import Query


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rag", description="Search what is known about fast kernels.")
    parser.add_argument("--cache", type=Path, help=f"index directory (default: {ingest.default_cache()})")
    parser.add_argument("--mode", choices=("auto", "lexical", "hybrid"), default="auto", help="default: auto")
    commands = parser.add_subparsers(dest="command", required=True)
    search = commands.add_parser("search", help="show the passages that answer a question")
    search.add_argument("text")
    search.add_argument("--arch", help="only what holds for this architecture, such as sm_90 or x86_64")
    search.add_argument("--language", help="only what is written for this language, such as cuda or cpp")
    search.add_argument("--family", action="append", default=[], help="prefer this operator family (repeatable)")
    search.add_argument("--bottleneck", help="prefer pages on this bottleneck, such as dram-bw")
    search.add_argument("--limit", type=int, default=5, help="passages at most (default: 5)")
    commands.add_parser("status", help="say what is indexed and which mode would answer")
    commands.add_parser("build", help="make the indexes anew")
    commands.add_parser("vectors", help="bring the vectors that ship with the corpus up to date (for who changes it)")
    return parser


def _show(library: Library, args: argparse.Namespace) -> None:
    query = Query(args.text, args.arch, args.language, tuple(args.family), args.bottleneck, args.limit)
    answer = library.search(query)
    print(f"{len(answer.passages)} passages, {answer.mode} ({library.mode_reason})")
    for place, passage in enumerate(answer.passages, 1):
        scores = "  ".join(f"{name} {value:.3f}" for name, value in passage.scores.items())
        heading = f" > {passage.heading}" if passage.heading else ""
        print(f"\n{place}. {passage.title}{heading}")
        print(f"   {passage.source}  {', '.join(passage.archs) or 'any'}  {scores}\n")
        print("\n".join(f"   {line}" for line in passage.text.splitlines()))


def _status(cache: Path) -> None:
    corpus = ingest.read()
    built = (cache / "generations" / corpus.fingerprint / "index.sqlite").is_file()
    model = packaged_model()
    print(f"corpus      {len(corpus.files)} files in {ingest.CORPUS}")
    print(f"index       {cache}: {'up to date' if built else 'to be built at first use'}")
    if isinstance(model, str):
        print(f"vectors     none, lexical retrieval answers: {model}")
    else:
        print(f"vectors     {model.id}, hybrid retrieval answers")


def _vectors(cache: Path) -> None:
    model = packaged_model()
    if isinstance(model, str):
        raise LibraryError(f"no vectors can be made: {model}")
    with contextlib.closing(Embedder(model)) as embedder:
        count, new = ingest.refresh(cache, embedder, _tell)
    path = shipped.file(ingest.CORPUS, model.id)
    print(f"{count} vectors, {new} of them new, {path.stat().st_size / 1e6:.2f} MB in {path}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0, or 1 after one sentence on standard error."""
    args = _parser().parse_args(arguments)
    cache: Path = args.cache or ingest.default_cache()
    try:
        if args.command == "status":
            _status(cache)
            return 0
        if args.command == "vectors":
            _vectors(cache)
            return 0
        if args.command == "build":
            ingest.discard(cache, ingest.read(), _tell)
        with Library.open(cache, args.mode, _tell) as library:
            if args.command == "search":
                _show(library, args)
            else:
                print(f"{library.pages} pages, {library.chunks} chunks, {library.mode} ({library.mode_reason})")
        return 0
    except LibraryError as error:
        print(f"rag: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
