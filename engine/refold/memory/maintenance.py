"""Maintenance of a project's memories: merges and their reversal, decay, pruning, compaction, new vectors."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from refold import checks
from refold.embedders import CachedEmbedder, Embedding, Vector, pack_vector
from refold.engine import batch as batches
from refold.engine import history, vectors
from refold.engine.conflicts import ANY
from refold.engine.origin import Origin
from refold.engine.transaction import Decide, Transaction, erased_count
from refold.entry import (
    ACTIVE,
    NO_VECTOR,
    EmbedderSwitched,
    Entry,
    MemoriesDecayed,
    MemoriesPruned,
    MemoryAdded,
    MemoryMerged,
    MemoryUnmerged,
    MemoryUpdated,
    VectorRenewed,
    entry_of,
    pack_entry,
    unpack_entry,
)
from refold.errors import InvalidInput, NotFound, StoreBusy, WrongVersion
from refold.event import Event, Recorded, Stamp, clock_of
from refold.fold import State
from refold.index.columns import DAY_NS, Array
from refold.index.index import Neighbour, ViewOptions
from refold.index.project import exact_cosine, unit
from refold.index.table import TableView
from refold.limits import CLOCK_BEHIND_NS, PAGE_MEMORIES_COUNT, REDO_COUNT_MAX, REEMBEDDED_PAGE_COUNT, VALUE_BYTES_MAX
from refold.memory.core import Core
from refold.memory.facts import (
    FactInput,
    ProjectStream,
    Stale,
    check_cosine,
    check_model,
    join_texts,
    join_words,
    refuse_twin,
)
from refold.memory.options import Options, Progress, check_embedder
from refold.memory.plans import EventPlan, PlannedWrite
from refold.memory.references import check_results
from refold.memory.search import look, pending_events
from refold.results import Outcome, Reembedded, Upserted
from refold.text import contradiction
from refold.views.episodes import EPISODES, Episodes, text_of
from refold.views.facts import FACTS, Facts, apply_merge, apply_unmerge, apply_update

T = TypeVar("T")


# Merges of memories that say the same.

UNCHANGED: Final = "nothing would change"
_NOWHERE: Final = Stamp(0, "", 0, 0, 0)


def join_vectors(
    embedding: Embedding, texts: list[str], model: str, pairs: Sequence[tuple[bytes, bytes]]
) -> list[Vector]:
    """Return the vectors of merged texts: embedded if the model is in use, else the directions midway between pairs."""
    if embedding.embedder.id == model:
        return embedding.of_all(texts)
    sums = [(one, unit(one) + unit(other)) for one, other in pairs]
    return [Vector(pack_vector(total) if total.any() else one, model) for one, total in sums]


class _Vectors(NamedTuple):
    """The vectors made before the decision: of the input, and of the merged text if there is one."""

    own: Vector
    text: str = ""
    merged: Vector | None = None


class _Upsert:
    """One upsert: its input, and the memory that it was merged with."""

    def __init__(self, stream: ProjectStream, given: FactInput, threshold: float, options: Options) -> None:
        self.stream = stream
        self.given = given
        self.threshold = threshold
        self.options = options
        self.entry_id = stream.core.engine.reader.new_id()
        self.match: Neighbour | None = None  # The memory that it was merged with, or would have been.
        self.unlike: tuple[Neighbour, str] | None = None  # A similar memory that contradicts the input, and the reason.
        self.is_decided = False  # Whether a decision was made, and not the answer of an earlier request given again.
        self._nearest_at: tuple[TableView, Neighbour | None] | None = None
        """The nearest memory in the state that was last searched; it is usually still the nearest at the decision."""

    def attempt(self) -> Upserted:
        self.match = self.unlike = None
        vectors = self._vectors()
        request = self.given.fingerprint("upsert", self.threshold)
        self.is_decided = False
        noted = self.stream.write(self._decide(vectors), request, self.options, origin=Origin(self.given.occurred_ns))
        return self._answer_again(request) if noted is None and not self.is_decided else self._result(noted)

    def _answer_again(self, request: tuple[Any, ...]) -> Upserted:
        """Return the result of an answered request that changed nothing; in its own batch, from the state of now."""
        stream, options = self.stream, self.options
        at = stream.core.unchanged_seq(stream.name, options.request_id, request)
        past = _Upsert(stream._replace(at=at), self.given, self.threshold, options)
        stream.core.read(stream.name, past._decide(past._vectors()), at)
        return past._result(None)

    def _vectors(self) -> _Vectors:
        embedding = self.stream.core.embedding_at(self.stream.at)
        own = embedding.of(self.given.content) if self.given.vector is None else self.given.vector
        is_twin = self.stream.read(self.given.find_twin) is not None
        nearest = None if is_twin else self._nearest(own)

        def merge(facts: Facts) -> tuple[str, str, bytes] | None:
            """Return the text that a merge must embed, with its model and the vector of the existing memory."""
            match = self._match(facts, own, nearest)
            text = "" if match is None else join_texts(match.entry.content, self.given.content)
            return None if match is None or text == match.entry.content else (text, facts.model, match.own.tobytes())

        change = self.stream.read(merge)
        if change is None:
            return _Vectors(own)
        text, model, vector = change
        if text == self.given.content:
            return _Vectors(own, text, own)
        return _Vectors(own, text, join_vectors(embedding, [text], model, [(vector, own.packed)])[0])

    def _nearest(self, vector: Vector) -> Neighbour | None:
        stream = self.stream
        stream.read(lambda facts: check_model((facts.model, facts.dim), vector, is_empty=not facts.count))
        view = look(stream)
        if view is None:
            return None
        if self._nearest_at is None or self._nearest_at[0] is not view.table:
            table = view.project.table
            check_model((table.model, table.dimensions), vector, is_empty=False)
            reader, sought = stream.core.engine.reader, (vector.packed, self.given.speaker, self.threshold)
            match = reader.index.guard(lambda: reader.indexes.nearest(view, *sought))
            self._nearest_at = view.table, match
        return self._nearest_at[1]

    def _match(self, facts: Facts, vector: Vector, nearest: Neighbour | None) -> Neighbour | None:
        """Return the memory to merge with: the one with the same content, else the nearest if it is similar enough."""
        check_model((facts.model, facts.dim), vector, is_empty=not facts.count)
        twin = self.given.find_twin(facts)
        if twin is not None:
            loader, pending = self.stream.core.engine.reader.indexes.loader, pending_events(self.stream.core)
            (row,) = loader.load([twin.vector_seq], pending=pending, dimensions=facts.dim)
            own = cast("Array", row)
            return Neighbour(twin, exact_cosine(own, unit(vector.packed)), own)
        if nearest is None or nearest.cosine <= self.threshold:
            return None
        reason = contradiction(nearest.entry.content, self.given.content)
        if reason is not None:
            self.unlike = nearest, reason
            return None
        text = join_texts(nearest.entry.content, self.given.content)
        is_taken = text != nearest.entry.content and facts.find_content(text, self.given.speaker) is not None
        return None if is_taken or len(text.encode()) > VALUE_BYTES_MAX else nearest

    def _decide(self, vectors: _Vectors) -> Decide:
        def decide(state: State) -> Event | None:
            self.is_decided, facts = True, state.part(FACTS)
            is_twin = self.given.find_twin(facts) is not None
            match = self._match(facts, vectors.own, None if is_twin else self._nearest(vectors.own))
            if match is None:
                return self.given.event(facts, self.entry_id, vectors.own)
            self.match = match
            return self._merge(facts, match, vectors)

        return decide

    def _merge(self, facts: Facts, match: Neighbour, vectors: _Vectors) -> Event | None:
        entry, given = match.entry, self.given.fields
        text = join_texts(entry.content, given.content)
        words, importance = join_words(entry.words, given.keywords), max(entry.importance, given.importance)
        if (text, words, importance) == (entry.content, entry.words, entry.importance) or entry.status != ACTIVE:
            return None
        vector = b""
        if text != entry.content:
            if vectors.merged is None or vectors.text != text:
                raise Stale
            vector = vectors.merged.packed
        return MemoryMerged(
            sources=given.sources if entry.body_seq in given.sources else (*given.sources, entry.body_seq),
            id=entry.id,
            other=self.entry_id,
            cosine=match.cosine,
            text=entry.content,
            other_text=given.content,
            content=text,
            keywords=words,
            importance=importance,
            extra=entry.extra,
            vector=vector,
            model=facts.model,
            incoming=pack_entry(entry_of(replace(given, id=self.entry_id), _NOWHERE)),
            other_vector=vectors.own.packed,
        )

    def _result(self, noted: Recorded | None) -> Upserted:
        match = self.match
        if noted is None and match is None:
            return Upserted("skipped", self.stream.read(self.given.find_twin), UNCHANGED)
        if noted is None:
            assert match is not None
            reason = UNCHANGED if match.entry.status == ACTIVE else f"the same memory is {match.entry.status}"
            return Upserted("skipped", match.entry, reason, match.cosine)
        event, stamp = noted
        if isinstance(event, MemoryAdded):
            entry = self.stream.deliver(entry_of(event, stamp))
            if self.unlike is None:
                return Upserted("inserted", entry)
            other, reason = self.unlike
            return Upserted("inserted", entry, f"{reason}: it is not what {other.entry.id} says", other.cosine)
        assert isinstance(event, MemoryMerged), event
        if match is None:
            return Upserted("merged", self.stream.entry_after(noted, event.id), None, event.cosine)
        return Upserted("merged", self.stream.deliver(apply_merge(match.entry, stamp, event)), None, event.cosine)


def upsert(stream: ProjectStream, given: FactInput, threshold: float | None, options: Options) -> Upserted:
    """Merge a memory into one that says nearly the same, or add it."""
    stream.check_writable()
    if not given.content.strip():
        return Upserted("skipped", None, "the content is empty")
    least = stream.core.embedding.merge_cosine if threshold is None else check_cosine(threshold)
    return stream.retry(_Upsert(stream, given, least, options).attempt)


# The reversal of a merge.


class _Merge(NamedTuple):
    """A merge to reverse: its event, its seq, and the two memories as they were before it."""

    event: MemoryMerged
    seq: int
    entry: Entry
    other: Entry | None
    """``None`` if only the text that the merge joined is left of it: it does not come back."""
    other_vector: bytes
    new_vector: bytes | None = None
    """The vector of the first memory's text by the current embedder, if the merge was made with an earlier one."""
    model: str = ""


