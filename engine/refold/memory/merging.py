"""Merging memories that say the same, and taking a merge apart."""

from typing import NamedTuple, cast

from refold import checks
from refold.engine.pending import Decide, Noted
from refold.engine.similarity import Match
from refold.engine.units import exact, unit
from refold.entry import ACTIVE, Entry, MemoryAdded, MemoryMerged, carried, entry_of
from refold.event import Event, Stamp
from refold.fold import State
from refold.limits import KEYWORDS_COUNT_MAX, VALUE_BYTES_MAX
from refold.memory.door import Options
from refold.memory.drafts import Draft
from refold.memory.embedding import Vector, fitting
from refold.memory.looking import look, pending_events
from refold.memory.remembering import Place, Stale, added, settled
from refold.results import Upserted
from refold.store.columns import Array
from refold.store.moments import Moment
from refold.views.facts import FACTS, Facts, merged

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
        self.found: list[Match] = []
        """What it was merged with, or would have been."""
        self._seen: tuple[Moment, Match | None] | None = None
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

    def _best(self, vector: Vector) -> Match | None:
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

    def _plan(self, facts: Facts, vector: Vector, best: Match | None) -> tuple[str, str, bytes] | None:
        """Return the text that a merge would have to embed, with its model and the vector of what is kept."""
        match = self._match(facts, vector, best)
        if match is None:
            return None
        text = joined(match.entry.content, self.draft.content)
        if text == match.entry.content:
            return None
        return text, facts.model, match.own.tobytes()

    def _match(self, facts: Facts, vector: Vector, best: Match | None) -> Match | None:
        """Return the memory to merge with: that of the same content, else the most alike if it is alike enough."""
        fitting((facts.model, facts.dim), vector, is_empty=not facts.entries)
        same = facts.same(self.draft.content)
        if same is not None:
            own = self._vector_of(same, facts.dim)
            return Match(same, exact(own, unit(vector.packed)), own)
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

    def _merge(self, facts: Facts, match: Match, prepared: _Prepared) -> Event | None:
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
