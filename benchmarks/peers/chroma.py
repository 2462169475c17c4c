"""Chroma with its persistent client and its own defaults, by cosine."""

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

from peers.interface import CRASH, PeerSizes, Settings, sqlite_settings

_BATCH = 1_000


class Peer:
    """One collection."""

    def __init__(self, directory: Path) -> None:
        chroma: Any = import_module("chromadb")
        config: Any = import_module("chromadb.config")
        self._path = directory / "chroma"
        quiet = config.Settings(anonymized_telemetry=False)
        self._client = chroma.PersistentClient(path=str(self._path), settings=quiet)
        space = {"hnsw:space": "cosine"}
        self._collection = self._client.create_collection("memories", metadata=space, embedding_function=None)

    @property
    def settings(self) -> Settings:
        with sqlite3.connect(self._path / "chroma.sqlite3") as connection:
            found = sqlite_settings(connection)
        connection.close()
        # Its own connections are in code that cannot be asked; the journal mode is the file's.
        journal = found.said.partition(",")[0]
        return Settings(CRASH, f"{journal}, its own level of flushing unknown; HNSW with its defaults")

    def load(self, vectors: Any) -> None:
        for begin in range(0, len(vectors), _BATCH):
            part = vectors[begin : begin + _BATCH]
            ids = [str(place) for place in range(begin, begin + len(part))]
            self._collection.add(ids=ids, embeddings=part)

    def insert(self, place: int, vector: Any) -> None:
        self._collection.add(ids=[str(place)], embeddings=vector.reshape(1, -1))

    def search(self, vector: Any, count: int) -> list[int]:
        found = self._collection.query(query_embeddings=vector.reshape(1, -1), n_results=count, include=["distances"])
        return [int(each) for each in found["ids"][0]]

    def close(self) -> None:
        self._collection = None


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