def unmerge(stream: ProjectStream, seq: object, options: Options) -> list[Entry]:
    """Reverse a merge; return the memory that had absorbed the other one, and the other one if it is back."""
    stream.check_writable()
    given = getattr(seq, "seq", seq)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        checks.invalid(f"{checks.brief(seq)} is no seq of a merge; give the seq of a merged result, from history(id)")
    check_results(stream.core.engine, (seq.entry if isinstance(seq, Upserted) else seq,), (given,))
    return stream.retry(lambda: _unmerge_once(stream, given, options))


def _unmerge_once(stream: ProjectStream, seq: int, options: Options) -> list[Entry]:
    sources = stream.core.sources(options.sources)
    merge = _merge_at(stream, seq)
    if stream.read(lambda facts: merge.event.id in facts.entries and seq not in facts.unmerged):
        model = stream.read(lambda facts: facts.model)
        is_bare = merge.other is not None and not merge.other_vector
        if model != merge.event.model or is_bare:  # The embedder was switched since.
            texts = [entry.content for entry in (merge.entry, merge.other) if entry is not None]
            own, *others = stream.core.embedding.of_all(texts)
            stream.read(lambda facts: check_model((facts.model, facts.dim), own, is_empty=False))
            packed = others[0].packed if others else b""
            merge = merge._replace(other_vector=packed, new_vector=own.packed, model=model)
    if merge.new_vector is None or batches.active_batch(stream.core.engine) is not None:
        return _write_unmerge(stream, merge, sources, options)
    try:
        with batches.Batch(stream.core.engine):
            return _write_unmerge(stream, merge, sources, options)
    except WrongVersion as error:
        if options.expected != ANY:
            raise
        raise Stale from error


