"""Embeddings from an OpenAI-compatible endpoint, through the openai package."""

from __future__ import annotations

import array
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from rag.embeddings.local import EmbeddingModel
from rag.errors import LibraryError

BATCH = 64
TIMEOUT_S = 60.0


class Endpoint:
    """A model behind an address. `count` is the number of texts embedded so far."""

    def __init__(self, url: str, model: str, key: str | None) -> None:
        """Nothing is sent before the first `embed`."""
        import openai

        self.model = EmbeddingModel(f"{model}-at-{url.partition('://')[2]}", Path())
        self.count = 0
        self._name, self._fault = model, openai.OpenAIError
        self._client = openai.OpenAI(base_url=url, api_key=key or "none", timeout=TIMEOUT_S, max_retries=2)

    def embed(self, texts: Sequence[str], asked: bool = False) -> list[bytes]:
        """One unit vector a text, as little-endian float32. Raises LibraryError where the endpoint does not give them.

        `asked` changes nothing: the protocol knows no difference between a question and a passage.
        """
        vectors: list[bytes] = []
        for start in range(0, len(texts), BATCH):
            batch = list(texts[start : start + BATCH])
            try:
                answer = self._client.embeddings.create(model=self._name, input=batch, encoding_format="float")
                rows = [row.embedding for row in sorted(answer.data, key=lambda row: row.index)]
                vectors += [_unit(row) for row in rows]
            except (self._fault, TypeError, AttributeError, ValueError) as error:
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                raise LibraryError(f"the embeddings endpoint {self._client.base_url} failed: {reason}") from error
            if len(rows) != len(batch):
                raise LibraryError(f"the embeddings endpoint gave {len(rows)} vectors for {len(batch)} texts")
            self.count += len(batch)
        return vectors

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        self._client.close()


def _unit(row: Sequence[float]) -> bytes:
    length = math.sqrt(sum(x * x for x in row))
    if not row or not math.isfinite(length) or length == 0.0:
        raise ValueError("a vector is empty, zero or not finite")
    numbers = array.array("f", (x / length for x in row))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
