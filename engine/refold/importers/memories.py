"""Import of memories from JSON, mem0 and LoCoMo's observations: into their projects, all or none, nothing twice.

Fields that an entry of refold lacks go into its metadata under ``source``. Erased entries are left out.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from msgspec import Struct

from refold import Memory, Project
from refold.errors import InvalidInput
from refold.importers.formats import (
    ITEM,
    LOCOMO,
    OPENAI,
    SOURCE_KEY,
    Fields,
    MemoryFormat,
    SourceMemory,
    decode_json,
    lines,
    metadata,
    parse_date_ns,
    paths,
    prefix_errors,
    samples,
    session_ns,
    sessions,
)
from refold.importers.sessions import Progress, detect, import_file, open_source, reader_of, transcript
from refold.limits import TIME_NS_MAX

if TYPE_CHECKING:
    import sqlite3


_LIST_KEYS: Final = ("memories", "entries", "results", "facts")
_CONTENT_KEYS: Final = ("content", "memory", "text", "fact")
_SESSION_KEYS: Final = ("source", "session", "session_id", "source_session_id")
_VECTOR_KEYS: Final = ("vector", "embedding")
_NS_KEYS: Final = ("occurred_ns", "created_ns")
_DATE_KEYS: Final = ("occurred", "created_at", "timestamp", "time")
_PLAIN_KEYS: Final = ("category", "keywords", "importance", "status")
_MARKS: Final = frozenset(
    (*prefix, key) for prefix in ((), (ITEM,), *((name, ITEM) for name in _LIST_KEYS)) for key in _CONTENT_KEYS
)


def _is_json(head: bytes) -> bool:
    marks = _MARKS.intersection(paths(head))
    # A message has a content as well, but none of the other names, so these identify memories even if mem0 recorded a
    # role.
    return any(path[-1] != "content" for path in marks) or (bool(marks) and not OPENAI.recognises(head))


def _json_memories(path: Path) -> Iterator[SourceMemory]:
    """Yield the memories of a file, after checking all of them."""
    with path.open("rb") as file:
        memories = [memory for line, text in lines(file) for memory in _line_memories(line, text)]
    keys: dict[str, str] = {}
    for memory in memories:
        if keys.setdefault(memory.key, memory.place) != memory.place:
            raise InvalidInput(
                f"{memory.place} has the id of {keys[memory.key]}; give each memory an id of its own, or none"
            )
    yield from memories


def _line_memories(line: int, text: bytes) -> Iterator[SourceMemory]:
    advice = "mend the line or remove it, and import again"
    document = decode_json(text, f"line {line} is no memory in JSON", advice)
    listed = _find_list(document)
    if listed is None:
        yield from _json_memory(f"line {line}", str(line), document)
        return
    for number, item in enumerate(listed, 1):
        yield from _json_memory(f"line {line}, memory {number}", f"{line}/{number}", item)


def _find_list(document: object) -> list[object] | None:
    if isinstance(document, list):
        return cast("list[object]", document)
    fields = cast("Fields", document) if isinstance(document, dict) else {}
    key = next((key for key in _LIST_KEYS if isinstance(fields.get(key), list)), None)
    return None if key is None else cast("list[object]", fields[key])


def _json_memory(place: str, key: str, item: object) -> Iterator[SourceMemory]:
    fields = {"content": item} if isinstance(item, str) else item
    rest = dict(cast("Fields", fields)) if isinstance(fields, dict) else {}
    if rest.get("erased") is True:
        return
    content = _take(rest, _CONTENT_KEYS, str)
    if content is None:
        keys = ", ".join(_CONTENT_KEYS)
        raise InvalidInput(f"{place} is no memory; give a text, or an object with one under {keys}")
    own_id = rest.get("id")
    plain = {name: rest.pop(name) for name in _PLAIN_KEYS if rest.get(name) is not None}
    source = _take(rest, _SESSION_KEYS, str)
    vector = _take(rest, _VECTOR_KEYS, list)
    moment_ns = _take_moment(rest)
    project = _take(rest, ("project",), str)
    own: Fields = _take(rest, ("metadata",), dict) or {}
    source_fields = {name: value for name, value in rest.items() if value is not None}
    yield SourceMemory(
        place,
        f"id/{own_id}" if isinstance(own_id, (str, int)) and not isinstance(own_id, bool) else key,
        content,
        metadata=metadata(own, {SOURCE_KEY: source_fields or None}) or None,
        source=source,
        vector=vector,
        occurred_ns=moment_ns,
        project=project,
        **plain,
    )


def _take(fields: Fields, keys: tuple[str, ...], kind: type) -> Any:
    """Remove and return the first field of a memory that has the given type and is not empty."""
    key = next((key for key in keys if isinstance(fields.get(key), kind) and fields[key]), None)
    return None if key is None else fields.pop(key)


def _take_moment(fields: Fields) -> int | None:
    """Take the time when the memory happened, or else when it was made, from the first field that has it."""
    for key in _NS_KEYS:
        value = fields.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= TIME_NS_MAX:
            del fields[key]
            return value
    for key in _DATE_KEYS:
        moment_ns = parse_date_ns(fields.get(key))
        if moment_ns is not None:
            # The date's text stays, because it says more than its moment: its zone, and how precise it is.
            return moment_ns
    return None


# mem0's ``history.db``: each change that mem0 made to its memories, in SQLite; the live memories follow from the
# changes.
#
# The file is opened read-only. The history of a memory, row by row as mem0 wrote it, is in its metadata under ``mem0``.
# mem0 keeps its vectors elsewhere, so they are made again.

MEM0_KEY: Final = "mem0"
"""The metadata key of a memory's id in mem0, and of its history."""