def _merge_at(stream: ProjectStream, seq: int) -> _Merge:
    core = stream.core
    recorded = next(iter(core.engine.reader.events(core.key(stream.name), seq - 1, seq)), None)
    event = None if recorded is None else recorded.event
    if recorded is None or not isinstance(event, MemoryMerged):
        raise NotFound(f"{stream.name} has no merge at seq {seq}; history(id) shows the merges of a memory")
    stamp = recorded.stamp
    if stamp.erased:
        raise InvalidInput(f"the merge at seq {seq} was erased, so that nothing is left of what was before it")

    def query(state: State) -> tuple[Entry | None, Entry | None]:
        entries = state.part(FACTS).entries
        return entries.get(event.id), entries.get(event.other)

    entry, other = core.read_written(stream.name, query, seq - 1)
    if entry is None:
        raise stream.not_found(event.id)
    if other is not None:
        vector = core.engine.reader.loader.vectors([other.vector_seq])[0] if other.vector_seq else b""
        return _Merge(event, seq, entry, other, vector)
    if event.incoming is None:  # It existed, and was erased since.
        return _Merge(event, seq, entry, None, b"")
    other = unpack_entry(event.other, event.incoming, 0)
    times = dict.fromkeys(["created_ns", "updated_ns"], clock_of(stamp))
    other = replace(other, **times, accessed_ns=stamp.occurred_ns, occurred_ns=stamp.occurred_ns)
    return _Merge(event, seq, entry, other, event.other_vector)


