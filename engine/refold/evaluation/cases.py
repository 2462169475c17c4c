"""Cases of an evaluation: conversations and questions with labelled evidence, from files or a store."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold import Memory, Message, checks
from refold.entry import ACTIVE, Entry
from refold.errors import InvalidInput, NotFound
from refold.importers import import_file, transcript
from refold.importers.formats import decode_json, lines
from refold.text import countable_texts

WEEK_NS: Final = 7 * 86_400 * 10**9


MEMORIES: Final = "memories"
"""The origin of a case whose items are the memories of a project: they are searched, but are in no window."""

IMPORTANCE: Final = 0.5
"""Messages have no importance, so all get the same."""


class Item(Struct, frozen=True):
    """A message or a memory, as it is searched and evicted; labels cite it by ``key``."""

    seq: int
    key: str
    text: str
    tokens: int
    role: str
    call_ids: tuple[str, ...] = ()
    answers: str | None = None
    pinned: bool = False
    session: str | None = None
    accessed_ns: int = 0
    occurred_ns: int | None = None
    importance: float = IMPORTANCE
    words: tuple[str, ...] | None = None


class CaseQuestion(Struct, frozen=True):
    """A question, the number of items that arrived before it, and the places of the items that answer it.

    ``own_places`` are the places of messages that are the question itself: they do not compete with its answers.
    """

    text: str
    category: str
    evidence: frozenset[int]
    arrived: int
    own_places: tuple[int, ...] = ()


class Case(Struct, frozen=True):
    """One conversation with its questions.

    ``units`` gives the session number of each item if whole sessions are to be found, else ``None``. Questions without
    evidence stay in the source's order and are not counted.
    """

    origin: str
    name: str
    items: tuple[Item, ...]
    questions: tuple[CaseQuestion, ...]
    units: tuple[int, ...] | None = None


def item_of(message: Message) -> Item:
    """Return a message as an item; the speaker's name precedes the text, as shown to models."""
    event, stamp = message.event, message.stamp
    text = "\n".join(countable_texts(message.content, message.tool_calls))
    metadata = message.metadata or {}
    session = metadata.get("session", metadata.get("batch"))
    return Item(
        stamp.seq,
        str(metadata.get("dia_id") or metadata.get("id") or stamp.seq),
        text if event.name is None else f"{event.name}: {text}",
        event.tokens,
        event.role,
        event.call_ids,
        event.answers,
        event.pinned,
        None if session is None else str(session),
        stamp.occurred_ns,
        None if stamp.occurred_ns == stamp.time_ns else stamp.occurred_ns,
    )


def entry_item(entry: Entry) -> Item:
    """Return a memory of a project as an item."""
    return Item(
        entry.body_seq,
        entry.id,
        entry.content,
        0,
        "memory",
        session=entry.session,
        accessed_ns=entry.accessed_ns or entry.created_ns or 0,
        occurred_ns=entry.occurred_ns if entry.dated else None,
        importance=entry.importance,
        words=entry.words,
    )


def conversations(memory: Memory) -> Iterator[tuple[str, tuple[Item, ...], dict[str, Any], int]]:
    """Yield the conversations of a memory that have messages, in the order they began.

    Each comes with its id, its items, the other fields of its source, and how many of its first items belong to a
    conversation before it, as those of a fork do.
    """
    known: set[int] = set()
    begun = {name: next(memory.conversation(name).events()).stamp.seq for name in memory.conversations()}
    for name in sorted(begun, key=lambda name: begun[name]):
        messages = list(transcript(memory, name))
        if messages:
            source = (messages[0].metadata or {}).get("source")
            shared = next((place for place, each in enumerate(messages) if each.seq not in known), len(messages))
            known.update(message.seq for message in messages)
            yield name, tuple(map(item_of, messages)), source if isinstance(source, dict) else {}, shared


def projects(memory: Memory) -> Iterator[tuple[str, tuple[Item, ...]]]:
    """Yield the projects of a memory, each with its searchable memories in the order they were added."""
    for name in memory.projects():
        yield name, tuple(map(entry_item, memory.project(name).list(status=ACTIVE)))


def places(items: Sequence[Item]) -> dict[str, int]:
    """Return the place of each item by its key.

    >>> places([Item(1, "D1:1", "Ada: Hello", 2, "user")])
    {'D1:1': 0}
    """
    return {item.key: place for place, item in enumerate(items)}


# Labels of public datasets, and of an agent's own calls: the names, numbers and dates in the arguments of a call were
# mentioned before, and the last message that contains one of them is the evidence.

