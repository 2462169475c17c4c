"""What the plain model says of a project's memories: the fold of their events, and the search, by brute force."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from struct import pack, unpack
from typing import Any

from refold.text import keywords as keywords_of
from tests.machine.model_states import EMPTY, FOLD, Entry, Keys
from tests.support.other_process import WordsEmbedder

DAY_NS = 86_400 * 10**9


def vector_of(text: str) -> tuple[float, ...]:
    """The vector of a text."""
    return tuple(WordsEmbedder().embed([text])[0])


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of two vectors to 6 decimals."""
    a, b = (_unit(vector) for vector in (one, other))
    return round(sum(x * y for x, y in zip(a, b, strict=True)), 6)


def _unit(vector: Sequence[float]) -> list[float]:
    length = sqrt(sum(number * number for number in vector))
    return list(unpack(f"{len(vector)}f", pack(f"{len(vector)}f", *(number / length for number in vector))))


@dataclass(frozen=True)
class Fact:
    """One memory."""

    id: str
    content: str
    category: str
    keywords: tuple[str, ...]
    importance: float
    status: str
    metadata: Any
    session: str | None
    origin: int
    vector: tuple[float, ...]
    access_count: int = 0
    created_ns: int = 0
    updated_ns: int = 0
    accessed_ns: int = 0
    decayed_ns: int = 0
    occurred_ns: int = 0
    body: int = 0
    """The seq of the event that holds its content."""
    vector_seq: int = 0
    blank: tuple[str, ...] = ()


@dataclass
class Shared(Keys):
    """The state of a project: values, memories by id, ids of erased ones, merges taken apart, episodes."""

    memories: dict[str, Fact] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)
    apart: dict[int, None] = field(default_factory=dict)
    episodes: list[tuple[Any, ...]] = field(default_factory=list)

    def hashed(self) -> Any:
        """What a hash tells apart."""
        apart = sorted(self.apart) if self.memories or self.gone else []
        facts = [replace(fact, vector=()) for fact in self.memories.values()]
        return sorted(self.values.items()), facts, sorted(self.gone), apart, self.episodes

    def plain(self) -> Any:
        """What a person compares."""
        memories = {fact.id: _shown(fact) for fact in self.memories.values()}
        return super().plain(), memories, sorted(self.gone), [row[1:] for row in self.episodes]

    def same(self, content: str) -> Fact | None:
        """The memory of exactly this content."""
        return next((fact for fact in self.memories.values() if fact.content == content), None)

    def lose(self, fact_id: str) -> None:
        """Leave nothing of a memory but its id."""
        self.memories.pop(fact_id, None)
        self.gone[fact_id] = None


def _shown(fact: Fact) -> Any:
    said = (fact.content, fact.category, fact.keywords, fact.importance, fact.access_count, fact.status)
    return (*said, repr(fact.metadata), fact.origin or fact.session, fact.accessed_ns, fact.decayed_ns)


# The fold.


def _added(state: Shared, entry: Entry) -> None:
    fact: Fact = entry.data
    if entry.erased:
        state.lose(fact.id)
        return
    times: dict[str, Any] = {"created_ns": entry.time_ns, "updated_ns": entry.time_ns}
    happened: dict[str, Any] = {"accessed_ns": entry.occurred_ns, "occurred_ns": entry.occurred_ns}
    state.memories[fact.id] = replace(fact, **times, **happened, body=entry.seq, vector_seq=entry.seq)


def _updated(state: Shared, entry: Entry) -> None:
    fact_id, changes, texts = entry.data
    held = state.memories.get(fact_id)
    if held is None:
        return
    if not entry.erased:
        body: dict[str, Any] = texts | ({"body": entry.seq, "blank": ()} if texts else {})
        vector: dict[str, Any] = {"vector_seq": entry.seq} if "vector" in changes else {}
        state.memories[fact_id] = replace(held, **(body | changes), **vector, updated_ns=entry.time_ns)
    elif "content" in changes:
        state.lose(fact_id)
    else:
        blank = [name for name in ("keywords", "metadata") if name in changes or name in held.blank]
        empty: dict[str, Any] = {"keywords": (), "metadata": None}
        state.memories[fact_id] = replace(held, **{name: empty[name] for name in blank}, blank=tuple(blank))


def _forgotten(state: Shared, entry: Entry) -> None:
    for fact_id in entry.data:
        state.memories.pop(fact_id, None)


def _cleared(state: Shared, _: Entry) -> None:
    state.memories = {}


def _merged(state: Shared, entry: Entry) -> None:
    kept_id, other, changes = entry.data[:3]
    was_there = state.memories.pop(other.id, None) is not None
    held = state.memories.get(kept_id)
    if entry.erased or (held is None and was_there):
        state.gone[other.id] = None
    elif held is not None:
        vector: dict[str, Any] = {"vector_seq": entry.seq} if "vector" in changes else {}
        changed = replace(held, **changes, **vector, body=entry.seq, blank=(), updated_ns=entry.time_ns)
        state.memories[kept_id] = changed