def _write_unmerge(stream: ProjectStream, merge: _Merge, sources: tuple[int, ...], options: Options) -> list[Entry]:
    request, before = ("unmerge", merge.seq), list[Entry]()

    def decide(state: State) -> Event | None:
        facts = state.part(FACTS)
        entry = facts.entries.get(merge.event.id)
        if entry is None:
            raise NotFound(f"the memory {merge.event.id} that took another one in is not there any more")
        if merge.seq in facts.unmerged:
            raise InvalidInput(f"the merge at seq {merge.seq} was taken apart already")
        if merge.new_vector is not None and facts.model != merge.model:
            raise Stale
        before.append(entry)
        return _unmerge_event(facts, entry, merge, sources)

    noted = stream.write(decide, request, options)
    assert noted is not None, "the reversal of a merge always appends"
    event, stamp = noted
    assert isinstance(event, MemoryUnmerged), event
    back = list[Entry]()
    if event.other and merge.other is not None:
        back.append(replace(merge.other, body_seq=stamp.seq, vector_seq=stamp.seq, blank=()))
    if not before:  # The request was answered before.
        return [stream.entry_after(noted, event.id), *map(stream.deliver, back)]
    entry = apply_unmerge(before[-1], stamp, event)
    if merge.new_vector is not None and entry.content != before[-1].content:
        update = MemoryUpdated((stamp.seq,), entry.id, ("vector",), vector=merge.new_vector, model=merge.model)
        another = stream.write(update, request, Options())
        assert another is not None, "a vector is always recorded"
        entry = apply_update(entry, another[1], update)
    return [stream.deliver(each) for each in (entry, *back)]


def _unmerge_event(facts: Facts, entry: Entry, merge: _Merge, sources: tuple[int, ...]) -> MemoryUnmerged:
    before, other, after = merge.entry, merge.other, merge.event
    content = before.content if entry.content == after.content else entry.content
    if content != entry.content:
        refuse_twin(facts, replace(entry, content=content))
    words = before.words if entry.words == after.keywords else entry.words
    has_body = (content, words) != (entry.content, entry.words)
    has_vector = merge.new_vector is None and content != entry.content
    twin = None if other is None else facts.find_content(other.content, other.speaker)
    returned = other if twin is None or (twin.id == entry.id and content != twin.content) else None
    return MemoryUnmerged(
        sources=tuple(dict.fromkeys((*sources, merge.seq, *((entry.body_seq,) if has_body else ())))),
        id=entry.id,
        other=after.other if returned else "",
        prior=merge.seq,
        kept_vector=before.vector_seq if has_vector else 0,
        origin=returned.origin if returned else 0,
        content=content if has_body else None,
        keywords=words if has_body else (),
        importance=before.importance if entry.importance == after.importance != before.importance else None,
        extra=entry.extra if has_body else None,
        incoming=pack_entry(returned) if returned else None,
        vector=merge.other_vector if returned else b"",
        model=facts.model if returned else "",
    )


# Decay, pruning, compaction: outcomes of several events, decided on the current memories without a lock.

WEEKLY: Final = 0.95
"""The share of a memory's importance that remains after a week without a recall."""


class _ProjectMemories(NamedTuple):
    """The memories of a project at one moment, with their vectors if they are needed."""

    entries: dict[str, Entry]
    version: int
    model: str
    vectors: Any = {}  # noqa: RUF012 - never mutated


_MemoriesPlan = Callable[[_ProjectMemories], Sequence[Event]]


