"""Other models and stores, by the environment: a directory, an endpoint, a Chroma server, and their faults."""

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rag import Library, LibraryError, Query
from rag.choice import Choice, from_environment
from rag.embed import missing, packaged_model
from rag.model import why_not

pytestmark = pytest.mark.skipif(missing("chromadb", "openai") is not None, reason="chromadb or openai is not installed")


class Embeddings(ThreadingHTTPServer):
    """Speaks as much of the protocol as embeddings need; vectors are made from the words' hashes."""

    dimension, fault, asked = 48, "", 0


class Answers(BaseHTTPRequestHandler):
    server: Embeddings

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.asked += len(texts)
        fault = self.server.fault
        rows = [{"index": n, "embedding": self._vector(text)} for n, text in enumerate(texts)]
        body = json.dumps({"data": rows[1:] if fault == "short" else rows, "model": "m", "object": "list"}).encode()
        self.send_response(400 if fault == "refused" else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}" if fault == "refused" else b'{"data": [{}]}' if fault == "nonsense" else body)

    def _vector(self, text: str) -> list[float]:
        vector = [0.01] * self.server.dimension
        for word in text.lower().split():
            vector[hashlib.sha256(word.encode()).digest()[0] % self.server.dimension] += 1.0
        return vector

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Embeddings]:
    with Embeddings(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def choice(server: Embeddings, **more: str) -> Choice:
    return Choice("words", f"http://127.0.0.1:{server.server_port}/v1", **more)


def test_the_environment_chooses_and_what_it_cannot_mean_is_refused() -> None:
    assert from_environment({}) == Choice()
    chosen = from_environment({"RAG_MODEL": "m", "RAG_EMBEDDINGS_URL": "http://h/v1", "RAG_EMBEDDINGS_KEY": "secret"})
    assert chosen == Choice("m", "http://h/v1", "secret")
    assert "secret" not in repr(chosen)
    for environment in (
        {"RAG_EMBEDDINGS_URL": "http://h/v1"},
        {"RAG_EMBEDDINGS_URL": "h:80", "RAG_MODEL": "m"},
        {"RAG_CHROMA_URL": "chroma.local"},
    ):
        with pytest.raises(LibraryError, match="RAG_"):
            from_environment(environment)


def test_an_endpoint_embeds_the_corpus_once_and_then_questions_alone(
    endpoint: Embeddings, corpus: Path, tmp_path: Path
) -> None:
    with Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)) as library:
        assert endpoint.asked == library.chunks
        answer = library.search(Query("arrays of structs"))
        assert (answer.mode, answer.passages[0].page) == ("hybrid", "coalescing")
        assert library.mode_reason.startswith("the model words-at-127.0.0.1")
        assert endpoint.asked == library.chunks + 1
    with Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)) as library:
        assert endpoint.asked == library.chunks + 1


@pytest.mark.parametrize("fault", ["refused", "short", "nonsense"])
def test_an_endpoint_that_fails_leaves_words_and_says_so(
    endpoint: Embeddings, corpus: Path, tmp_path: Path, fault: str
) -> None:
    endpoint.fault = fault
    with Library.open(tmp_path, corpus=corpus, choice=choice(endpoint)) as library:
        assert library.search(Query("arrays of structs")).mode == "lexical"
        assert "embeddings endpoint" in library.mode_reason
    with pytest.raises(LibraryError, match="hybrid retrieval is not possible: the embeddings endpoint"):
        Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint))


def test_another_dimension_under_the_same_name_is_named_and_a_build_heals_it(
    endpoint: Embeddings, corpus: Path, tmp_path: Path
) -> None:
    Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)).close()
    endpoint.dimension = 32
    with (
        Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)) as library,
        pytest.raises(LibraryError, match=r"gives 32 numbers a text, but its index .* holds 48"),
    ):
        library.search(Query("arrays of structs"))
    with Library.open(tmp_path, corpus=corpus, choice=choice(endpoint)) as library:
        assert library.search(Query("arrays of structs")).mode == "lexical"
        assert "another model of the same name" in library.mode_reason
    shutil.rmtree(tmp_path / "generations")
    (tmp_path / "vectors.sqlite").unlink()  # as `python -m rag build --embed` does
    with Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)) as library:
        assert library.search(Query("arrays of structs")).mode == "hybrid"


def test_new_vectors_of_another_length_are_not_mixed_with_old_ones(
    endpoint: Embeddings, corpus: Path, tmp_path: Path
) -> None:
    Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)).close()
    endpoint.dimension = 32
    page = corpus / "docs/wgmma.md"
    page.write_text(page.read_text() + "\n## Fence\nOrder register accesses.\n")
    with pytest.raises(LibraryError, match="vectors of another length"):
        Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint))
    Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint)).close()


