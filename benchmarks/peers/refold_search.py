"""refold's search by cosine alone, by its public verbs: hits with entry, score and signals."""

import threading
from pathlib import Path
from typing import Any

from peers.interface import POWER, PeerSizes, Settings

from refold import Memory
from refold.index.ranking import Ranking

_COSINE = Ranking(name="cosine", cosine=1.0)
_BATCH = 1_000


class Peer:
    """One project; a memory's source says its place."""

    settings = Settings(POWER, "LMDB, durable; exact: whole rows, or from 16,384 rows on bounds by short ones")

    def __init__(self, directory: Path) -> None:
        self._memory = Memory(directory / "refold")
        self._project = self._memory.project()

    def load(self, vectors: Any) -> None:
        for begin in range(0, len(vectors), _BATCH):
            with self._memory.batch():
                for place, vector in enumerate(vectors[begin : begin + _BATCH], begin):
                    self.insert(place, vector)
        self.search(vectors[0], 1)
        self.nearest(vectors[0], 1)
        # The others have built their index by now, too.
        for thread in threading.enumerate():
            if thread.name == "refold-graph":
                thread.join()

    def insert(self, place: int, vector: Any) -> None:
        self._project.add(f"memory {place}", vector=vector, source=str(place), keywords=())

    def search(self, vector: Any, count: int) -> list[int]:
        return self._found(vector, count)

    def nearest(self, vector: Any, count: int) -> list[int]:
        """Search the graph, where the project is large enough to have one."""
        return self._found(vector, count, approximate=True)

    def _found(self, vector: Any, count: int, *, approximate: bool = False) -> list[int]:
        hits = self._project.search(
            "memory", vector=vector, top_k=count, ranking=_COSINE, min_importance=0, approximate=approximate
        )
        return [int(hit.entry.content.removeprefix("memory ")) for hit in hits]

    def close(self) -> None:
        self._memory.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
