"""hnswlib called directly: an index in RAM, with the settings that refold's graph begins with."""

from importlib import import_module
from pathlib import Path
from typing import Any

from peers.interface import NOTHING, PeerSizes, Settings

_LINKS, _BUILDING, _BREADTH = 16, 100, 64


class Peer:
    """One index, one thread."""

    settings = Settings(NOTHING, f"M={_LINKS}, ef_construction={_BUILDING}, ef={_BREADTH}, in RAM")

    def __init__(self, sizes: PeerSizes) -> None:
        self._library: Any = import_module("hnswlib")
        self._index: Any = None
        # Rounds insert more; the index has to be told its size beforehand.
        self._capacity = 2 * sizes.vectors + 10_000

    def load(self, vectors: Any) -> None:
        self._index = self._library.Index(space="cosine", dim=vectors.shape[1])
        self._index.init_index(max_elements=self._capacity, M=_LINKS, ef_construction=_BUILDING)
        self._index.set_num_threads(1)
        self._index.add_items(vectors, list(range(len(vectors))))
        self._index.set_ef(_BREADTH)

    def insert(self, place: int, vector: Any) -> None:
        self._index.add_items(vector.reshape(1, -1), [place])

    def search(self, vector: Any, count: int) -> list[int]:
        labels: list[int] = self._index.knn_query(vector.reshape(1, -1), k=count)[0][0].tolist()
        return labels

    def close(self) -> None:
        self._index = None


def open_peer(_directory: Path, sizes: PeerSizes) -> Peer:
    """Make an index."""
    return Peer(sizes)
