"""Importing memories: into their projects, with the turns they came from, all of a file or none, and nothing twice.

Each memory carries a request id made of format, file, project and its own name there, so that a file may be imported
again. A memory whose exact content a project holds already is left as it is.
"""

from pathlib import Path
from typing import Final

from msgspec import Struct

from refold import Entry, Memory, Project
from refold.errors import EmbeddingMismatch, InvalidInput, LimitExceeded
from refold.recorders.importing import Progress, import_file
from refold.recorders.locomo import LOCOMO
from refold.recorders.protocol import SourceMemory
from refold.recorders.reading import memory_format_of, read_memories
from refold.recorders.transcript import transcript

_PROJECT: Final = "default"


class ImportedMemories(Struct, frozen=True):
    """What an import did: ``memories`` that it added, ``known`` ones that were there before, ``messages`` of turns."""

    file: str
    format: str
    projects: tuple[str, ...]
    memories: int
    messages: int
    events: int
    known: int
    repeated: bool
    """Whether the log already had everything, so that nothing was appended."""


def import_memories(
    memory: Memory,
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - the word its users say
    project: str | None = None,
    progress: Progress | None = None,
) -> ImportedMemories:
    """Import a file of memories; ``format=None`` tells the format from the content.

    ``project`` is where they go, instead of what the file says; without, what it says, else ``default``. Observations
    of LoCoMo bring their conversations along, since they cite them. Raises ``InvalidInput`` with file and place for
    what is malformed, and adds no memory then.
    """
    name = memory_format_of(path) if format is None else format
    found = read_memories(path, format=name)
    head = memory.head
    messages = import_file(memory, path, format=LOCOMO.name).messages if name == LOCOMO.name else 0
    importing = _Importing(memory, name, path, project)
    importing.add_all(found, progress)
    events = memory.head - head
    return ImportedMemories(
        str(path),
        name,
        tuple(sorted(importing.projects)),
        importing.added,
        messages,
        events,
        importing.known,
        repeated=not events and importing.known > 0,
    )


class _Importing:
    """The memories of one file on their way into a memory."""

    def __init__(self, memory: Memory, name: str, path: Path, project: str | None) -> None:
        self._memory = memory
        self._name = name
        self._path = path
        self._project = project
        self._turns: dict[str, dict[str | None, int]] = {}
        """Sample id -> id of a turn -> its seq."""
        self.projects: dict[str, Project] = {}
        self.added = 0
        self.known = 0

    def add_all(self, memories: list[SourceMemory], progress: Progress | None) -> None:
        """Add memories in one commit: all of them or none."""
        # Reading inside of the batch would make it depend on conversations that others may go on with.
        seqs = [self._seqs(memory) for memory in memories]
        with self._memory.batch():
            for number, (memory, sources) in enumerate(zip(memories, seqs, strict=True), 1):
                self.added += self._add(memory, sources)
                if progress is not None:
                    progress(number, len(memories))
        self.known = len(memories) - self.added

    def _seqs(self, memory: SourceMemory) -> list[int]:
        """Return the seqs of the turns that say a memory."""
        if not memory.turns or memory.project is None:
            return []
        if memory.project not in self._turns:
            messages = transcript(self._memory, f"{self._name}/{self._path.stem}/{memory.project}")
            # An erased message has no metadata: nothing can be derived from it any more.
            kept = [message for message in messages if message.metadata]
            self._turns[memory.project] = {(message.metadata or {}).get("dia_id"): message.seq for message in kept}
        turns = self._turns[memory.project]
        return [turns[turn] for turn in memory.turns if turn in turns]

    def _add(self, memory: SourceMemory, sources: list[int]) -> bool:
        """Add one memory inside the open batch; return whether it was new."""
        name = self._project or memory.project or _PROJECT
        try:
            entry = self._of(name).add(
                memory.content,
                category=memory.category,
                keywords=memory.keywords,
                importance=memory.importance,
                metadata=memory.metadata,
                source=memory.source,
                status=memory.status,
                vector=memory.vector,
                occurred=memory.occurred_ns,
                request_id=f"import/{self._name}/{self._path.stem}/{name}/{memory.key}",
                sources=sources,
            )
        except (InvalidInput, LimitExceeded, EmbeddingMismatch) as error:
            text = _changed(name) if "request_id was used" in str(error) else str(error)
            problem = f"{self._path}: {memory.place}: {text}"
            raise type(error)(problem) from error
        return _is_new(entry)

    def _of(self, name: str) -> Project:
        if name not in self.projects:
            self.projects[name] = self._memory.project(name)
        return self.projects[name]


def _is_new(entry: Entry) -> bool:
    # Inside a batch a new memory has no seq yet; one that answers an earlier request, or was there, has.
    return entry.seq is None


def _changed(project: str) -> str:
    problem = f"was imported into {project} before, and was another memory then"
    return f"{problem}; give the file another name to import both"
