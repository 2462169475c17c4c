"""Maintenance of a project's memories: merges and their reversal, decay, pruning, compaction."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.transaction import ANY, Decide, Noted, Pending, erased_count
from refold.entry import (
    ACTIVE,
    Entry,
    MemoriesDecayed,
    MemoriesPruned,
    MemoryAdded,
    MemoryMerged,
    MemoryUnmerged,
    MemoryUpdated,
    carried,
    carried_back,
    entry_of,
)
from refold.errors import InvalidInput, NotFound, WrongVersion
from refold.event import Event, Stamp
from refold.fold import State
from refold.index.columns import Array
from refold.index.index import Neighbour, Wanted
from refold.index.project import exact, unit
from refold.index.rows import Moment
from refold.limits import KEYWORDS_COUNT_MAX, PAGE_MEMORIES_COUNT, VALUE_BYTES_MAX
from refold.memory.facts import Draft, Place, Stale, added, fraction, missing, refuse_twin, settled
from refold.memory.options import Options
from refold.memory.search import look, pending_events
from refold.memory.vectors import Embedding, Vector, fitting
from refold.results import Outcome, Upserted
from refold.views.facts import FACTS, Facts, merged, unmerged, updated

# Merging memories that say the same, and taking a merge apart.

JOINT = " | "
EMPTY = "the content is empty"
UNCHANGED = "nothing would change"
_NOWHERE = Stamp(0, "", 0, 0, 0)


def joined(text: str, other: str) -> str:
    """Return the text that says what two texts say: the first if it contains the other, else both."""
    return text if other in text else text + JOINT + other


def united(words: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keywords of both, each once, in their order."""
    return tuple(dict.fromkeys((*words, *others)))[:KEYWORDS_COUNT_MAX]


class _Prepared(NamedTuple):
    """What was embedded before the turn: the draft, and the merged text if there was one."""

    vector: Vector
    text: str = ""
    joint: Vector | None = None


