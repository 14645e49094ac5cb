"""The vectors that come with the corpus: one file a model, by the hash of the text that was embedded.

A vector is kept as bytes and their scale: a quarter of float32, and its cosine to what the model gave is over 0.9999.

A vector that is stale or missing costs one embedding at first use, never a wrong answer: equal text, equal vector.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from rag.errors import LibraryError
from rag.index.chroma import collection_name


def file(root: Path, model: str) -> Path:
    """Where the corpus in `root` keeps the vectors of `model`."""
    return root / "vectors" / f"{collection_name(model)}.npz"


def read(path: Path, keys: Iterable[str]) -> dict[str, bytes]:
    """Those of the wanted vectors that the file holds, as float32; none where there is no file.

    Raises LibraryError for a file that is no table of vectors.
    """
    import numpy as np

    if not path.is_file():
        return {}
    try:
        with np.load(path, allow_pickle=False) as table:
            names, rows = table["keys"], table["vectors"] * table["scales"].astype("<f4")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise LibraryError(f"the shipped vectors {path} are broken; `python -m rag vectors` remakes them") from error
    place = {name.decode(): n for n, name in enumerate(names)}
    return {key: rows[place[key]].tobytes() for key in keys if key in place}


def write(path: Path, vectors: Mapping[str, bytes]) -> None:
    """Replace the file by these float32 vectors. Equal vectors make equal bytes."""
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    names = sorted(vectors)
    rows = np.stack([np.frombuffer(vectors[name], dtype="<f4") for name in names])
    scales = (np.abs(rows).max(axis=1, keepdims=True) / 127).astype("<f2")
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial,
        keys=np.array([name.encode() for name in names]),
        vectors=np.rint(rows / scales.astype("<f4")).astype("i1"),
        scales=scales,
    )
    partial.replace(path)