def decay(stream: ProjectStream, options: Options, *, dry_run: bool) -> Outcome:
    """Lower importance by the days since the last access or since the memory was added; no day counts twice."""
    sources = stream.core.sources(options.sources)
    now_ns = stream.core.now_ns(stream.at)

    def plan(memories: _ProjectMemories) -> Sequence[Event]:
        rows = [row for entry in memories.entries.values() if (row := _decay_row(entry, now_ns)) is not None]
        events = list[Event]()
        for page, total in _pages(rows):
            ids, importances, decayed = zip(*page, strict=True)
            events.append(MemoriesDecayed(sources, ids, importances, decayed, total))
        return events

    return _maintain(stream, ("decay",), plan, options, dry_run=dry_run)


def _decay_row(entry: Entry, now_ns: int) -> tuple[str, float, int] | None:
    """Return id, new importance, and the end of the days counted now; ``None`` if nothing decays."""
    if entry.accessed_ns is None or entry.created_ns is None or not entry.importance:
        return None
    # What happened long ago and was added today has had no time to be used. A time far ahead is that of a wrong clock.
    times = (entry.accessed_ns, entry.decayed_ns, entry.created_ns)
    known = [time_ns for time_ns in times if time_ns - now_ns <= CLOCK_BEHIND_NS]
    if len(known) < len(times) and not (entry.decayed_ns and entry.decayed_ns in known):
        return entry.id, entry.importance, now_ns  # Nothing says for how long it lay: count from now on.
    since_ns = max(known)
    days = (now_ns - since_ns) // DAY_NS
    if days <= 0:
        return None
    return entry.id, entry.importance * WEEKLY ** (days / 7), since_ns + days * DAY_NS


def prune(stream: ProjectStream, min_importance: object, options: Options, *, dry_run: bool) -> Outcome:
    """Remove the memories whose importance is below a bound."""
    least = checks.fraction(min_importance, "min_importance")
    sources = stream.core.sources(options.sources)

    def plan(memories: _ProjectMemories) -> Sequence[Event]:
        ids = [entry.id for entry in memories.entries.values() if entry.importance < least]
        return [MemoriesPruned(sources, tuple(page), total) for page, total in _pages(ids)]

    return _maintain(stream, ("prune", least), plan, options, dry_run=dry_run)


def _pages(rows: list[T]) -> Iterator[tuple[list[T], int]]:
    """Yield pages, each with the number of rows up to its end."""
    for begin in range(0, len(rows), PAGE_MEMORIES_COUNT):
        page = rows[begin : begin + PAGE_MEMORIES_COUNT]
        yield page, begin + len(page)


def compact(stream: ProjectStream, threshold: object, options: Options, *, dry_run: bool) -> Outcome:
    """Merge the active memories that are more similar than a threshold, until none are."""
    embedding = stream.core.embedding
    least = embedding.compact_cosine if threshold is None else check_cosine(threshold)
    sources = stream.core.sources(options.sources)

    def plan(memories: _ProjectMemories) -> Sequence[Event]:
        return _Compaction(embedding, memories, least, sources).events()

    return _maintain(stream, ("compact", least), plan, options, dry_run=dry_run, with_vectors=True)


