"""Taking a merge apart."""

from typing import NamedTuple

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.pending import ANY
from refold.entry import Entry, MemoryMerged, MemoryUnmerged, MemoryUpdated, carried, carried_back
from refold.errors import InvalidInput, NotFound, WrongVersion
from refold.event import Event
from refold.fold import State
from refold.memory.door import Options
from refold.memory.embedding import fitting
from refold.memory.remembering import Place, Stale, missing, refuse_twin, settled
from refold.views.facts import FACTS, Facts, unmerged, updated


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
    return settled(lambda: _attempt(place, merge_seq, options), place)


def _attempt(place: Place, merge_seq: int, options: Options) -> list[Entry]:
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
            message = f"the memory {merge.id} that took another one in is not there any more"
            raise NotFound(message)
        if merge_seq in facts.unmerged:
            message = f"the merge at seq {merge_seq} was taken apart already"
            raise InvalidInput(message)
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
        message = f"{place.stream} has no merge at seq {seq}; history(id) shows the merges of a memory"
        raise NotFound(message)
    stamp = recorded.stamp
    if stamp.erased:
        message = f"the merge at seq {seq} was erased, so that nothing is left of what was before it"
        raise InvalidInput(message)

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