_DIALOGUE: Final = re.compile(r"D(\d+):(\d+)")
_UNANSWERABLE: Final = "5"
"""The category of LoCoMo's adversarial questions: the conversation has no answer to them, so no result is right."""

_SPAN_WEEKS: Final = 26
_VALUE_CHARS_MIN: Final = 5
_DIGIT: Final = re.compile(r"\d")


def make_case(name: str, items: tuple[Item, ...], source: dict[str, Any], shared: int = 0) -> Case:
    """Return a conversation with the questions of its source, or with questions made from its own tool calls.

    The needs of the first ``shared`` items, and the questions of their source, belong to another conversation.
    """
    if shared:
        questions = tuple(question for question in _calls(items) if question.arrived >= shared)
        return Case("tool calls", name, items, questions)
    if _has_questions(source.get("qa")):
        return _locomo(name, items, source)
    if _is_longmemeval(source):
        return _longmemeval(name, items, source)
    if _has_questions(source.get("questions")):
        return _beam(name, items, source)
    return Case("tool calls", name, items, tuple(_calls(items)))


def _has_questions(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and "question" in each for each in cast("list[object]", value)
    )


def _is_longmemeval(source: dict[str, Any]) -> bool:
    """Return whether a source has questions with the sessions that answer each, as in LongMemEval."""
    questions, cited = source.get("questions"), source.get("answer_session_ids")
    return (
        isinstance(questions, list)
        and isinstance(cited, list)
        and len(cast("list[object]", questions)) == len(cast("list[object]", cited))
        and all(isinstance(each, list) for each in cast("list[object]", cited))
    )


