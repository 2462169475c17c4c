"""Where cases come from: a file of a public set, recorded sessions, or a store, with a file of queries if there is one.

Files go through the recorders into a memory in RAM, so that what is measured is what refold would hold: the same
messages, tokens and groups. A store is opened read-only and nothing is written to it.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from refold import Memory
from refold.errors import InvalidInput, NotFound
from refold.measuring.cases import Case, Item, Question, conversations, item_of
from refold.measuring.labels import labelled
from refold.recorders import import_file, transcript
from refold.recorders.documents import decoded, lines

Progress: TypeAlias = Callable[[int, int], None]

_DATA_FILE: Final = "data.mdb"
_DAY: Final = "%Y/%m/%d (%a) %H:%M"


class Labelled(msgspec.Struct, frozen=True):
    """A line of a file of queries: what is asked, and the seqs or message ids that answer it."""

    query: str
    seqs: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    conversation: str | None = None
    category: str = "all"


class _Turn(msgspec.Struct):
    """What is said in a session of LongMemEval."""

    role: str
    content: str


class _Haystack(msgspec.Struct):
    """An entry of LongMemEval, without its labels."""

    haystack_session_ids: list[str | int]
    haystack_dates: list[str]
    haystack_sessions: list[list[_Turn]]


def cases_of(path: Path, queries: Path | None = None, progress: Progress | None = None) -> list[Case]:
    """Return the cases of a file or a store; ``queries`` are JSON lines that label its conversations.

    ``progress`` is told how much of a file is read, (done, all).
    Raises ``NotFound`` if there is nothing at the path, ``InvalidInput`` for what cannot be read, and for a query whose
    evidence is in no conversation.
    """
    if not path.exists():
        message = f"there is nothing at {path}; give a file of sessions, or the directory of a store"
        raise NotFound(message)
    with _memory(path, progress) as memory:
        if queries is not None:
            return _queried(memory, queries)
        return [labelled(*conversation) for conversation in conversations(memory)]


def _memory(path: Path, progress: Progress | None) -> Memory:
    if (path / _DATA_FILE).is_file():
        return Memory(path, readonly=True)
    memory = Memory()
    if path.is_file() and _is_longmemeval(path):
        _append_longmemeval(memory, path, progress)
    else:
        import_file(memory, path, progress=progress)
    return memory


def _is_longmemeval(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"haystack_sessions"' in file.read()


def _append_longmemeval(memory: Memory, path: Path, progress: Progress | None) -> None:
    """Append every haystack as a conversation, its labels where recorders keep them: with the first message."""
    document = decoded(path.read_bytes(), f"{path} is no JSON", "get it again, whole")
    haystacks = _haystacks(document, path)
    for number, (entry, haystack) in enumerate(zip(cast("list[dict[str, Any]]", document), haystacks, strict=True)):
        chat = memory.conversation(f"longmemeval/{number}-{entry.get('question_id')}")
        source: dict[str, Any] | None = _with_lists(entry)
        with memory.batch():
            for session, date, turns in _sessions(haystack, f"{path}, entry {number + 1}"):
                for turn in turns:
                    metadata = {"session": session} | ({"source": source} if source else {})
                    chat.append(turn.role, turn.content, metadata=metadata, occurred=date)
                    source = None
        if progress is not None:
            progress(number + 1, len(haystacks))


def _haystacks(document: Any, path: Path) -> list[_Haystack]:
    try:
        return msgspec.convert(document, list[_Haystack])
    except msgspec.ValidationError as error:
        message = f"{path} is not as LongMemEval has it: {error}; give its file unchanged"
        raise InvalidInput(message) from error


def _sessions(haystack: _Haystack, place: str) -> Iterator[tuple[str | int, datetime, list[_Turn]]]:
    """Yield each session with its id and date."""
    ids, dates, sessions = haystack.haystack_session_ids, haystack.haystack_dates, haystack.haystack_sessions
    if not len(ids) == len(dates) == len(sessions):
        message = f"{place} has {len(sessions)} sessions, {len(ids)} ids and {len(dates)} dates; give as many of each"
        raise InvalidInput(message)
    for session, date, turns in zip(ids, dates, sessions, strict=True):
        try:
            yield session, datetime.strptime(date, _DAY).replace(tzinfo=UTC), turns
        except ValueError as error:
            message = f"{place}: {error}; give dates as LongMemEval has them, such as 2023/05/20 (Sat) 02:21"
            raise InvalidInput(message) from error


def _with_lists(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry's labels; the original form has one question, and its variants have many."""
    labels = {key: value for key, value in entry.items() if not key.startswith("haystack_")}
    if "question" in labels and "answer_session_ids" in labels:
        labels |= {"questions": [labels["question"]], "answer_session_ids": [labels["answer_session_ids"]]}
    return labels


def _queried(memory: Memory, path: Path) -> list[Case]:
    items = {name: tuple(map(item_of, transcript(memory, name))) for name in memory.conversations()}
    ids = {name: {message.id: message.seq for message in transcript(memory, name)} for name in items}
    questions: dict[str, list[Question]] = {name: [] for name in items}
    labels = _Labels(items, ids)
    for place, query in _queries(path):
        name, evidence = labels.answering(query, place)
        questions[name].append(Question(query.query, query.category, evidence, len(items[name])))
    if not any(questions.values()):
        message = f"{path} has no query; give a line of JSON for each"
        raise InvalidInput(message)
    return [Case("queries", name, items[name], tuple(asked)) for name, asked in questions.items() if asked]


def _queries(path: Path) -> Iterator[tuple[str, Labelled]]:
    with path.open("rb") as file:
        for number, text in lines(file):
            place = f"{path}, line {number}"
            try:
                yield place, msgspec.json.decode(text, type=Labelled)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                message = f'{place}: {error}; give {{"query": TEXT, "seqs": [N, ...]}}, or "ids" for "seqs"'
                raise InvalidInput(message) from error


class _Labels:
    """Where the messages that queries name stand."""

    def __init__(self, items: dict[str, tuple[Item, ...]], ids: dict[str, dict[str, int]]) -> None:
        self._ids = ids
        self._places = {name: {item.seq: place for place, item in enumerate(each)} for name, each in items.items()}

    def answering(self, query: Labelled, place: str) -> tuple[str, frozenset[int]]:
        """Return the conversation that holds all of a query's evidence, and the places of it there."""
        for name in self._places if query.conversation is None else [query.conversation]:
            places, ids = self._places.get(name, {}), self._ids.get(name, {})
            seqs = {*query.seqs, *(ids.get(each, 0) for each in query.ids)}
            found = frozenset(places[seq] for seq in seqs if seq in places)
            if found and len(found) == len(seqs):
                return name, found
        where = "no conversation holds" if query.conversation is None else f"{query.conversation!r} does not hold"
        message = f"{place}: {where} seqs {list(query.seqs)} and ids {list(query.ids)} together; give those of messages"
        raise InvalidInput(message)
