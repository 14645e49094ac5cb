"""`python -m rag search TEXT`, `add`, `list`, `remove`, `status`, `serve`, `build`, `vectors`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rag.corpus_path import CORPUS
from rag.embeddings import model
from rag.embeddings.config import from_environment, variables
from rag.errors import LibraryError
from rag.index import shipped_vectors
from rag.index.build import check, default_cache, discard, grow, read, refresh, writer
from rag.index.user_documents import Count, Record, Tags
from rag.library import Library
from rag.retrieval.passage import KINDS, SEARCHED, Passage, Query, clipped

SHOWN = 1600
NAMED = 10
"""Characters shown of a passage without `--full`."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rag", description="Search what is known about fast kernels.")
    parser.add_argument("--cache", type=Path, help="index directory (default: ~/.cache/kernel_agent/rag)")
    parser.add_argument("--mode", choices=("auto", "lexical", "hybrid"), default="auto", help="default: auto")
    commands = parser.add_subparsers(dest="command", required=True)
    search = commands.add_parser("search", help="show the passages that answer a question")
    search.add_argument("text")
    search.add_argument("--arch", help="only what holds for this architecture, such as sm_90 or x86_64")
    search.add_argument("--language", help="only what is written for this language, such as cuda or cpp")
    search.add_argument("--family", action="append", default=[], help="prefer this operator family (repeatable)")
    search.add_argument("--bottleneck", help="prefer pages on this bottleneck, such as dram-bw")
    search.add_argument("--kind", action="append", choices=KINDS, help="pages, kernels, own documents (repeatable)")
    search.add_argument("--limit", type=int, default=5, help="passages at most (default: 5)")
    search.add_argument("--json", action="store_true", help="the passages whole, as JSON")
    search.add_argument("--full", action="store_true", help=f"whole passages, not only {SHOWN} characters of each")
    add = commands.add_parser(
        "add", help="index documents of your own where they stand; again to bring them up to date"
    )
    add.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or a directory")
    add.add_argument("--arch", action="append", default=[], help="they hold for this only, such as sm_90+ (repeatable)")
    add.add_argument("--language", action="append", default=[], help="they are for this language only (repeatable)")
    add.add_argument("--family", action="append", default=[], help="they are on this operator family (repeatable)")
    add.add_argument("-v", "--verbose", action="store_true", help="name every file that is skipped, not the first 10")
    add.add_argument("--embed", action="store_true", help="make vectors however long that takes")
    commands.add_parser("list", help="say what was added, and what of it was skipped and why")
    remove = commands.add_parser("remove", help="forget documents that were added; the files stay")
    remove.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    commands.add_parser("status", help="say what is indexed and which mode would answer")
    serve = commands.add_parser("serve", help="be an MCP server with the tool search_knowledge, on stdio or over HTTP")
    serve.add_argument("--http", action="store_true", help="over HTTP, to clients that bear RAG_SERVE_TOKEN")
    serve.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine alone")
    serve.add_argument("--port", type=int, default=8765, help="default: 8765; 0 takes a free one")
    build = commands.add_parser("build", help="make the indexes anew")
    build.add_argument("--embed", action="store_true", help="make the vectors anew too")
    commands.add_parser("vectors", help="bring the vectors that ship with the corpus up to date (for who changes it)")
    return parser


def _search(library: Library, args: argparse.Namespace) -> None:
    kinds = tuple(args.kind) if args.kind else SEARCHED
    query = Query(args.text, args.arch, args.language, tuple(args.family), args.bottleneck, args.limit, kinds)
    answer = library.search(query)
    if args.json:
        print(json.dumps({**asdict(answer), "mode_reason": library.mode_reason}, indent=2))
        return
    print(f"{len(answer.passages)} passages, {answer.mode} ({library.mode_reason})")
    for place, passage in enumerate(answer.passages, 1):
        print(f"\n{place}. {_head(passage)}\n")
        text = passage.text if args.full else clipped(passage.text, SHOWN)
        print("\n".join(f"   {line}" for line in text.splitlines()))


def _head(passage: Passage) -> str:
    heading = f" > {passage.heading}" if passage.heading else ""
    scores = "  ".join(f"{name} {value:.3f}" for name, value in passage.scores.items())
    return f"{passage.title}{heading}\n   {passage.source}  {', '.join(passage.archs) or 'any'}  {scores}"


def _add(cache: Path, args: argparse.Namespace) -> None:
    tags = Tags(tuple(args.arch), tuple(args.language), tuple(args.family))
    check(tags)
    with writer(cache, _tell):
        for path in args.paths:
            with contextlib.closing(Record(cache)) as record:
                count, shown = Count(), time.monotonic()
                for done, (count, file) in enumerate(record.add(path, tags)):  # noqa: B007
                    if time.monotonic() - shown > 2.0:
                        shown = time.monotonic()
                        _tell(f"read {done} files, now {file}")
            print(f"{path}: {count.added} added, {count.changed} changed, {count.kept} kept, {count.removed} removed")
            for line in _skipped(count, args.verbose):
                print(f"  {line}")
        _grow(cache, args.mode, args.embed)


