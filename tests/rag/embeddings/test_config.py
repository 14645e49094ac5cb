"""Other models and stores, by the environment: a directory, an endpoint, a Chroma server, and their faults."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rag import Library, LibraryError, Query
from rag.embeddings.config import EmbeddingConfig, from_environment
from rag.embeddings.local import missing, packaged_model
from rag.embeddings.model import why_not
from rag.experience import ranking
from rag.index import chroma
from tests.support.experiences import experience

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


def choice(server: Embeddings, **more: str) -> EmbeddingConfig:
    return EmbeddingConfig("words", f"http://127.0.0.1:{server.server_port}/v1", **more)


def test_the_environment_chooses_and_what_it_cannot_mean_is_refused() -> None:
    assert from_environment({}) == EmbeddingConfig()
    chosen = from_environment({"RAG_MODEL": "m", "RAG_EMBEDDINGS_URL": "http://h/v1", "RAG_EMBEDDINGS_KEY": "secret"})
    assert chosen == EmbeddingConfig("m", "http://h/v1", "secret")
    assert "secret" not in repr(chosen)
    for environment in (
        {"RAG_EMBEDDINGS_URL": "http://h/v1"},
        {"RAG_EMBEDDINGS_URL": "h:80", "RAG_MODEL": "m"},
        {"RAG_CHROMA_URL": "chroma.local"},
    ):
        with pytest.raises(LibraryError, match="RAG_"):
            from_environment(environment)


def test_env_in_the_working_directory_counts_where_the_environment_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("RAG_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    assert from_environment() == EmbeddingConfig()
    Path(".env").write_text("# ours\nRAG_CHROMA_URL=http://file:1\nRAG_CHROMA_TOKEN='of file'\nPATH=/nowhere\n")
    assert from_environment() == EmbeddingConfig(chroma_url="http://file:1", chroma_token="of file")
    monkeypatch.setenv("RAG_CHROMA_TOKEN", "")  # as an unset one
    monkeypatch.setenv("RAG_CHROMA_URL", "http://environment:2")
    assert from_environment() == EmbeddingConfig(chroma_url="http://environment:2", chroma_token="of file")
    Path(".env").write_bytes(b"RAG_MODEL=\0\0\0")
    with pytest.raises(LibraryError, match=r"\.env is not text"):
        from_environment()


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


def test_a_model_s_folder_is_named_by_its_weights_and_an_empty_one_is_an_error(tmp_path: Path) -> None:
    found = packaged_model()
    if isinstance(found, str):
        pytest.skip(found)
    assert why_not(EmbeddingConfig(str(found.path))) is None
    assert "where no model lies" in str(why_not(EmbeddingConfig(str(tmp_path))))
    assert "where no model lies" in str(why_not(EmbeddingConfig(str(tmp_path / "nowhere"))))


@pytest.fixture
def address() -> str:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def team(tmp_path: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    """A Chroma server at the address."""
    command = shutil.which("chroma", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the chroma command is not installed")
    run = [command, "run", "--path", str(tmp_path / "server"), "--host", "127.0.0.1", "--port", address.split(":")[2]]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if "listening on address" in line:
                break
        threading.Thread(target=process.stdout.read).start()  # a full pipe would stop it
        yield process
        process.kill()


@pytest.mark.usefixtures("team")
def test_a_team_s_chroma_server_holds_the_vectors_of_all(
    address: str, endpoint: Embeddings, corpus: Path, tmp_path: Path
) -> None:
    def asked(cache: str) -> str:
        chosen = choice(endpoint, chroma_url=address)
        with Library.open(tmp_path / cache, "hybrid", corpus=corpus, choice=chosen) as library:
            answer = library.search(Query("arrays of structs"))
            return f"{answer.mode} {answer.passages[0].page}"

    assert asked("one") == "hybrid coalescing"
    made = endpoint.asked
    assert asked("two") == "hybrid coalescing"
    assert endpoint.asked == made + 1
    assert not list((tmp_path / "two").rglob("chroma*"))


@contextlib.contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of a server that gives every connection the same bytes and closes it, or None: never a byte."""
    held: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # the end of the test closes the socket
            while True:
                held.append(server.accept()[0])
                if answer is not None:
                    held[-1].recv(1 << 16)
                    held[-1].sendall(answer)
                    held.pop().close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for one in held:
        one.close()


