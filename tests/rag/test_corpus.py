"""The shipped corpus: front matter, chunks, and snippets that compile."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rag import dense, ingest, shipped
from rag.chunk import CAP, chunks, tokens
from rag.embed import PACKAGE, packaged_model
from rag.page import Page, parse, problems

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    return [parse(path, data.decode()) for path, data in sorted(ingest.read().files.items())]


def docs(pages: list[Page]) -> list[Page]:
    return [page for page in pages if page.path.startswith("docs/")]


def test_front_matter_has_unique_ids_and_only_tags_of_the_closed_lists(pages: list[Page]) -> None:
    assert problems(pages) == []


def test_there_are_at_least_ten_pages_of_300_to_900_words(pages: list[Page]) -> None:
    lengths = {page.id: len(page.body.split()) for page in docs(pages)}
    assert len(lengths) >= 10
    assert {name: n for name, n in lengths.items() if not 300 <= n <= 900} == {}


def test_every_page_has_a_snippet_and_no_fence_is_split(pages: list[Page]) -> None:
    for page in docs(pages):
        fences = [match[0] for match in FENCE.finditer(page.body)]
        assert fences, page.path
        texts = [chunk.text for chunk in chunks(page)]
        assert all(any(fence in text for text in texts) for fence in fences), page.path


def test_the_model_reads_every_chunk_of_the_corpus_whole(pages: list[Page]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the packaged model is not installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(spec.submodule_search_locations[0]) / "model/tokenizer.json"))
    tokenizer.no_truncation()
    for page in pages:
        for chunk in chunks(page):
            real = len(tokenizer.encode(chunk.embedded).ids)
            assert real <= 256, (page.path, chunk.heading, real)
            assert tokens(chunk.embedded) <= CAP + 40  # one long line may pass the cap


def test_the_shipped_vectors_can_be_read_and_what_lacks_one_is_only_told(pages: list[Page]) -> None:
    found = packaged_model()
    if isinstance(found, str):
        pytest.skip(found)
    texts = {dense.key(c.embedded): f"{page.path}: {c.heading}" for page in pages for c in chunks(page)}
    held = shipped.read(shipped.file(ingest.CORPUS, found.id), texts)
    missing = sorted(set(texts) - set(held))
    if missing:
        print(f"{len(missing)} of {len(texts)} chunks are embedded at first use; `python -m rag vectors` mends it:")
        print("\n".join(texts[key] for key in missing))
    assert {len(vector) for vector in held.values()} <= {384 * 4}


def _together(pages: list[Page], language: str) -> str:
    """All snippets of a language as one source: includes first, each page in a namespace of its own."""
    found = [(page.id, match[2]) for page in docs(pages) for match in FENCE.finditer(page.body) if match[1] == language]
    includes = sorted({line for _, code in found for line in INCLUDE.findall(code)})
    bodies = [
        f"namespace {re.sub('[^a-z0-9]', '_', name)}_{n} {{\n{INCLUDE.sub('', code)}}}\n"
        for n, (name, code) in enumerate(found)
    ]
    assert bodies
    return "".join(includes + bodies)


def _compile(command: list[str], source: Path) -> None:
    result = subprocess.run([*command, "-c", source.name], cwd=source.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_cuda_snippets_compile(pages: list[Page], tmp_path: Path) -> None:
    source = tmp_path / "snippets.cu"
    source.write_text(_together(pages, "cuda"))
    _compile(["nvcc", "-arch=sm_90", "-Werror=all-warnings"], source)


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_cpp_snippets_compile(pages: list[Page], tmp_path: Path) -> None:
    source = tmp_path / "snippets.cpp"
    source.write_text(_together(pages, "cpp"))
    _compile(["g++", "-std=c++17", "-O2", "-Wall", "-Wno-unused-function", "-fopenmp", "-Werror"], source)