class _Upsert:
    """One upsert: what is wanted, and what became of it."""

    def __init__(self, place: Place, draft: Draft, threshold: float, options: Options) -> None:
        self.place = place
        self.draft = draft
        self.threshold = threshold
        self.options = options
        self.entry_id = place.door.engine.new_id()
        self.found: list[Neighbour] = []
        """What it was merged with, or would have been."""
        self._seen: tuple[Moment, Neighbour | None] | None = None
        """What was found at the moment that was looked at last: mostly nothing has changed when the turn has come."""

    def attempt(self) -> Upserted:
        """Prepare, decide, and tell what became of it."""
        place, draft = self.place, self.draft
        self.found.clear()
        prepared = self._prepared()
        asked = draft.asked("upsert", self.threshold)
        noted = place.note(self._deciding(prepared), asked, self.options, occurred_ns=draft.occurred_ns)
        return self._told(noted)

    def _prepared(self) -> _Prepared:
        """Embed the draft, and the text that it would be merged into."""
        embedding = self.place.door.embedding
        vector = embedding.of(self.draft.content) if self.draft.vector is None else self.draft.vector
        is_same = self.place.read(lambda facts: facts.same(self.draft.content) is not None)
        best = None if is_same else self._best(vector)
        found = self.place.read(lambda facts: self._plan(facts, vector, best))
        if found is None:
            return _Prepared(vector)
        text, model, own = found
        return _Prepared(vector, text, embedding.joined(text, model, (own, vector.packed)))

    def _best(self, vector: Vector) -> Neighbour | None:
        """Return the active memory that is most alike, looked for without any lock."""
        place = self.place
        place.read(lambda facts: fitting((facts.model, facts.dim), vector, is_empty=not facts.entries))
        sight = look(place)
        if sight is None:
            return None
        if self._seen is None or self._seen[0] is not sight.moment:
            shelf = sight.stock.shelf
            fitting((shelf.model, shelf.dimensions), vector, is_empty=False)
            engine = place.door.engine
            match = engine.kept.whole(lambda: engine.similarity.match(sight, vector.packed))
            self._seen = sight.moment, match
        return self._seen[1]

    def _plan(self, facts: Facts, vector: Vector, best: Neighbour | None) -> tuple[str, str, bytes] | None:
        """Return the text that a merge would have to embed, with its model and the vector of what is kept."""
        match = self._match(facts, vector, best)
        if match is None:
            return None
        text = joined(match.entry.content, self.draft.content)
        if text == match.entry.content:
            return None
        return text, facts.model, match.own.tobytes()

    def _match(self, facts: Facts, vector: Vector, best: Neighbour | None) -> Neighbour | None:
        """Return the memory to merge with: that of the same content, else the most alike if it is alike enough."""
        fitting((facts.model, facts.dim), vector, is_empty=not facts.entries)
        same = facts.same(self.draft.content)
        if same is not None:
            own = self._vector_of(same, facts.dim)
            return Neighbour(same, exact(own, unit(vector.packed)), own)
        if best is None or best.cosine <= self.threshold:
            return None
        text = joined(best.entry.content, self.draft.content)
        is_taken = text != best.entry.content and facts.same(text) is not None
        return None if is_taken or len(text.encode()) > VALUE_BYTES_MAX else best

    def _vector_of(self, entry: Entry, dimensions: int) -> Array:
        units, pending = self.place.door.engine.similarity.units, pending_events(self.place.door)
        (own,) = units.load([entry.vector_seq], pending=pending, dimensions=dimensions)
        return cast("Array", own)

    def _deciding(self, prepared: _Prepared) -> Decide:
        def decide(state: State) -> Event | None:
            facts = state.part(FACTS)
            is_same = facts.same(self.draft.content) is not None
            match = self._match(facts, prepared.vector, None if is_same else self._best(prepared.vector))
            if match is None:
                return added(facts, self.draft, self.entry_id, prepared.vector)
            self.found.append(match)
            return self._merge(facts, match, prepared)

        return decide

    def _merge(self, facts: Facts, match: Neighbour, prepared: _Prepared) -> Event | None:
        held, draft = match.entry, self.draft
        text = joined(held.content, draft.content)
        words, importance = united(held.words, draft.keywords), max(held.importance, draft.importance)
        if (text, words, importance) == (held.content, held.words, held.importance) or held.status != ACTIVE:
            return None
        vector = b""
        if text != held.content:
            if prepared.joint is None or prepared.text != text:
                raise Stale
            vector = prepared.joint.packed
        sources = draft.sources if held.body_seq in draft.sources else (*draft.sources, held.body_seq)
        incoming = carried(entry_of(draft.event(self.entry_id, b"", ""), _NOWHERE))
        return MemoryMerged(
            sources,
            held.id,
            self.entry_id,
            match.cosine,
            held.content,
            draft.content,
            text,
            words,
            importance,
            held.extra,
            vector,
            facts.model,
            incoming,
            prepared.vector.packed,
        )

    def _told(self, noted: Noted | None) -> Upserted:
        if noted is None:
            if not self.found:
                return Upserted("skipped", self.place.read(lambda facts: facts.same(self.draft.content)), UNCHANGED)
            match = self.found[-1]
            reason = UNCHANGED if match.entry.status == ACTIVE else f"the same memory is {match.entry.status}"
            return Upserted("skipped", match.entry, reason, match.cosine)
        event, stamp = noted
        if isinstance(event, MemoryAdded):
            return Upserted("inserted", self.place.handed_out(entry_of(event, stamp)))
        assert isinstance(event, MemoryMerged), event
        kept = merged(self.found[-1].entry, stamp, event) if self.found else self.place.after(noted, event.id)
        return Upserted("merged", self.place.handed_out(kept), None, event.cosine)


def upsert(place: Place, draft: Draft, threshold: float | None, options: Options) -> Upserted:
    """Merge a memory into the one that says nearly the same, or add it."""
    place.check_writable()
    if not draft.content.strip():
        return Upserted("skipped", None, EMPTY)
    wanted = place.door.embedding.merge_cosine if threshold is None else cosine(threshold)
    return settled(_Upsert(place, draft, wanted, options).attempt, place)


def cosine(value: object) -> float:
    """Return a threshold of cosines."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1 <= value <= 1:
        checks.invalid(f"threshold is {checks.shown(value)}; give a number from -1 to 1")
    return float(value)


# Taking a merge apart.


class _Before(NamedTuple):
    """The two memories of a merge as they were before it, and the other one's vector."""

    kept: Entry
    other: Entry
    vector: bytes
    own: bytes | None = None
    """The vector of the kept one's text by the embedder of today, if the merge was of another one's days."""
    model: str = ""


