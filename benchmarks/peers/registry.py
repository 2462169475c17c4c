"""Every peer by its name: its kind, the module that drives it, and the package without which it is left out."""

from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

LOG, SEARCH, WINDOW = "log", "search", "window"
REFOLD = "refold"


class Entry(NamedTuple):
    """Where a peer is driven, what has to be importable, and what it is installed by; ``beside`` is needed as well."""

    kind: str
    module: str
    package: str
    distribution: str
    beside: str = ""

    @property
    def reason(self) -> str:
        """Why it is left out, empty if it is there."""
        needed = {self.package: self.distribution} | ({self.beside: self.beside} if self.beside else {})
        missing = next((name for package, name in needed.items() if not _is_found(package)), "")
        return f"{missing} is not installed; tools/bench peers installs it" if missing else ""

    @property
    def version(self) -> str:
        """The version that runs."""
        if self.distribution == "sqlite":
            return str(import_module("sqlite3").sqlite_version)
        if self.distribution == REFOLD:
            return str(import_module(REFOLD).__version__)
        return version(self.distribution)

    def driver(self) -> Any:
        """Return the module that drives it."""
        return import_module(f"peers.{self.module}")


def _is_found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


PEERS = {
    "refold log": Entry(LOG, "refold_log", "refold", "refold"),
    "SQLite WAL FULL": Entry(LOG, "sqlite_table", "sqlite3", "sqlite"),
    "eventsourcing": Entry(LOG, "eventsourcing_chat", "eventsourcing", "eventsourcing"),
    "LangGraph SqliteSaver": Entry(
        LOG, "langgraph_saver", "langgraph.checkpoint.sqlite", "langgraph-checkpoint-sqlite"
    ),
    "LangGraph SqliteStore": Entry(LOG, "langgraph_store", "langgraph.store.sqlite", "langgraph-checkpoint-sqlite"),
    "openai-agents SQLiteSession": Entry(LOG, "openai_session", "agents", "openai-agents"),
    "refold search": Entry(SEARCH, "refold_search", "refold", "refold"),
    "Chroma": Entry(SEARCH, "chroma", "chromadb", "chromadb"),
    "sqlite-vec": Entry(SEARCH, "sqlite_vectors", "sqlite_vec", "sqlite-vec", beside="apsw"),
    "qdrant-client local": Entry(SEARCH, "qdrant_local", "qdrant_client", "qdrant-client"),
    "refold window": Entry(WINDOW, "refold_window", "refold", "refold"),
    "langchain trim_messages": Entry(WINDOW, "langchain_trim", "langchain_core", "langchain-core"),
    "LlamaIndex ChatMemoryBuffer": Entry(WINDOW, "llama_buffer", "llama_index.core", "llama-index-core"),
}
"""The peers; the first of each kind is refold, which the others of the kind are held against."""


def of_kind(kind: str) -> list[str]:
    """Return the names of the peers of a kind, refold first."""
    return [name for name, entry in PEERS.items() if entry.kind == kind]