def _locomo(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    place_of = places(items)
    questions: list[CaseQuestion] = []
    for row in source["qa"]:
        turns = _DIALOGUE.findall(" ".join(map(str, _leaves(row.get("evidence")))))
        cited = {f"D{one.lstrip('0') or 0}:{two.lstrip('0') or 0}" for one, two in turns}
        category = str(row.get("category"))
        evidence = () if category == _UNANSWERABLE else (place_of[key] for key in cited if key in place_of)
        questions.append(CaseQuestion(str(row["question"]), category, frozenset(evidence), len(items)))
    return Case("LoCoMo", name, items, tuple(questions))


def _beam(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    """Few messages have a time, so all are spread out by position, and no date words are added to them."""
    place_of = places(items)
    span = _SPAN_WEEKS * WEEK_NS
    timed = tuple(
        replace(item, accessed_ns=place * span // max(len(items) - 1, 1), occurred_ns=None)
        for place, item in enumerate(items)
    )
    questions = tuple(
        CaseQuestion(
            str(row["question"]),
            str(row.get("type")),
            frozenset(place_of[str(key)] for key in _leaves(row.get("source_chat_ids")) if str(key) in place_of),
            len(items),
        )
        for row in source["questions"]
    )
    return Case("BEAM", name, timed, questions)


def _longmemeval(name: str, items: tuple[Item, ...], source: dict[str, Any]) -> Case:
    sessions = list(dict.fromkeys(str(item.session) for item in items))
    number_of = {session: number for number, session in enumerate(sessions)}
    category = str(source.get("question_type"))
    questions = [
        CaseQuestion(
            str(text),
            category,
            frozenset(number_of[each] for each in map(str, _leaves(cited)) if each in number_of),
            len(items),
        )
        for text, cited in zip(source["questions"], source["answer_session_ids"], strict=True)
    ]
    units = tuple(number_of[str(item.session)] for item in items)
    return Case("LongMemEval", name, items, tuple(questions), units)


def _leaves(value: Any) -> list[Any]:
    leaves: list[Any] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting.extend(reversed(list(cast("dict[str, Any]", each).values())))
        elif isinstance(each, list):
            waiting.extend(reversed(cast("list[object]", each)))
        elif each is not None:
            leaves.append(each)
    return leaves


def _calls(items: tuple[Item, ...]) -> Iterator[CaseQuestion]:
    """Yield a question for each call whose arguments repeat an earlier text."""
    question = ""
    own_places: tuple[int, ...] = ()
    last: dict[str, tuple[int, int | None]] = {}
    """Value -> the place up to which it was searched for, and its last place before that: no text is read twice."""
    for end, item in enumerate(items):
        if item.call_ids:
            evidence: set[int] = set()
            for value in _values(item.text):
                begin, known = last.get(value, (0, None))
                place = next((place for place in range(end - 1, begin - 1, -1) if value in items[place].text), known)
                last[value] = end, place
                if place is not None:
                    evidence.add(place)
            if evidence:
                own = tuple(place for place in own_places if place not in evidence)
                yield CaseQuestion(question, "tool call", frozenset(evidence), end, own)
        elif item.role == "user":
            question, own_places = item.text, (end,)


def _values(text: str) -> set[str]:
    """Return the strings in the arguments of calls that identify something: long enough, and with a digit."""
    values: set[str] = set()
    for line in text.splitlines():
        try:
            leaves = _leaves(msgspec.json.decode(line))
        except checks.UNDECODABLE:
            continue  # The name of a tool, text next to the call, or nesting too deep for any tool.
        values.update(leaf for leaf in leaves if isinstance(leaf, str) and len(leaf) >= _VALUE_CHARS_MIN)
    return {value for value in values if _DIGIT.search(value)}


# Cases from a file or a store. Files are imported into a memory in RAM, so that the messages, tokens and groups are
# those that refold would have. A store is opened read-only.

Progress: TypeAlias = Callable[[int, int], None]

_Place: TypeAlias = tuple[str, str]  # An origin, and the name of a conversation or a project.

_DATA_FILE: Final = "data.mdb"
_DAY: Final = "%Y/%m/%d (%a) %H:%M"


class LabelledQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of a query file: the query, and the seqs or ids of the messages or memories that answer it.

    A question about messages comes up as of the seq ``at``. Without one it comes up at the first message that is the
    question itself and stands behind all of its evidence, or else at the end of the conversation.
    """

    query: str
    seqs: tuple[int, ...] = ()
    ids: tuple[str, ...] = ()
    conversation: str | None = None
    project: str | None = None
    category: str = "all"
    at: int | None = None


class _HaystackTurn(msgspec.Struct):
    """A turn of a LongMemEval session."""

    role: str
    content: str


class _Haystack(msgspec.Struct):
    """An entry of LongMemEval, without its labels."""

    haystack_session_ids: list[str | int]
    haystack_dates: list[str]
    haystack_sessions: list[list[_HaystackTurn]]


def cases_of(path: Path, queries: Path | None = None, progress: Progress | None = None) -> list[Case]:
    """Return the cases of a file or a store; ``queries`` is a file of JSON lines that label its conversations.

    ``progress(done, all)`` reports how much of a file has been read. Raises ``NotFound`` if there is nothing at the
    path, and ``InvalidInput`` for unreadable content or a query whose evidence is in no conversation.
    """
    if not path.exists():
        raise NotFound(f"there is nothing at {path}; give a file of sessions, or the directory of a store")
    with memory_of(path, progress) as memory:
        if queries is not None:
            return _make_query_cases(memory, queries)
        cases = ((make_case(*each), each[-1]) for each in conversations(memory))
        return [case for case, shared in cases if case.questions or not shared]


def memory_of(path: Path, progress: Progress | None) -> Memory:
    """Open a store read-only, or load a file into a memory in RAM."""
    if (path / _DATA_FILE).is_file():
        return Memory(path, readonly=True)
    memory = Memory()
    if path.is_file() and b'"haystack_sessions"' in path.read_bytes():
        _append_longmemeval(memory, path, progress)
    else:
        import_file(memory, path, progress=progress)
    return memory


def _append_longmemeval(memory: Memory, path: Path, progress: Progress | None) -> None:
    """Append every haystack as a conversation, with its labels where recorders keep them: on the first message."""
    document = decode_json(path.read_bytes(), f"{path} is no JSON", "get it again, whole")
    try:
        haystacks = msgspec.convert(document, list[_Haystack])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{path} is not as LongMemEval has it: {error}; give its file unchanged") from error
    for number, (entry, haystack) in enumerate(zip(cast("list[dict[str, Any]]", document), haystacks, strict=True)):
        chat = memory.conversation(f"longmemeval/{number}-{entry.get('question_id')}")
        source: dict[str, Any] | None = _list_labels(entry)
        with memory.batch():
            for session, date, turns in _sessions(haystack, f"{path}, entry {number + 1}"):
                for turn in turns:
                    metadata = {"session": session} | ({"source": source} if source else {})
                    chat.append(turn.role, turn.content, metadata=metadata, occurred=date)
                    source = None
        if progress is not None:
            progress(number + 1, len(haystacks))


def _sessions(haystack: _Haystack, place: str) -> Iterator[tuple[str | int, datetime, list[_HaystackTurn]]]:
    ids, dates, sessions = haystack.haystack_session_ids, haystack.haystack_dates, haystack.haystack_sessions
    if not len(ids) == len(dates) == len(sessions):
        raise InvalidInput(
            f"{place} has {len(sessions)} sessions, {len(ids)} ids and {len(dates)} dates; give as many of each"
        )
    for session, date, turns in zip(ids, dates, sessions, strict=True):
        try:
            yield session, datetime.strptime(date, _DAY).replace(tzinfo=UTC), turns
        except ValueError as error:
            raise InvalidInput(
                f"{place}: {error}; give dates as LongMemEval has them, such as 2023/05/20 (Sat) 02:21"
            ) from error


def _list_labels(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry's labels; the original format has one question, and its variants have many."""
    labels = {key: value for key, value in entry.items() if not key.startswith("haystack_")}
    if "question" in labels and "answer_session_ids" in labels:
        labels |= {"questions": [labels["question"]], "answer_session_ids": [labels["answer_session_ids"]]}
    return labels


def _make_query_cases(memory: Memory, path: Path) -> list[Case]:
    items: dict[_Place, tuple[Item, ...]] = {}
    ids: dict[_Place, dict[str, int]] = {}
    for name in memory.conversations():
        messages = list(transcript(memory, name))
        items["queries", name] = tuple(map(item_of, messages))
        ids["queries", name] = {message.id: message.seq for message in messages}
    for name, each in projects(memory):
        items[MEMORIES, name] = each
        ids[MEMORIES, name] = {item.key: item.seq for item in each}
    places_of = {home: {item.seq: place for place, item in enumerate(each)} for home, each in items.items()}
    questions: dict[_Place, list[CaseQuestion]] = {home: [] for home in items}
    for where, query in _queries(path):
        if query.at is not None and not 0 < query.at <= memory.head:
            raise InvalidInput(f"{where}: at is {query.at}; give a seq of the log, from 1 to {memory.head}")
        made: list[tuple[_Place, CaseQuestion]] = []
        for home, own in places_of.items():
            expected = query.project if home[0] == MEMORIES else query.conversation
            if (query.conversation is not None or query.project is not None) and expected != home[1]:
                continue
            seqs = {*query.seqs, *(ids[home].get(each, 0) for each in query.ids)}
            evidence = frozenset(own[seq] for seq in seqs if seq in own)
            if evidence and len(evidence) == len(seqs):
                made.append((home, _make_question(home, items[home], query, evidence, where)))
        if not made:
            named = query.conversation or query.project
            holder = "no conversation holds" if named is None else f"{named!r} does not hold"
            evidence_shown = f"seqs {list(query.seqs)} and ids {list(query.ids)} together"
            raise InvalidInput(
                f"{where}: {holder} {evidence_shown}; give those of messages, or of memories of a project"
            )
        # Forks share evidence: of those that have it, the first in which the question was asked, or else the first.
        home, question = next((each for each in made if each[1].arrived < len(items[each[0]])), made[0])
        questions[home].append(question)
    if not any(questions.values()):
        raise InvalidInput(f"{path} has no query; give a line of JSON for each")
    return [Case(*home, items[home], tuple(own)) for home, own in questions.items() if own]


def _make_question(
    home: _Place, items: Sequence[Item], query: LabelledQuery, evidence: frozenset[int], where: str
) -> CaseQuestion:
    """Return a question where it comes up: as of its seq, at its own message, or at the end."""
    own_places = [
        place
        for place, item in enumerate(items)
        if query.query in (item.text, item.text.partition(": ")[2]) and place not in evidence
    ]
    arrived, last = len(items), max(evidence)
    if query.at is not None:
        if home[0] == MEMORIES:
            raise InvalidInput(f"{where}: at is for questions about messages, and {home[1]!r} is a project; omit it")
        arrived = next((place for place, item in enumerate(items) if item.seq > query.at), arrived)
        if arrived <= last:
            raise InvalidInput(
                f"{where}: at is {query.at}, before the evidence at seq {items[last].seq}; give that seq or a later one"
            )
    elif home[0] != MEMORIES:
        arrived = next((place for place in own_places if place > last), arrived)
    earlier = tuple(place for place in own_places if place < arrived)
    return CaseQuestion(query.query, query.category, evidence, arrived, earlier)


def _queries(path: Path) -> Iterator[tuple[str, LabelledQuery]]:
    with path.open("rb") as file:
        for number, text in lines(file):
            place = f"{path}, line {number}"
            try:
                yield place, msgspec.json.decode(text, type=LabelledQuery)
            except checks.UNDECODABLE as error:
                raise InvalidInput(
                    f'{place}: {error}; give {{"query": TEXT, "seqs": [N, ...]}}, or "ids" for "seqs"; '
                    f"the fields are {', '.join(LabelledQuery.__struct_fields__)}"
                ) from error
