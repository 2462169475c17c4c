"""sqlite-vec: an exact scan inside SQLite, in WAL mode and flushed at each commit.

By apsw, because the standard library's SQLite is built without extensions in many places.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from peers.interface import PeerSizes, Settings, sqlite_settings


class Peer:
    """One virtual table."""

    def __init__(self, directory: Path) -> None:
        library: Any = import_module("sqlite_vec")
        sqlite: Any = import_module("apsw")
        self._connection = sqlite.Connection(str(directory / "vectors.db"))
        self._connection.enable_load_extension(True)  # noqa: FBT003 - as SQLite has it
        self._connection.load_extension(library.loadable_path())
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")

    @property
    def settings(self) -> Settings:
        found = sqlite_settings(self._connection)
        return found._replace(said=f"{found.said}, exact scan")

    def load(self, vectors: Any) -> None:
        dimensions = vectors.shape[1]
        columns = f"embedding float[{dimensions}] distance_metric=cosine"
        self._connection.execute(f"CREATE VIRTUAL TABLE memories USING vec0({columns})")
        self._connection.execute("BEGIN")
        for place, vector in enumerate(vectors):
            self.insert(place, vector)
        self._connection.execute("COMMIT")

    def insert(self, place: int, vector: Any) -> None:
        command = "INSERT INTO memories (rowid, embedding) VALUES (?, ?)"
        self._connection.execute(command, (place + 1, vector.tobytes()))

    def search(self, vector: Any, count: int) -> list[int]:
        command = "SELECT rowid FROM memories WHERE embedding MATCH ? AND k = ? ORDER BY distance"
        return [row - 1 for (row,) in self._connection.execute(command, (vector.tobytes(), count))]

    def close(self) -> None:
        self._connection.close()


def open_peer(directory: Path, _sizes: PeerSizes) -> Peer:
    """Open it in a directory."""
    return Peer(directory)