def unmerge(place: Place, seq: object, options: Options) -> list[Entry]:
    """Take a merge apart; return the memory that had taken the other one in, and that one if it is back."""
    place.check_writable()
    merge_seq = _merge_seq(seq)
    return settled(lambda: _unmerge_once(place, merge_seq, options), place)


def _unmerge_once(place: Place, merge_seq: int, options: Options) -> list[Entry]:
    cited = place.door.sources(options.sources)
    merge, before = _merge_at(place, merge_seq)
    if place.read(lambda facts: merge.id in facts.entries and merge_seq not in facts.unmerged):
        before = _fitted(place, merge, before)
    if before.own is None or batches.active(place.door.engine) is not None:
        return _parted(place, (merge, merge_seq), before, cited, options)
    try:
        with batches.Batch(place.door.engine):
            return _parted(place, (merge, merge_seq), before, cited, options)
    except WrongVersion as error:
        if options.expected != ANY:
            raise
        raise Stale from error


def _fitted(place: Place, merge: MemoryMerged, before: _Before) -> _Before:
    """Return what was before a merge with vectors that fit those of today: made anew if the embedder was switched."""
    model = place.read(lambda facts: facts.model)
    if model == merge.model and before.vector:
        return before
    own, other = place.door.embedding.of_all([before.kept.content, before.other.content])
    place.read(lambda facts: fitting((facts.model, facts.dim), own, is_empty=False))
    return before._replace(vector=other.packed, own=own.packed, model=model)


def _parted(
    place: Place, merging: tuple[MemoryMerged, int], before: _Before, cited: tuple[int, ...], options: Options
) -> list[Entry]:
    merge, merge_seq = merging
    seen: list[Entry] = []

    def decide(state: State) -> Event | None:
        facts = state.part(FACTS)
        held = facts.entries.get(merge.id)
        if held is None:
            raise NotFound(f"the memory {merge.id} that took another one in is not there any more")
        if merge_seq in facts.unmerged:
            raise InvalidInput(f"the merge at seq {merge_seq} was taken apart already")
        if before.own is not None and facts.model != before.model:
            raise Stale
        seen.append(held)
        return _unmerging(facts, held, (merge, merge_seq), before, cited)

    noted = place.note(decide, ("unmerge", merge_seq), options)
    assert noted is not None, "taking a merge apart always appends"
    event, stamp = noted
    assert isinstance(event, MemoryUnmerged), event
    kept = unmerged(seen[-1], stamp, event) if seen else place.after(noted, event.id)
    if seen and before.own is not None and kept.content != seen[-1].content:
        renewed = MemoryUpdated((stamp.seq,), kept.id, ("vector",), vector=before.own, model=before.model)
        another = place.note(renewed, ("unmerge", merge_seq), Options())
        assert another is not None, "a vector is always recorded"
        kept = updated(kept, another[1], renewed)
    back = [] if not event.other else [replace(before.other, body_seq=stamp.seq, vector_seq=stamp.seq, blank=())]
    return [place.handed_out(entry) for entry in (kept, *back)]


def _merge_seq(seq: object) -> int:
    found = getattr(seq, "seq", seq)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        checks.invalid(f"{checks.shown(seq)} is no seq of a merge; give the seq of a merged result, from history(id)")
    return found


def _merge_at(place: Place, seq: int) -> tuple[MemoryMerged, _Before]:
    """Return the merge at a seq, and its memories as they were."""
    door = place.door
    recorded = next(iter(door.engine.events(door.key(place.stream), seq - 1, seq)), None)
    merge = None if recorded is None else recorded.event
    if recorded is None or not isinstance(merge, MemoryMerged):
        raise NotFound(f"{place.stream} has no merge at seq {seq}; history(id) shows the merges of a memory")
    stamp = recorded.stamp
    if stamp.erased:
        raise InvalidInput(f"the merge at seq {seq} was erased, so that nothing is left of what was before it")

    def query(state: State) -> tuple[Entry | None, Entry | None]:
        entries = state.part(FACTS).entries
        return entries.get(merge.id), entries.get(merge.other)

    kept, other = door.read_written(place.stream, query, seq - 1)
    if kept is None:
        raise missing(place, merge.id)
    if other is not None:
        vectors = door.engine.loader.vectors([other.vector_seq]) if other.vector_seq else [b""]
        return merge, _Before(kept, other, vectors[0])
    assert merge.incoming is not None, merge
    other = carried_back(merge.other, merge.incoming, 0)
    times = {"created_ns": stamp.time_ns, "updated_ns": stamp.time_ns}
    other = replace(other, **times, accessed_ns=stamp.occurred_ns, occurred_ns=stamp.occurred_ns)
    return merge, _Before(kept, other, merge.other_vector)


