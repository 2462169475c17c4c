"""qdrant-client without a server, on a directory: what mem0 uses by default."""

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from peers.interface import CRASH, PeerSizes, Settings, sqlite_settings

_BATCH = 1_000


class Peer:
    """One collection."""

    def __init__(self, directory: Path) -> None:
        client: Any = import_module("qdrant_client")
        self._models: Any = import_module("qdrant_client.models")
        self._path = directory / "qdrant"
        self._client = client.QdrantClient(path=str(self._path))

    @property
    def settings(self) -> Settings:
        found = next(iter(sorted(self._path.rglob("*.sqlite"))), None)
        if found is None:
            return Settings(CRASH, "a file whose level of flushing is unknown; exact scan in numpy")
        with sqlite3.connect(found) as connection:
            settings = sqlite_settings(connection)
        connection.close()
        return settings._replace(said=f"{settings.said}, exact scan in numpy")

    def load(self, vectors: Any) -> None:
        shape = self._models.VectorParams(size=vectors.shape[1], distance=self._models.Distance.COSINE)
        self._client.create_collection("memories", vectors_config=shape)
        for begin in range(0, len(vectors), _BATCH):
            part = enumerate(vectors[begin : begin + _BATCH], begin)
            self._client.upsert("memories", [self._point(place, vector) for place, vector in part])

    def _point(self, place: int, vector: Any) -> Any:
        return self._models.PointStruct(id=place, vector=vector.tolist(), payload={"place": place})

    def insert(self, place: int, vector: Any) -> None:
        self._client.upsert("memories", [self._point(place, vector)])

    def search(self, vector: Any, count: int) -> list[int]:
        found = self._client.query_points("memories", query=vector, limit=count)
        return [int(point.id) for point in found.points]

    def close(self) -> None:
        self._client.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