def test_a_model_s_directory_is_named_by_its_weights_and_an_empty_one_is_an_error(tmp_path: Path) -> None:
    found = packaged_model()
    if isinstance(found, str):
        pytest.skip(found)
    assert why_not(Choice(str(found.path))) is None
    assert "where no model lies" in str(why_not(Choice(str(tmp_path))))
    assert "where no model lies" in str(why_not(Choice(str(tmp_path / "nowhere"))))


@pytest.fixture
def chroma(tmp_path: Path) -> Iterator[str]:
    command = shutil.which("chroma", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the chroma command is not installed")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    run = [command, "run", "--path", str(tmp_path / "server"), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "http" in line.lower() or "Listening" in line:
                break
        threading.Thread(target=process.stdout.read).start()  # a full pipe would stop it
        yield f"http://127.0.0.1:{port}"
        process.kill()


def test_a_team_s_chroma_server_holds_the_vectors_of_all(
    chroma: str, endpoint: Embeddings, corpus: Path, tmp_path: Path, python: Callable[[str], list[str]]
) -> None:
    def asked(cache: str) -> str:
        code = (  # in a process of its own, since Chroma's client leaves a socket to the garbage collector
            "from pathlib import Path; from rag import Library, Query; from rag.choice import Choice\n"
            f"choice = Choice('words', 'http://127.0.0.1:{endpoint.server_port}/v1', chroma_url={chroma!r})\n"
            f"cache, corpus = Path({str(tmp_path / cache)!r}), Path({str(corpus)!r})\n"
            "with Library.open(cache, 'hybrid', corpus=corpus, choice=choice) as library:\n"
            "    answer = library.search(Query('arrays of structs'))\n"
            "    print(answer.mode, answer.passages[0].page)"
        )
        return subprocess.run(python(code), capture_output=True, text=True, check=True).stdout

    assert asked("one") == "hybrid coalescing\n"
    made = endpoint.asked
    assert asked("two") == "hybrid coalescing\n"
    assert endpoint.asked == made + 1
    assert not list((tmp_path / "two").rglob("chroma*"))


def test_experience_on_a_team_s_server_has_a_collection_that_grows_and_forgets(
    chroma: str, endpoint: Embeddings, corpus: Path, tmp_path: Path, python: Callable[[str], list[str]]
) -> None:
    def done(code: str) -> str:
        head = (
            "from pathlib import Path; from rag import Library; from rag.choice import from_environment\n"
            "from rag.recall import forget, place; from tests.experiences import experience\n"
            f"cache, corpus = Path({str(tmp_path / 'cache')!r}), Path({str(corpus)!r})\n"
            "def held():\n"
            "    client = place(cache, '', from_environment()).client()\n"
            "    names = {one.name: one for one in client.list_collections()}\n"
            "    (own,) = (name for name in names if name.startswith('experience-'))\n"
            "    return sorted(names[own].get()['ids']), len(names)\n"
            "with Library.open(cache, 'hybrid', corpus=corpus) as library:\n"
        )
        address = f"http://127.0.0.1:{endpoint.server_port}/v1"
        team = {"RAG_MODEL": "words", "RAG_EMBEDDINGS_URL": address, "RAG_CHROMA_URL": chroma}
        shown = subprocess.run(python(head + code), capture_output=True, text=True, env=os.environ | team)
        assert shown.returncode == 0, shown.stderr
        return shown.stdout

    assert done("    library.learn([experience('theirs')])\nprint(held())") == "(['theirs'], 2)\n"
    recall = "    found = library.recall('amax', [experience('mine')])\nprint(found.mode, held())"
    assert done(recall) == "hybrid (['mine', 'theirs'], 2)\n", "what others have put there stays and is not answered"
    assert done("    pass\nforget(['theirs'], cache)\nprint(held())") == "(['mine'], 2)\n"
    assert not list((tmp_path / "cache").rglob("chroma*"))


def test_a_chroma_server_that_is_not_there_leaves_words_and_says_so(
    endpoint: Embeddings, corpus: Path, tmp_path: Path
) -> None:
    chosen = choice(endpoint, chroma_url="http://127.0.0.1:9")
    with Library.open(tmp_path, corpus=corpus, choice=chosen) as library:
        assert library.search(Query("arrays of structs")).mode == "lexical"
        assert "Chroma server" in library.mode_reason