class _Compaction:
    """A compaction: rounds of merges, each using the vectors of the texts that the round before it left."""

    def __init__(
        self, embedding: Embedding, memories: _ProjectMemories, threshold: float, sources: tuple[int, ...]
    ) -> None:
        self._embedding = embedding
        self._model = memories.model
        self._threshold = threshold
        self._sources = sources
        self._contents = {entry.content for entry in memories.entries.values()}
        active = [entry for entry in memories.entries.values() if entry.status == ACTIVE]
        self._entries = sorted(active, key=lambda entry: -entry.importance)
        self._vectors: dict[str, Any] = memories.vectors
        self._events: list[MemoryMerged] = []
        self._texts: dict[str, tuple[int, ...]] = {}
        """Id -> the seqs of all the texts that were merged into it, its own first."""

    def events(self) -> Sequence[Event]:
        changed = {entry.id for entry in self._entries}
        while changed:
            changed = self._round(changed)
        return self._events

    def _round(self, changed: set[str]) -> set[str]:
        """Merge similar memories among pairs that were not compared yet; return the ids whose vector changed."""
        if not self._entries:
            return set()
        import numpy  # noqa: PLC0415 - imported for the first vector

        from refold.index.search import pairs  # noqa: PLC0415 - as numpy

        begin, entries = len(self._events), list(self._entries)
        matrix = numpy.stack([self._vectors[entry.id] for entry in entries])
        is_gone = numpy.zeros(len(entries), numpy.bool_)
        is_changed = numpy.array([entry.id in changed for entry in entries])
        for row, later in pairs(matrix, self._threshold, is_gone, is_changed):
            places: list[int] = later.tolist()
            cosines = {place: exact_cosine(matrix[row], matrix[place]) for place in places}
            others = [place for place, cosine in cosines.items() if cosine > self._threshold]
            entries[row], taken = self._merge(entries[row], [(entries[place], cosines[place]) for place in others])
            is_gone[[place for place in others if entries[place].id in taken]] = True
        self._entries = [entry for entry, gone in zip(entries, is_gone.tolist(), strict=True) if not gone]
        return self._embed(begin)

    def _merge(self, entry: Entry, others: Sequence[tuple[Entry, float]]) -> tuple[Entry, set[str]]:
        taken: set[str] = set()
        for other, cosine in others:
            text = join_texts(entry.content, other.content)
            is_taken = text not in {entry.content, other.content} and text in self._contents
            is_other = is_taken or entry.speaker != other.speaker
            if is_other or len(text.encode()) > VALUE_BYTES_MAX or contradiction(entry.content, other.content):
                continue
            texts = self._texts[entry.id] = (*self._texts_of(entry), *self._texts_of(other))
            words, importance = join_words(entry.words, other.words), max(entry.importance, other.importance)
            self._events.append(
                MemoryMerged(
                    sources=tuple(dict.fromkeys((*self._sources, *texts))),
                    id=entry.id,
                    other=other.id,
                    cosine=cosine,
                    text=entry.content,
                    other_text=other.content,
                    content=text,
                    keywords=words,
                    importance=importance,
                    extra=entry.extra,
                    model=self._model,
                )
            )
            entry = replace(entry, content=text, words=words, importance=importance)
            taken.add(other.id)
            self._contents.add(text)
        return entry, taken

    def _texts_of(self, entry: Entry) -> tuple[int, ...]:
        return self._texts.get(entry.id, (entry.body_seq,))

    def _embed(self, begin: int) -> set[str]:
        """Give each merge of this round the vector of its text, because any of them can be reversed or erased.

        The next round compares the vectors of the last merges. Returns the ids whose vector changed.
        """
        new = ((place, event) for place, event in enumerate(self._events) if place >= begin)
        events = {place: event for place, event in new if event.content != event.text}
        joined = {place: event for place, event in events.items() if event.content != event.other_text}
        pairs = [(self._vectors[event.id].tobytes(), self._vectors[event.other].tobytes()) for event in joined.values()]
        texts = [event.content for event in joined.values()]
        made = join_vectors(self._embedding, texts, self._model, pairs)
        vectors = {place: self._vectors[event.other].tobytes() for place, event in events.items()}
        vectors |= zip(joined, (vector.packed for vector in made), strict=True)
        for place, event in events.items():
            self._events[place] = replace(event, vector=vectors[place])
            self._vectors[event.id] = unit(vectors[place])
        return {event.id for event in events.values()}


def _maintain(
    stream: ProjectStream,
    request: tuple[Any, ...],
    plan: _MemoriesPlan,
    options: Options,
    *,
    dry_run: bool,
    with_vectors: bool = False,
) -> Outcome:
    if checks.flag(dry_run, "dry_run"):
        return _outcome(plan(_memories(stream, with_vectors=with_vectors)))
    stream.check_writable()

    def make() -> EventPlan:
        memories = _memories(stream, with_vectors=with_vectors)
        return EventPlan([(stream.name, event) for event in plan(memories)], {stream.name: memories.version})

    def attempt() -> Outcome:
        events = PlannedWrite(stream.core, stream.name, make, request, options).run()
        if events is None:
            raise Stale
        return _outcome(events)

    return stream.retry(attempt)


def _memories(stream: ProjectStream, *, with_vectors: bool) -> _ProjectMemories:
    core = stream.core

    def query(facts: Facts) -> _ProjectMemories:
        return _ProjectMemories(dict(facts.entries), core.version(stream.name) if stream.at is None else 0, facts.model)

    if not with_vectors:
        return stream.read(query)
    look(stream, ViewOptions(own_rows=True))  # Fills missing rows without holding the lock.
    with core.engine.reader.state_lock:
        memories, view = stream.read(query), look(stream, ViewOptions(own_rows=True))
        rows = {} if view is None else dict(view.project.rows)
    if view is None:
        return memories
    matrix = view.table.columns.matrix
    return memories._replace(vectors={entry_id: matrix[rows[entry_id]] for entry_id in memories.entries})