def _skipped(count: Count, verbose: bool) -> Iterator[str]:
    """How many files were skipped for which reason, and each by its name: all, or the first."""
    for reason, times in count.skipped.most_common():
        yield f"skipped {times}: {reason}"
    shown = count.named if verbose else count.named[:NAMED]
    for file, reason in shown:
        yield f"  {file}: {reason}"
    if rest := len(count.named) - len(shown):
        yield f"  and {rest} more; -v names them all"


def _grow(cache: Path, mode: str, embed: bool) -> None:
    choice = from_environment()
    embedder = None if mode == "lexical" else model.start(choice)
    if isinstance(embedder, str):
        _tell(f"no vectors: {embedder}")
        embedder = None
    with contextlib.ExitStack() as stack:
        if embedder is not None:
            stack.callback(embedder.close)
        print(grow(cache, embedder, choice, _tell, embed))


def _remove(cache: Path, args: argparse.Namespace) -> None:
    with writer(cache, _tell):
        for path in args.paths:
            with contextlib.closing(Record(cache)) as record:
                print(f"{path}: {record.remove(path)} files forgotten")
        _grow(cache, args.mode, embed=False)


def _list(cache: Path) -> None:
    with contextlib.closing(Record(cache)) as record:
        roots = record.roots()
    if not roots:
        print("nothing was added; `python -m rag add PATH` does it")
    for root in roots:
        tags = ", ".join((*root.tags.archs, *root.tags.languages, *root.tags.families))
        print(f"{root.path}: {root.files} files, {root.parts} parts{f' ({tags})' if tags else ''}")
        for reason, times in root.skipped.items():
            print(f"  skipped {times}: {reason}")


def _status(cache: Path) -> None:
    corpus = read()
    choice = from_environment()
    built = (cache / "generations" / corpus.fingerprint / "index.sqlite").is_file()
    print(f"corpus      {len(corpus.files)} files in {CORPUS}")
    print(f"index       {cache}: {'up to date' if built else 'to be built at first use'}")
    if (cache / "own").is_dir():
        with contextlib.closing(Record(cache)) as record:
            files, stale = sum(root.files for root in record.roots()), record.stale()
        changed = f", {stale} of them changed or gone since: `python -m rag add` them again" if stale else ""
        print(f"own         {files} files{changed}")
    if reason := model.why_not(choice):
        print(f"vectors     none, lexical retrieval answers: {reason}")
    else:
        where = f" at {choice.embeddings_url}" if choice.embeddings_url else ""
        print(f"vectors     {choice.model or 'the packaged MiniLM'}{where}, hybrid retrieval answers")
        print(f"store       {choice.chroma_url or 'Chroma, embedded'}")


def _vectors(cache: Path) -> None:
    embedder = model.start(from_environment())
    if isinstance(embedder, str):
        raise LibraryError(f"no vectors can be made: {embedder}")
    with contextlib.closing(embedder):
        count, new = refresh(cache, embedder, _tell)
    path = shipped_vectors.file(CORPUS, embedder.model.id)
    print(f"{count} vectors, {new} of them new, {path.stat().st_size / 1e6:.2f} MB in {path}")


def _serve(cache: Path, args: argparse.Namespace) -> None:
    from mcp_shell import protocol  # the MCP library takes a second to load
    from rag import mcp_server

    token = mcp_server.required(variables().get(mcp_server.TOKEN_VARIABLE)) if args.http else None
    with Library.open(cache, args.mode, _tell) as library:
        server = mcp_server.make_server(library, token)
        if token is None:
            protocol.serve_stdio(server)
        else:
            mcp_server.serve_http(server, args.host, args.port, _tell)


def _opened(cache: Path, args: argparse.Namespace) -> None:
    if args.command == "build":
        discard(cache, read(), _tell, vectors=args.embed)
        with writer(cache, _tell):
            _grow(cache, args.mode, args.embed)
    with Library.open(cache, args.mode, _tell) as library:
        if args.command == "search":
            _search(library, args)
        else:
            print(f"{library.pages} pages, {library.chunks} chunks, {library.mode} ({library.mode_reason})")


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns 0, or 1 after one sentence on standard error."""
    args = _parser().parse_args(arguments)
    try:
        cache: Path = args.cache or default_cache()
        match args.command:
            case "status":
                _status(cache)
            case "vectors":
                _vectors(cache)
            case "add":
                _add(cache, args)
            case "remove":
                _remove(cache, args)
            case "serve":
                _serve(cache, args)
            case "list":
                _list(cache)
            case _:
                _opened(cache, args)
        return 0
    except LibraryError as error:
        print(f"rag: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read has seen enough
        sys.stdout = None
        return 0


if __name__ == "__main__":
    sys.exit(main())