_MAGIC: Final = b"SQLite format 3\x00"
# The first releases of mem0 used other names for the texts and the time.
_NEW_TEXTS: Final = ("new_memory", "new_value")
_TIMES: Final = ("created_at", "timestamp")
_NEEDED: Final = frozenset(("memory_id", "event"))
_TABLE: Final = "history"


def _mem0_memories(path: Path) -> Iterator[SourceMemory]:
    import sqlite3  # noqa: PLC0415 - not every Python has it, and only this format needs it

    histories: dict[str, list[Fields]] = {}
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)) as database:
            for row in _rows(database):
                if any(isinstance(value, bytes) for value in row.values()) or not isinstance(row.get("memory_id"), str):
                    raise InvalidInput(f"row {row.get('id')!r} of {_TABLE} is none of mem0's; give mem0's history.db")
                histories.setdefault(row["memory_id"], []).append(row)
    except (sqlite3.Error, UnicodeError) as error:
        raise InvalidInput(
            f"the file is no database that SQLite can read ({error}); give mem0's history.db, whole"
        ) from error
    yield from [memory for rows in histories.values() for memory in _live_memories(rows)]


def _rows(database: "sqlite3.Connection") -> Iterator[Fields]:
    columns = [str(row[1]) for row in database.execute(f"PRAGMA table_info({_TABLE})")]
    if not _NEEDED.issubset(columns):
        raise InvalidInput(f"the database has no table {_TABLE} as mem0 makes it; give mem0's history.db")
    # The ids of rows are random and the times may be missing: only the order of writing is certain.
    for row in database.execute(f"SELECT * FROM {_TABLE} ORDER BY rowid"):  # noqa: S608 - a constant
        yield {name: value for name, value in zip(columns, row, strict=True) if value is not None}


def _live_memories(rows: list[Fields]) -> Iterator[SourceMemory]:
    last = rows[-1]
    content = _first_value(last, _NEW_TEXTS)
    if last.get("is_deleted") or str(last.get("event")).upper() == "DELETE" or not content:
        return
    memory_id: str = last["memory_id"]
    yield SourceMemory(
        f"memory {memory_id}",
        memory_id,
        content,
        metadata={MEM0_KEY: {"id": memory_id, "history": rows}},
        occurred_ns=parse_date_ns(_first_value(rows[0], _TIMES)),
    )


