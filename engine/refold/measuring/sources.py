"""Where cases come from: a file of a public set, recorded sessions, or a store, with a file of queries if there is one.

Files go through the recorders into a memory in RAM, so that what is measured is what refold would hold: the same
messages, tokens and groups. A store is opened read-only and nothing is written to it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from refold import Memory
from refold.errors import InvalidInput, NotFound
from refold.measuring.cases import Case, Item, Question, conversations, item_of
from refold.measuring.labels import labelled
from refold.recorders import import_file, transcript
from refold.recorders.documents import decoded, lines

_DATA_FILE: Final = "data.mdb"
_DAY: Final = "%Y/%m/%d (%a) %H:%M"


class Labelled(msgspec.Struct, frozen=True):
    """A line of a file of queries: what is asked, and the seqs or message ids that answer it."""

    query: str
    seqs: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    conversation: str | None = None
    category: str = "all"


def cases_of(path: Path, queries: Path | None = None) -> list[Case]:
    """Return the cases of a file or a store; ``queries`` are JSON lines that label its conversations.

    Raises ``NotFound`` if there is nothing at the path, ``InvalidInput`` for what cannot be read, and for a query whose
    evidence is in no conversation.
    """
    if not path.exists():
        message = f"there is nothing at {path}; give a file of sessions, or the directory of a store"
        raise NotFound(message)
    with _memory(path) as memory:
        if queries is not None:
            return _queried(memory, queries)
        return [labelled(*conversation) for conversation in conversations(memory)]


def _memory(path: Path) -> Memory:
    if (path / _DATA_FILE).is_file():
        return Memory(path, readonly=True)
    memory = Memory()
    if path.is_file() and _is_longmemeval(path):
        _append_longmemeval(memory, path)
    else:
        import_file(memory, path)
    return memory


def _is_longmemeval(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"haystack_sessions"' in file.read()


def _append_longmemeval(memory: Memory, path: Path) -> None:
    """Append every haystack as a conversation, its labels where recorders keep them: with the first message."""
    document = decoded(path.read_bytes(), f"{path} is no JSON", "get it again, whole")
    for number, entry in enumerate(cast("list[dict[str, Any]]", document)):
        chat = memory.conversation(f"longmemeval/{number}-{entry.get('question_id')}")
        source: dict[str, Any] | None = _with_lists(entry)
        sessions = zip(entry["haystack_session_ids"], entry["haystack_dates"], entry["haystack_sessions"], strict=True)
        with memory.batch():
            for session, date, turns in sessions:
                for turn in turns:
                    metadata = {"session": session} | ({"source": source} if source else {})
                    occurred = datetime.strptime(date, _DAY).replace(tzinfo=UTC)
                    chat.append(turn["role"], turn["content"], metadata=metadata, occurred=occurred)
                    source = None


def _with_lists(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry's labels; the original form has one question, and its variants have many."""
    labels = {key: value for key, value in entry.items() if not key.startswith("haystack_")}
    if "question" in labels:
        labels |= {"questions": [labels["question"]], "answer_session_ids": [labels["answer_session_ids"]]}
    return labels


def _queried(memory: Memory, path: Path) -> list[Case]:
    items = {name: tuple(map(item_of, transcript(memory, name))) for name in memory.conversations()}
    ids = {name: {message.id: message.seq for message in transcript(memory, name)} for name in items}
    cases = {name: Case("queries", name, each, ()) for name, each in items.items()}
    for place, query in _queries(path):
        name, evidence = _answering(query, items, ids, place)
        question = Question(query.query, query.category, evidence, len(items[name]))
        cases[name] = replace(cases[name], questions=(*cases[name].questions, question))
    return [case for case in cases.values() if case.questions]


def _queries(path: Path) -> Iterator[tuple[str, Labelled]]:
    with path.open("rb") as file:
        for number, text in lines(file):
            place = f"{path}, line {number}"
            try:
                yield place, msgspec.json.decode(text, type=Labelled)
            except msgspec.DecodeError as error:
                message = f'{place}: {error}; give {{"query": TEXT, "seqs": [N, ...]}}, or "ids" for "seqs"'
                raise InvalidInput(message) from error


def _answering(
    query: Labelled, items: dict[str, tuple[Item, ...]], ids: dict[str, dict[str, int]], place: str
) -> tuple[str, frozenset[int]]:
    """Return the conversation that holds all of a query's evidence, and the places of it there."""
    wanted = set(query.seqs), set(query.ids)
    for name in items if query.conversation is None else [query.conversation]:
        seqs = wanted[0] | {ids.get(name, {}).get(each, 0) for each in wanted[1]}
        found = frozenset(place for place, item in enumerate(items.get(name, ())) if item.seq in seqs)
        if found and len(found) == len(seqs):
            return name, found
    where = "no conversation holds" if query.conversation is None else f"{query.conversation!r} does not hold"
    message = f"{place}: {where} seqs {list(query.seqs)} and ids {list(query.ids)} together; give those of messages"
    raise InvalidInput(message)
