"""Vectors of texts that were embedded before, found by a hash of the text."""

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from refold.embedders.protocol import Embedder, thresholds
from refold.embedders.vectors import check_vectors
from refold.hashing import blake2b
from refold.limits import EMBEDDING_CACHE_BYTES_MAX, HASH_BYTES

if TYPE_CHECKING:
    from refold.embedders.protocol import Vectors


class CachedEmbedder:
    """An embedder in front of another, which asks it for each text once and checks what it returns.

    It keeps the vectors of the texts that were asked for last, within ``EMBEDDING_CACHE_BYTES_MAX``, and of the texts
    no more than a hash. Threads may share it; the embedder behind it is called without a lock.

    >>> from refold.embedders import HashedEmbedder
    >>> CachedEmbedder(HashedEmbedder()).embed(["tea", "tea"]).shape
    (2, 512)
    """

    def __init__(self, embedder: Embedder, *, bytes_max: int = EMBEDDING_CACHE_BYTES_MAX) -> None:
        self.id = embedder.id
        self.dim = embedder.dim
        self.merge_threshold, self.compact_threshold = thresholds(embedder)
        self._embedder = embedder
        self._count_max = bytes_max // (4 * embedder.dim + HASH_BYTES)
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()
        self._lock = Lock()

    def embed(self, texts: list[str]) -> "Vectors":
        """Return one checked row of float32 for each text, in order; raises what ``check_vectors`` raises."""
        import numpy  # noqa: PLC0415 - loads when the first vector comes

        keys = [_key(text) for text in texts]
        found = self._found(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            vectors = self._embedder.embed(list(missing.values()))
            rows = check_vectors(vectors, dim=self.dim, count=len(missing), what=f"embedder {self.id!r}")
            fresh = dict(zip(missing, rows, strict=True))
            self._keep(fresh)
            found |= fresh
        return numpy.array([found[key] for key in keys], dtype=numpy.float32).reshape(len(keys), self.dim)

    def clear(self) -> None:
        """Forget every vector."""
        with self._lock:
            self._vectors.clear()

    def _found(self, keys: list[bytes]) -> "dict[bytes, Vectors]":
        with self._lock:
            found = {key: self._vectors[key] for key in keys if key in self._vectors}
            for key in found:
                self._vectors.move_to_end(key)
        return found

    def _keep(self, fresh: "dict[bytes, Vectors]") -> None:
        """Keep copies: a row that is looked at in the array of its batch would hold that whole array."""
        with self._lock:
            self._vectors.update((key, row.copy()) for key, row in fresh.items())
            while len(self._vectors) > self._count_max:
                self._vectors.popitem(last=False)


def _key(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=HASH_BYTES).digest()
