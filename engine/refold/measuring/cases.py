"""What is measured on: conversations as refold holds them, and questions whose evidence is known."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from refold import Memory, Message
from refold.entry import ACTIVE, Entry
from refold.recorders import transcript
from refold.text import countable

WEEK_NS: Final = 7 * 86_400 * 10**9


MEMORIES: Final = "memories"
"""The origin of a case whose items are the memories of a project: they are searched, and no window holds them."""

IMPORTANCE: Final = 0.5
"""Messages have no importance, so all have the same."""


class Item(Struct, frozen=True):
    """A message, or a memory, as it is searched and evicted.

    ``key`` is how labels cite it, ``session`` what it stands in; ``words`` are its keywords where they are given.
    """

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


class Question(Struct, frozen=True):
    """What is looked for once so many items have arrived, and the places of the items that answer it."""

    text: str
    category: str
    evidence: frozenset[int]
    arrived: int


class Case(Struct, frozen=True):
    """One conversation with its questions.

    ``units`` says of each item which unit it belongs to, where it is whole sessions that are to be found; ``None``
    where it is items. Questions without evidence stand here too, in the source's order, and are not counted.
    """

    origin: str
    name: str
    items: tuple[Item, ...]
    questions: tuple[Question, ...]
    units: tuple[int, ...] | None = None


def item_of(message: Message) -> Item:
    """Return a message as it is measured; who speaks stands before what is said, as models are shown it."""
    event, stamp = message.event, message.stamp
    said = "\n".join(countable(message.content, message.tool_calls))
    metadata = message.metadata or {}
    session = metadata.get("session", metadata.get("batch"))
    return Item(
        stamp.seq,
        str(metadata.get("dia_id") or metadata.get("id") or stamp.seq),
        said if event.name is None else f"{event.name}: {said}",
        event.tokens,
        event.role,
        event.call_ids,
        event.answers,
        event.pinned,
        None if session is None else str(session),
        stamp.occurred_ns,
        None if stamp.occurred_ns == stamp.time_ns else stamp.occurred_ns,
    )


def remembered(entry: Entry) -> Item:
    """Return a project's memory as it is measured."""
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


def conversations(memory: Memory) -> Iterator[tuple[str, tuple[Item, ...], dict[str, Any]]]:
    """Return the conversations of a memory that have messages, in the order in which they began.

    Each with its id, its items, and what its source said of it.
    """
    said = ((name, list(transcript(memory, name))) for name in memory.conversations())
    begun = sorted(((name, messages) for name, messages in said if messages), key=lambda pair: pair[1][0].seq)
    for name, messages in begun:
        source = (messages[0].metadata or {}).get("source")
        yield name, tuple(map(item_of, messages)), source if isinstance(source, dict) else {}


def projects(memory: Memory) -> Iterator[tuple[str, tuple[Item, ...]]]:
    """Return the projects of a memory with those of their memories that are searched, in the order of their adding."""
    for name in memory.projects():
        yield name, tuple(map(remembered, memory.project(name).list(status=ACTIVE)))


def places(items: Sequence[Item]) -> dict[str, int]:
    """Return the place of each item by its key.

    >>> places([Item(1, "D1:1", "Ada: Hello", 2, "user")])
    {'D1:1': 0}
    """
    return {item.key: place for place, item in enumerate(items)}