def _unmerging(
    facts: Facts, held: Entry, merging: tuple[MemoryMerged, int], before: _Before, cited: tuple[int, ...]
) -> MemoryUnmerged:
    """Return the event that takes a merge apart: of what it changed, that is reverted which nobody changed since."""
    merge, seq = merging
    kept, other = before.kept, before.other
    content = kept.content if held.content == merge.content else held.content
    if content != held.content:
        refuse_twin(facts, held, content)
    words = kept.words if held.words == merge.keywords else held.words
    importance = kept.importance if held.importance == merge.importance else held.importance
    has_body = (content, words) != (held.content, held.words)
    has_vector = before.own is None and content != held.content
    twin = facts.same(other.content)
    is_back = twin is None or (twin.id == held.id and content != other.content)
    sources = tuple(dict.fromkeys((*cited, seq, *((held.body_seq,) if has_body else ()))))
    return MemoryUnmerged(
        sources,
        held.id,
        merge.other if is_back else "",
        seq,
        kept.vector_seq if has_vector else 0,
        other.origin if is_back else 0,
        content if has_body else None,
        words if has_body else (),
        importance,
        held.extra if has_body else None,
        carried(other) if is_back else None,
        before.vector if is_back else b"",
        facts.model if is_back else "",
    )


T = TypeVar("T")

WEEKLY: Final = 0.95
"""What is left of a memory's importance after a week in which nobody recalled it."""

DAY_NS: Final = 86_400 * 10**9
_WEEK_DAYS: Final = 7


class _ProjectState(NamedTuple):
    """The memories as a decision sees them, which is made without any lock."""

    entries: dict[str, Entry]
    version: int
    model: str
    vectors: Any = {}  # noqa: RUF012 - never changed


_Plan = Callable[[_ProjectState], Sequence[Event]]


def decay(place: Place, options: Options, *, dry_run: bool) -> Outcome:
    """Let importance fall with the days since the last access; days that were counted are not counted again."""
    cited = place.door.sources(options.sources)
    now_ns = place.door.engine.now_ns()

    def plan(look: _ProjectState) -> Sequence[Event]:
        fallen = [found for entry in look.entries.values() if (found := _decayed(entry, now_ns)) is not None]
        events: list[Event] = []
        for page in _pages(fallen):
            ids, importances, decayed = zip(*page, strict=True)
            events.append(MemoriesDecayed(cited, ids, importances, decayed, _total(events) + len(page)))
        return events

    return _do(place, ("decay",), plan, options, dry_run=dry_run)


def _decayed(entry: Entry, now_ns: int) -> tuple[str, float, int] | None:
    """Return id, importance and the end of the days that are counted now; ``None`` where nothing falls."""
    if entry.accessed_ns is None or not entry.importance:
        return None
    since_ns = max(entry.accessed_ns, entry.decayed_ns)
    days = (now_ns - since_ns) // DAY_NS
    if days <= 0:
        return None
    return entry.id, entry.importance * WEEKLY ** (days / _WEEK_DAYS), since_ns + days * DAY_NS


def prune(place: Place, min_importance: object, options: Options, *, dry_run: bool) -> Outcome:
    """Remove the memories whose importance is under a bound."""
    least = fraction(min_importance, "min_importance")
    cited = place.door.sources(options.sources)

    def plan(look: _ProjectState) -> Sequence[Event]:
        events: list[Event] = []
        unimportant = [entry.id for entry in look.entries.values() if entry.importance < least]
        for page in _pages(unimportant):
            events.append(MemoriesPruned(cited, tuple(page), _total(events) + len(page)))
        return events

    return _do(place, ("prune", least), plan, options, dry_run=dry_run)


def _pages(items: list[T]) -> Iterator[list[T]]:
    for begin in range(0, len(items), PAGE_MEMORIES_COUNT):
        yield items[begin : begin + PAGE_MEMORIES_COUNT]