def _first_value(row: Fields, names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if name in row), None)


# LoCoMo's observations: facts about the speakers of a sample, each with the turns that state it.
#
# A fact goes to the project of its ``sample_id``, as the conversation does, and happened when its session did. Its
# metadata has the speaker that it is about, the session, and the cited ids as they are written: some in a list, some in
# one text, some of turns that do not exist.

_OBSERVED: Final = re.compile(r"session_([0-9]{1,9})_observation\Z")
_TURN: Final = re.compile(r"D[0-9]{1,9}:[0-9]{1,9}(?![0-9])")
_ADVICE: Final = "give the benchmark's JSON file, or mend it"
_FACT_PARTS: Final = 2


def _observations(path: Path) -> Iterator[SourceMemory]:
    """Yield the facts of a file, after checking all of them."""
    with path.open("rb") as file:
        memories = [memory for place, sample in samples(file) for memory in _sample_memories(place, sample)]
    if not memories:
        raise InvalidInput(f"the samples have no observations; {_ADVICE}, or import it without --facts")
    yield from memories


def _sample_memories(place: str, sample: Fields) -> Iterator[SourceMemory]:
    observed = sample.get("observation", {})
    if not isinstance(observed, dict):
        raise InvalidInput(f"{place} has an observation that is no object; {_ADVICE}")
    turns = _turns(sample)
    by_session = cast("dict[str, Any]", observed)
    numbered = sorted((int(match.group(1)), key) for key in by_session if (match := _OBSERVED.match(key)))
    for number, key in numbered:
        for speaker, facts in _facts(f"{place}, {key}", by_session[key]):
            for position, fact in enumerate(facts, 1):
                where = f"{place}, {key} of {speaker}, fact {position}"
                own_key = f"{sample['sample_id']}/{number}/{speaker}/{position}"
                yield _observation(where, own_key, sample, number, speaker, fact, turns)


def _turns(sample: Fields) -> frozenset[str]:
    listed = [cast("list[object]", turns) for _, _, turns in sessions(sample) if isinstance(turns, list)]
    turns = [cast("Fields", turn) for session in listed for turn in session if isinstance(turn, dict)]
    return frozenset(str(turn.get("dia_id")) for turn in turns)


def _facts(place: str, by_speaker: object) -> Iterator[tuple[str, list[object]]]:
    if not isinstance(by_speaker, dict):
        raise InvalidInput(f"{place} is no object of speakers; {_ADVICE}")
    for speaker, facts in cast("dict[str, Any]", by_speaker).items():
        if not isinstance(facts, list):
            raise InvalidInput(f"{place} of {speaker} is no list of facts; {_ADVICE}")
        yield speaker, cast("list[object]", facts)


def _observation(
    place: str, key: str, sample: Fields, number: int, speaker: str, fact: object, turns: frozenset[str]
) -> SourceMemory:
    parts = cast("list[object]", fact) if isinstance(fact, list) else []
    if len(parts) != _FACT_PARTS or not isinstance(parts[0], str) or not parts[0].strip():
        raise InvalidInput(f"{place} is no pair of a text and the ids of its turns; {_ADVICE}")
    text, cited = parts
    talk = sample.get("conversation")
    ids = dict.fromkeys(_TURN.findall(str(cited)))
    return SourceMemory(
        place,
        key,
        text,
        metadata={"speaker": speaker, "session": number, "dia_ids": cited},
        source=f"session_{number}",
        occurred_ns=session_ns(cast("Fields", talk), number) if isinstance(talk, dict) else None,
        project=sample["sample_id"],
        turns=tuple(turn for turn in ids if turn in turns),
    )


# Files of memories: the format is detected from the content, and every memory is read and checked before the first is
# used.


def _is_mem0(head: bytes) -> bool:
    return head.startswith(_MAGIC)