def reply(status: str, body: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n{body}".encode()


FAULTS = [
    (None, "timed out"),
    (b"", "disconnected without"),
    (b"SSH-2.0-nonsense\r\n\r\n", "illegal status line"),
    (reply("500 Internal Server Error", "a stack trace"), "500 Internal Server Error: a stack trace"),
    (reply("401 Unauthorized", "<html>who are you?"), "401 Unauthorized: <html>who"),
    (reply("302 Found", ""), "302 Found"),
    (reply("200 OK", '{"id": "00', length=900), "peer closed connection"),
    (reply("200 OK", "<html>It works!</html>"), "unexpected character"),
    (reply("200 OK", "[]"), "list indices"),
    (reply("200 OK", '{"id": 1}'), ""),
]


@pytest.mark.parametrize(("answer", "said"), FAULTS, ids=[said or "no collection" for _, said in FAULTS])
def test_a_chroma_server_that_fails_or_is_none_leaves_words_and_says_so_once(
    endpoint: Embeddings,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes | None,
    said: str,
) -> None:
    monkeypatch.setattr(chroma, "ANSWER_S", 1.0)
    with listening(answer) as address:
        began = time.monotonic()
        with Library.open(tmp_path, corpus=corpus, choice=choice(endpoint, chroma_url=address)) as library:
            assert time.monotonic() - began < 10.0
            assert library.search(Query("arrays of structs")).mode == "lexical"
            assert library.mode_reason.startswith(f"the Chroma server {address} failed (")
            assert said in library.mode_reason
            assert "\n" not in library.mode_reason
        with pytest.raises(LibraryError, match="hybrid retrieval is not possible: the Chroma server"):
            Library.open(tmp_path, "hybrid", corpus=corpus, choice=choice(endpoint, chroma_url=address))
    assert endpoint.asked == 0


def test_what_a_server_says_of_embedding_functions_is_dropped_unread() -> None:
    function = {"type": "known", "name": "sentence_transformer", "config": {"model_name": "/nowhere", "device": "cpu"}}
    index = {"enabled": True, "config": {"embedding_function": function}}
    said = {
        "id": "00000000-0000-0000-0000-000000000001",
        **{"name": "n", "tenant": "t", "database": "d", "metadata": None, "dimension": 3, "version": 0},
        "configuration_json": {"embedding_function": function},
        "schema": {"defaults": {"float_list": {"vector_index": index}}, "keys": {"k": {"float_list": index}}},
        "log_position": 0,
    }
    with listening(reply("200 OK", json.dumps(said))) as address:
        store = chroma.Store(chroma.VectorStorePath(Path(), "n", address))
        collection = store.get("n")
        store.close()
    assert collection.configuration_json == {}
    assert "sentence_transformer" not in str(collection.schema.serialize_to_json())


@pytest.mark.usefixtures("team")
def test_experience_on_a_team_s_server_has_a_collection_that_grows_and_forgets(
    address: str, endpoint: Embeddings, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_CHROMA_URL", address)
    chosen, cache = choice(endpoint, chroma_url=address), tmp_path / "cache"

    def held() -> list[str]:
        with contextlib.closing(chroma.Store(ranking.place(cache, "", chosen))) as store:
            (own,) = (name for name in store.names() if name.startswith("experience-"))
            return sorted(store.get(own).get()["ids"])

    with Library.open(cache, "hybrid", corpus=corpus, choice=chosen) as library:
        library.learn([experience("theirs")])
        assert held() == ["theirs"]
        found = library.recall("amax", [experience("mine")])
    assert [one.id for one in found.experiences] == ["mine"], "what others have put there is not answered"
    assert found.mode == "hybrid" and held() == ["mine", "theirs"]
    ranking.forget(["theirs"], cache)
    assert held() == ["mine"]
    assert not list(cache.rglob("chroma*"))


def test_a_chroma_server_that_is_not_there_leaves_words_and_says_so(
    endpoint: Embeddings, corpus: Path, tmp_path: Path
) -> None:
    chosen = choice(endpoint, chroma_url="http://127.0.0.1:9")
    with Library.open(tmp_path, corpus=corpus, choice=chosen) as library:
        assert library.search(Query("arrays of structs")).mode == "lexical"
        assert "Chroma server" in library.mode_reason


def test_a_chroma_server_that_dies_or_hangs_later_turns_auto_lexical(
    team: subprocess.Popen[str],
    address: str,
    endpoint: Embeddings,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chroma, "ANSWER_S", 2.0)
    chosen = choice(endpoint, chroma_url=address)
    for blow, said in ((signal.SIGSTOP, "timed out"), (signal.SIGKILL, "")):
        with Library.open(tmp_path, "auto", corpus=corpus, choice=chosen) as library:
            assert library.search(Query("arrays of structs")).mode == "hybrid", library.mode_reason
            team.send_signal(blow)
            assert library.search(Query("sectors wasted")).mode == "lexical"
            assert f"the Chroma server {address} failed" in library.mode_reason
            assert said in library.mode_reason
            team.send_signal(signal.SIGCONT)
    team.wait()