def _total(events: Sequence[Event]) -> int:
    """Return how many memories the pages so far name."""
    last = events[-1] if events else None
    return last.total if isinstance(last, (MemoriesDecayed, MemoriesPruned)) else 0


def compact(place: Place, threshold: object, options: Options, *, dry_run: bool) -> Outcome:
    """Merge the active memories that are more alike than a threshold, until none are."""
    door = place.door
    wanted = door.embedding.compact_cosine if threshold is None else cosine(threshold)
    cited = door.sources(options.sources)

    def plan(look: _ProjectState) -> Sequence[Event]:
        return _Compaction(door.embedding, look, wanted, cited).events()

    return _do(place, ("compact", wanted), plan, options, dry_run=dry_run, with_vectors=True)


class _Compaction:
    """One compaction: rounds of merges, each on the vectors of the texts that the round before it left."""

    def __init__(self, embedding: Embedding, look: _ProjectState, threshold: float, cited: tuple[int, ...]) -> None:
        self._embedding = embedding
        self._model = look.model
        self._threshold = threshold
        self._cited = cited
        self._contents = {entry.content for entry in look.entries.values()}
        active = [entry for entry in look.entries.values() if entry.status == ACTIVE]
        self._entries = sorted(active, key=lambda entry: -entry.importance)
        self._vectors: dict[str, Any] = look.vectors
        self._events: list[MemoryMerged] = []
        self._texts: dict[str, tuple[int, ...]] = {}
        """Id -> the seqs of all the texts that were merged into it, its own first."""

    def events(self) -> Sequence[Event]:
        """Return the merges, in the order in which they are to be folded."""
        changed = {entry.id for entry in self._entries}
        while changed:
            changed = self._round(changed)
        return self._events

    def _round(self, changed: set[str]) -> set[str]:
        """Merge what is alike, of pairs that were not compared yet; return what has another vector now."""
        if not self._entries:
            return set()
        import numpy  # noqa: PLC0415 - loads when the first vector is looked at

        from refold.index.search import pairs  # noqa: PLC0415 - as numpy

        begin, entries = len(self._events), list(self._entries)
        matrix = numpy.stack([self._vectors[entry.id] for entry in entries])
        is_gone = numpy.zeros(len(entries), numpy.bool_)
        is_changed = numpy.array([entry.id in changed for entry in entries])
        for row, later in pairs(matrix, self._threshold, is_gone, is_changed):
            places: list[int] = later.tolist()
            cosines = {place: exact(matrix[row], matrix[place]) for place in places}
            others = [place for place, found in cosines.items() if found > self._threshold]
            alike = {entries[place].id: cosines[place] for place in others}
            entries[row], merged = self._merged(entries[row], [entries[place] for place in others], alike)
            is_gone[[place for place in others if entries[place].id in merged]] = True
        self._entries = [entry for entry, gone in zip(entries, is_gone.tolist(), strict=True) if not gone]
        return self._embed(begin)

    def _merged(self, entry: Entry, others: Sequence[Entry], alike: dict[str, float]) -> tuple[Entry, set[str]]:
        taken: set[str] = set()
        for other in others:
            text = joined(entry.content, other.content)
            is_taken = text not in {entry.content, other.content} and text in self._contents
            if is_taken or len(text.encode()) > VALUE_BYTES_MAX:
                continue
            words = united(entry.words, other.words)
            texts = self._texts[entry.id] = (*self._texts_of(entry), *self._texts_of(other))
            sources = tuple(dict.fromkeys((*self._cited, *texts)))
            self._events.append(
                MemoryMerged(
                    *(sources, entry.id, other.id, alike[other.id], entry.content, other.content, text, words),
                    max(entry.importance, other.importance),
                    entry.extra,
                    b"",
                    self._model,
                )
            )
            importance = max(entry.importance, other.importance)
            entry = replace(entry, content=text, words=words, importance=importance)
            taken.add(other.id)
            self._contents.add(text)
        return entry, taken

    def _texts_of(self, entry: Entry) -> tuple[int, ...]:
        return self._texts.get(entry.id, (entry.body_seq,))

    def _embed(self, begin: int) -> set[str]:
        """Give each merge of this round the vector of its text: any one of them may be taken apart, or erased.

        The vectors that the next round compares are those of the last ones; returns which memories have another.
        """
        fresh = [
            place
            for place in range(begin, len(self._events))
            if self._events[place].content != self._events[place].text
        ]
        texts = [self._events[place].content for place in fresh]
        pairs = [(self._vectors[self._events[place].id], self._vectors[self._events[place].other]) for place in fresh]
        packed = [(one.tobytes(), other.tobytes()) for one, other in pairs]
        for place, vector in zip(fresh, self._embedding.all_joined(texts, self._model, packed), strict=True):
            self._events[place] = replace(self._events[place], vector=vector.packed)
            self._vectors[self._events[place].id] = unit(vector.packed)
        return {self._events[place].id for place in fresh}