OBSERVATIONS: Final = MemoryFormat("locomo", LOCOMO.recognises, _observations)
MEM0: Final = MemoryFormat("mem0", _is_mem0, _mem0_memories)
JSON_MEMORIES: Final = MemoryFormat("memories", _is_json, _json_memories)
_READERS: Final = (OBSERVATIONS, MEM0, JSON_MEMORIES)
MEMORY_FORMATS: Final = tuple(reader.name for reader in _READERS)
"""The names of the formats of memories that can be imported."""


def memory_format_of(path: Path) -> str:
    """Return the name of a memory file's format; raises ``InvalidInput`` if it is none of ``MEMORY_FORMATS``."""
    return detect(path, _READERS, MEMORY_FORMATS).name


def read_memories(path: Path, *, format: str | None = None) -> list[SourceMemory]:
    """Return the memories of a file; ``format=None`` detects the format from the content.

    Raises ``InvalidInput`` with file and place for malformed data, ``LimitExceeded`` for data that is too large.
    """
    reader = reader_of(path, _READERS, MEMORY_FORMATS, format)
    open_source(path).close()  # Raises refold's own errors for a path that cannot be read, before the reader opens it.
    with prefix_errors(str(path)):
        return list(reader.memories(path))


# Importing memories: into their projects, with the turns that they came from, all of a file or none, and nothing twice.
#
# Each memory carries a request id made from format, file, project and its own key there, so that a file can be imported
# again. If a project already holds a memory with exactly that content, the memory is left as it is.

_PROJECT: Final = "default"


class ImportedMemories(Struct, frozen=True):
    """The result of an import: the ``memories`` that it added, the ``known`` ones, and the ``messages`` of turns."""

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
    format: str | None = None,
    project: str | None = None,
    progress: Progress | None = None,
) -> ImportedMemories:
    """Import a file of memories; ``format=None`` detects the format from the content.

    ``project`` is the project that they go to, instead of the one that the file names; without it, the file's, else
    ``default``. LoCoMo's observations bring their conversations along, because they cite them. Raises ``InvalidInput``
    with file and place for malformed data, and then adds no memory.
    """
    name = memory_format_of(path) if format is None else format
    memories = read_memories(path, format=name)
    head = memory.head
    messages = import_file(memory, path, format=LOCOMO.name).messages if name == LOCOMO.name else 0
    # Reading these inside the batch would make it depend on conversations that other writers may continue.
    turns = {one.project: _turn_seqs(memory, f"{name}/{path.stem}/{one.project}") for one in memories if one.turns}
    projects: dict[str, Project] = {}
    added = 0
    with memory.acting(f"import:{name}"), memory.batch():
        for number, one in enumerate(memories, 1):
            home = project or one.project or _PROJECT
            seqs = turns.get(one.project, {})
            changed = (
                f"was imported into {home} before, and was another memory then; give the file another name "
                "(--name for stdin) to import both"
            )
            with prefix_errors(f"{path}: {one.place}", changed):
                if home not in projects:
                    projects[home] = memory.project(home)
                entry = projects[home].add(
                    one.content,
                    category=one.category,
                    keywords=one.keywords,
                    importance=one.importance,
                    metadata=one.metadata,
                    source=one.source,
                    status=one.status,
                    vector=one.vector,
                    occurred=one.occurred_ns,
                    request_id=f"import/{name}/{path.stem}/{home}/{one.key}",
                    sources=[seqs[turn] for turn in one.turns if turn in seqs],
                )
            # Inside a batch, a new memory has no seq yet, but one that repeats an earlier request, or already existed,
            # has one.
            added += entry.seq is None
            if progress is not None:
                progress(number, len(memories))
    events, known = memory.head - head, len(memories) - added
    repeated = not events and known > 0
    return ImportedMemories(str(path), name, tuple(sorted(projects)), added, messages, events, known, repeated)


def _turn_seqs(memory: Memory, conversation_id: str) -> dict[str | None, int]:
    """Return the seqs of the turns of a conversation by their ids; an erased message has no metadata."""
    messages = transcript(memory, conversation_id)
    return {message.metadata.get("dia_id"): message.seq for message in messages if message.metadata}
