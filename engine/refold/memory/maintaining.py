"""Keeping a project's memories in shape: decay, pruning, compaction. What they did is in the events."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.admission import erased_count
from refold.engine.pending import ANY, Pending
from refold.engine.similarity import Wanted
from refold.engine.units import exact, unit
from refold.entry import ACTIVE, Entry, MemoriesDecayed, MemoriesPruned, MemoryMerged
from refold.errors import WrongVersion
from refold.event import Event
from refold.limits import PAGE_MEMORIES_COUNT, VALUE_BYTES_MAX
from refold.memory.door import Options
from refold.memory.drafts import fraction
from refold.memory.embedding import Embedding
from refold.memory.looking import look
from refold.memory.merging import cosine, joined, united
from refold.memory.remembering import Place, Stale, settled
from refold.results import Outcome
from refold.views.facts import Facts

T = TypeVar("T")

WEEKLY: Final = 0.95
"""What is left of a memory's importance after a week in which nobody recalled it."""

DAY_NS: Final = 86_400 * 10**9
_WEEK_DAYS: Final = 7


class _Look(NamedTuple):
    """The memories as a decision sees them, which is made without any lock."""

    entries: dict[str, Entry]
    version: int
    model: str
    vectors: Any = {}  # noqa: RUF012 - never changed


_Plan = Callable[[_Look], Sequence[Event]]


def decay(place: Place, options: Options, *, dry_run: bool) -> Outcome:
    """Let importance fall with the days since the last access; days that were counted are not counted again."""
    cited = place.door.sources(options.sources)
    now_ns = place.door.engine.now_ns()

    def plan(look: _Look) -> Sequence[Event]:
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

    def plan(look: _Look) -> Sequence[Event]:
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

    def plan(look: _Look) -> Sequence[Event]:
        return _Compaction(door.embedding, look, wanted, cited).events()

    return _do(place, ("compact", wanted), plan, options, dry_run=dry_run, with_vectors=True)


class _Compaction:
    """One compaction: rounds of merges, each on the vectors of the texts that the round before it left."""

    def __init__(self, embedding: Embedding, look: _Look, threshold: float, cited: tuple[int, ...]) -> None:
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

        from refold.store.pairing import pairs  # noqa: PLC0415 - as numpy

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
    return settled(lambda: _attempt(place, asked, plan, options, with_vectors=with_vectors), place)


def _attempt(place: Place, asked: tuple[Any, ...], plan: _Plan, options: Options, *, with_vectors: bool) -> Outcome:
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


def _look(place: Place, *, with_vectors: bool) -> _Look:
    """Return the memories and what is needed to decide on them, taken at one moment."""
    door = place.door

    def query(facts: Facts) -> _Look:
        version = door.version(place.stream) if place.at is None else 0
        return _Look(dict(facts.entries), version, facts.model)

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