# How an outcome of several events is written.


def _do(
    place: Place,
    asked: tuple[Any, ...],
    plan: _Plan,
    options: Options,
    *,
    dry_run: bool,
    with_vectors: bool = False,
) -> Outcome:
    """Make the events of a plan one commit, or part of the open batch; return what they come to."""
    checks.flag(dry_run, "dry_run")
    if dry_run:
        return _outcome(plan(_look(place, with_vectors=with_vectors)))
    place.check_writable()
    if batches.active(place.door.engine) is not None:
        return _do_in_batch(place, asked, plan, options, with_vectors=with_vectors)
    return settled(lambda: _maintain_once(place, asked, plan, options, with_vectors=with_vectors), place)


def _maintain_once(
    place: Place, asked: tuple[Any, ...], plan: _Plan, options: Options, *, with_vectors: bool
) -> Outcome:
    """Decide on the memories as they are, and commit what was decided; ``Stale`` if they moved meanwhile."""
    door = place.door
    answered = None if options.request_id is None else door.answered(options.request_id, place.stream, asked)
    if answered is not None:
        return _outcome(answered)
    pending = Pending()
    pending.erased_count = erased_count(door.engine)
    look = _look(place, with_vectors=with_vectors)
    door.check_version(place.stream, options.expected)
    pending.reads[door.key(place.stream)] = look.version
    for event in plan(look):
        pending.add(door.key(place.stream), event, None)
    if options.request_id is not None:
        request = door.request(options.request_id, place.stream, asked)
        pending.requests[request.id_hash] = (request, range(len(pending.events)))
    elif not pending.events:
        return Outcome()
    try:
        door.engine.commit_batch(pending)
    except WrongVersion as error:
        raise Stale from error
    return _outcome(pending.events)


def _do_in_batch(place: Place, asked: tuple[Any, ...], plan: _Plan, options: Options, *, with_vectors: bool) -> Outcome:
    answered = None if options.request_id is None else place.door.answered(options.request_id, place.stream, asked)
    if answered is not None:
        return _outcome(answered)
    events = plan(_look(place, with_vectors=with_vectors))
    if not events:
        place.note(lambda _: None, asked, options)
        return Outcome()
    for number, event in enumerate(events, 1):
        expected = options.expected if number == 1 else ANY
        request_id = options.request_id if number == len(events) else None
        place.note(event, asked, Options(expected, request_id))
    return _outcome(events)


def _look(place: Place, *, with_vectors: bool) -> _ProjectState:
    """Return the memories and what is needed to decide on them, taken at one moment."""
    door = place.door

    def query(facts: Facts) -> _ProjectState:
        version = door.version(place.stream) if place.at is None else 0
        return _ProjectState(dict(facts.entries), version, facts.model)

    if not with_vectors:
        return place.read(query)
    look(place, Wanted(needs_own=True))  # What has to be read for it is read without the lock.
    with door.engine.state_lock:
        taken, sight = place.read(query), look(place, Wanted(needs_own=True))
        rows = {} if sight is None else dict(sight.stock.rows)
    if sight is None:
        return taken
    matrix = sight.moment.frame.matrix
    return taken._replace(vectors={entry_id: matrix[rows[entry_id]] for entry_id in taken.entries})


def _outcome(events: Iterable[Event]) -> Outcome:
    """Return what events come to."""
    counts = {"changed": 0, "removed": 0, "merged": 0}
    for event in events:
        if isinstance(event, MemoriesDecayed):
            counts["changed"] += len(event.ids)
        elif isinstance(event, MemoriesPruned):
            counts["removed"] += len(event.ids)
        elif isinstance(event, MemoryMerged):
            counts["merged"] += 1
    return Outcome(**counts)