def _outcome(events: Iterable[Event]) -> Outcome:
    changed = removed = merges = 0
    for event in events:
        changed += len(event.ids) if isinstance(event, MemoriesDecayed) else 0
        removed += len(event.ids) if isinstance(event, MemoriesPruned) else 0
        merges += isinstance(event, MemoryMerged)
    return Outcome(changed=changed, removed=removed, merged=merges)


# New vectors by another embedder for everything in a memory: made in pages while it is in use, switched to at once.
#
# A page is one commit. Vectors made before a stop, a kill or an error of the embedder wait in the log, and the next
# call with the same embedder continues from there.

_FREE_ATTEMPTS_COUNT: Final = 2  # Attempts before other writers of this process must wait.


class _BacklogText(NamedTuple):
    """A text to embed: its id, the seq of the vector it has, and the seq of the event that holds it."""

    id: str
    text: str
    prior: int
    body_seq: int


class _Backlog(NamedTuple):
    """The texts of a project to embed, the version they were read at, and whether anything must change."""

    texts: Sequence[_BacklogText]
    version: int
    is_behind: bool


class _Reembedding:
    """One call of ``reembed``: the embedder, and the progress."""

    def __init__(self, core: Core, embedding: Embedding, progress: Progress) -> None:
        self.core = core
        self.embedding = embedding
        self.embedder: CachedEmbedder = embedding.embedder
        self.progress = progress
        self.is_exclusive = False  # Other writers wait then; ``progress`` is not called, because it might commit.
        self.made = self.reported = self.switched = 0

    def run(self) -> bool:
        """Embed and switch until nothing is left; return whether it got that far."""
        for attempt in range(REDO_COUNT_MAX):
            if attempt < _FREE_ATTEMPTS_COUNT:
                is_done = self._run_once()
            else:
                # Other writers never pause, so they must wait now; a page or two are left.
                with self.core.engine.exclusive():
                    self.is_exclusive = True
                    is_done = self._run_once()
            if is_done:
                return True
        return False

    def _run_once(self) -> bool:
        core = self.core
        names = history.ids(core.engine, core.branch, "project")
        backlogs = ((stream, self._backlog(stream)) for stream in (f"project/{name}" for name in names))
        counts = {stream: len(backlog.texts) for stream, backlog in backlogs if backlog.is_behind}
        if counts:
            self._embed(counts)
            core.switch(self.embedding, partial(self._switch, counts))
        return not counts

    def report(self, whole: int) -> None:
        if self.progress is not None and self.reported < self.made:
            self.reported = self.made
            self.progress(self.made, whole)

    def _commit(self, pending: Transaction) -> bool:
        """Commit a transaction; return ``False`` if another writer changed a stream that it read."""
        engine = self.core.engine
        try:
            engine.commit(pending, is_exclusive=self.is_exclusive)
        except WrongVersion:
            return False
        return True

    def _backlog(self, stream: str) -> _Backlog:
        core = self.core

        def query(state: State) -> _Backlog:
            facts, episodes = state.part(FACTS), state.part(EPISODES)
            entries = facts.entries.values()
            rows = (_BacklogText(entry.id, entry.content, entry.vector_seq, entry.body_seq) for entry in entries)
            texts = self._texts_to_embed(facts, rows)
            pairs = zip(episodes.by_seq.items(), episodes.vector_seqs(), strict=True)
            rows = (_BacklogText(episode.id, text_of(episode), vector_seq, seq) for (seq, episode), vector_seq in pairs)
            texts += self._texts_to_embed(episodes, rows)
            is_behind = bool(texts or self._pending_ids(facts) or self._pending_ids(episodes))
            return _Backlog(texts, core.engine.reader.version(core.key(stream)), is_behind)

        return core.read_written(stream, query)

    def _pending_ids(self, part: Facts | Episodes) -> Collection[str]:
        return part.coming.of(self.embedder.id, self.embedder.dim)

    def _texts_to_embed(self, part: Facts | Episodes, texts: Iterable[_BacklogText]) -> list[_BacklogText]:
        is_other = (part.model, part.dim) != (self.embedder.id, self.embedder.dim)
        waiting = self._pending_ids(part)
        return [text for text in texts if (is_other or text.prior == NO_VECTOR) and text.id not in waiting]

    def _embed(self, counts: dict[str, int]) -> None:
        """Embed the texts of projects into the log, one page at a time."""
        whole = self.made + sum(counts.values())
        for stream in counts:
            # One project at a time: all texts of all projects at once could exceed `memory_bytes`.
            before = erased_count(self.core.engine.reader)
            texts = self._backlog(stream).texts
            for begin in range(0, len(texts), REEMBEDDED_PAGE_COUNT):
                page = texts[begin : begin + REEMBEDDED_PAGE_COUNT]
                if not self._write_page(stream, page, before):
                    break  # Something was erased, and its vector must not come back: the next attempt reads anew.
                self.made += len(page)
                if not self.is_exclusive:
                    self.report(whole)

    def _write_page(self, stream: str, page: Sequence[_BacklogText], erased_before: int) -> bool:
        """Write the vectors of a page, unless something was erased since it was read; return whether it did."""
        vectors = self.embedder.embed([text.text for text in page])
        pending = Transaction(self.core.engine.reader)
        pending.erased_count = erased_before
        for text, sources, row in zip(page, self._sources(page), vectors, strict=True):
            event = VectorRenewed(sources, text.id, text.prior, pack_vector(row), self.embedder.id)
            pending.insert(self.core.key(stream), event)
        return self._commit(pending)

    def _sources(self, page: Sequence[_BacklogText]) -> Iterator[tuple[int, ...]]:
        """Yield the sources of each vector, so that erasing the text reaches it.

        The source is the event of the previous vector, which also holds the text or is derived from it. If the previous
        vector was erased, or the caller gave it for the text of another event, it does not lead to the text: then the
        event that holds the text is cited instead, or as well.
        """
        priors = sorted({text.prior for text in page} - {NO_VECTOR})
        known = dict(zip(priors, self.core.engine.reader.loader.recorded_events(priors), strict=True))
        for text in page:
            event = known[text.prior].event if text.prior in known else None
            if event is None:
                yield (text.body_seq,)
            elif isinstance(event, MemoryUpdated) and event.content is None:
                yield (text.prior, text.body_seq)
            else:
                yield (text.prior,)

    def _switch(self, streams: Collection[str]) -> int | None:
        """Switch to the waiting vectors in one commit; return its first seq, ``None`` if others wrote meanwhile."""
        pending = Transaction(self.core.engine.reader)
        for stream in streams:
            backlog = self._backlog(stream)
            if backlog.texts:
                return None
            key = self.core.key(stream)
            pending.reads[key] = backlog.version
            pending.insert(key, EmbedderSwitched((), self.embedder.id, self.embedder.dim))
        last: list[int] = []
        pending.callbacks.append((-len(pending.events), lambda stamp: last.append(stamp.seq)))
        if not self._commit(pending):
            return None
        self.switched += len(streams)
        return last[0] - len(streams) + 1


def reembed(core: Core, embedder: object, progress: Progress) -> Reembedded:
    """Give everything in every project a vector of an embedder, ``None`` for the one in use, and switch to it.

    Messages get theirs in the background, once they are searched; a call on the main line removes those of other
    embedders.

    Raises what the embedder raises; the vectors made until then wait for the next call. Raises ``StoreBusy`` if other
    writers never pause.
    """
    batches.check_no_batch(core.engine, "embedding a memory anew")
    core.engine.reader.check_writable()
    chosen = check_embedder(embedder)
    embedding = core.embedding if chosen is None else Embedding(chosen)
    work = _Reembedding(core, embedding, progress)
    is_done = work.run()
    work.report(work.made)
    if not is_done:
        raise StoreBusy(
            f"the projects were written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; call again"
        )
    if not work.switched and chosen is not None:
        core.switch(embedding, lambda: core.engine.reader.head)
    if not core.branch:
        model = vectors.VectorModel.of(work.embedder.id, work.embedder.dim)
        for page in vectors.other_model_deletions(core.engine.reader.log, model):
            core.engine.writer.store(page)
    return Reembedded(work.embedder.id, work.embedder.dim, work.switched, work.made)