def _unmerged(state: Shared, entry: Entry) -> None:
    kept_id, other, seq, changes, texts = entry.data
    state.apart[seq] = None
    held = state.memories.get(kept_id)
    if entry.erased:
        if held is not None and held.body == seq:
            state.lose(kept_id)
        if other is not None:
            state.gone[other.id] = None
        return
    if held is not None:
        body: dict[str, Any] = texts | ({"body": entry.seq, "blank": ()} if texts else {})
        state.memories[kept_id] = replace(held, **(body | changes), updated_ns=entry.time_ns)
    if other is not None:
        state.memories[other.id] = replace(other, body=entry.seq, vector_seq=entry.seq, blank=())


def _reviewed(state: Shared, entry: Entry) -> None:
    fact_id, status = entry.data
    held = state.memories.get(fact_id)
    if held is not None:
        state.memories[fact_id] = replace(held, status=status, updated_ns=entry.time_ns)


def _decayed(state: Shared, entry: Entry) -> None:
    for fact_id, importance, decayed_ns in entry.data:
        held = state.memories.get(fact_id)
        if held is not None:
            state.memories[fact_id] = replace(held, importance=importance, decayed_ns=decayed_ns)


def _recalled(state: Shared, entry: Entry) -> None:
    for fact_id in entry.data:
        held = state.memories.get(fact_id)
        if held is not None:
            times: dict[str, Any] = {"accessed_ns": entry.occurred_ns}
            state.memories[fact_id] = replace(held, access_count=held.access_count + 1, **times)


def _tried(state: Shared, entry: Entry) -> None:
    if not entry.erased:
        state.episodes = [*state.episodes, (entry.seq, *entry.data, entry.time_ns, entry.occurred_ns)]


EMPTY["project"] = Shared

FOLD |= {
    "remembered": _added,
    "rewritten": _updated,
    "forgotten": _forgotten,
    "emptied": _cleared,
    "joined": _merged,
    "parted": _unmerged,
    "reviewed": _reviewed,
    "decayed": _decayed,
    "recalled": _recalled,
    "tried": _tried,
}


def touches(entry: Entry, fact_id: str) -> bool:
    """Whether an entry may have changed a memory."""
    data = entry.data
    if entry.kind == "remembered":
        return bool(data.id == fact_id)
    if entry.kind in {"rewritten", "reviewed"}:
        return bool(data[0] == fact_id)
    if entry.kind in {"joined", "parted"}:
        return fact_id == data[0] or (data[1] is not None and fact_id == data[1].id)
    if entry.kind == "decayed":
        return fact_id in [row[0] for row in data]
    return entry.kind in {"forgotten", "recalled"} and fact_id in data


# What is decided.


def best(state: Shared, vector: Sequence[float]) -> tuple[Fact, float] | None:
    """The active memory that is most alike: of several the most important, then the oldest."""
    active = [(fact, cosine(vector, fact.vector)) for fact in state.memories.values() if fact.status == "active"]
    return max(active, key=lambda pair: (pair[1], pair[0].importance), default=None)


def union(words: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Keywords of both, in order."""
    return tuple(dict.fromkeys((*words, *others)))


def joint(text: str, other: str) -> str:
    """The text that says both."""
    return text if other in text else f"{text} | {other}"


def texts_of(held: Fact, changes: dict[str, Any]) -> dict[str, Any]:
    """What an event that changes a text carries of a memory: all of its texts, also those that it leaves."""
    names = ("content", "keywords", "metadata")
    if not changes.keys() & set(names):
        return {}
    return {name: changes.get(name, getattr(held, name)) for name in names}


def merge_changes(held: Fact, other: Fact) -> dict[str, Any]:
    """What a merge changes of the memory that is kept."""
    content = joint(held.content, other.content)
    changes: dict[str, Any] = {
        "content": content,
        "keywords": union(held.keywords, other.keywords),
        "importance": max(held.importance, other.importance),
        "metadata": held.metadata,
    }
    return changes | ({"vector": vector_of(content)} if content != held.content else {})


def scores(state: Shared, query: str, now_ns: int, *, has_recency: bool) -> dict[str, float]:
    """The score of every active memory of some importance, by the formula as it is written."""
    vector, words = vector_of(query), set(keywords_of(query))
    found: dict[str, float] = {}
    for fact in state.memories.values():
        if fact.status != "active" or fact.importance < 0.1:
            continue
        own = set(fact.keywords)
        jaccard = len(words & own) / len(words | own) if words | own else 0.0
        days = max(now_ns - fact.accessed_ns, 0) / DAY_NS
        recency = 0.15 / (1 + 0.1 * days) if has_recency else 0.0
        found[fact.id] = 0.40 * cosine(vector, fact.vector) + 0.25 * jaccard + 0.20 * fact.importance + recency
    return found
