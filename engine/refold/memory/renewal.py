"""Vectors of another embedder for all that a memory knows: made in pages while it is in use, switched to at once.

A page is one commit. What was made before a stop, a kill or a failing embedder waits in the log, and the next call with
the same embedder goes on from there.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from refold.embedders import CachedEmbedder
from refold.engine import batch as batches
from refold.engine import history
from refold.engine.transaction import Pending, erased_count
from refold.entry import NO_VECTOR, EmbedderSwitched, MemoryUpdated, VectorRenewed
from refold.errors import StoreBusy, WrongVersion
from refold.fold import State
from refold.limits import REDO_COUNT_MAX, REEMBEDDED_PAGE_COUNT
from refold.memory.options import Door, checked_embedder
from refold.memory.vectors import Embedding
from refold.results import Reembedded
from refold.views.episodes import EPISODES, Episodes, text_of
from refold.views.facts import FACTS, Facts

_FREE_ATTEMPTS_COUNT: Final = 2


class _Text(NamedTuple):
    """A text that needs a vector, what it is of, the seq of the vector it has, and that of the event that holds it."""

    id: str
    text: str
    prior: int
    body_seq: int


class _Backlog(NamedTuple):
    """What of a project is to be embedded, at a version of its stream, and whether anything has to change."""

    texts: Sequence[_Text]
    version: int
    is_behind: bool


class _Reembedding:
    """One call: the embedder, and how far it came."""

    def __init__(self, door: Door, embedder: CachedEmbedder, progress: Callable[[int, int], None] | None) -> None:
        self.door = door
        self.embedder = embedder
        self.progress = progress
        self.is_held = False
        """Whether nobody else can commit; no callback is called then, for it might want to."""
        self.made = self.told = 0
        self.switched = 0

    def commit(self, pending: Pending) -> None:
        """Write a batch."""
        engine = self.door.engine
        (engine.commit_held if self.is_held else engine.commit_batch)(pending)

    def tell(self, whole: int) -> None:
        """Call back if anything was made since that was done last."""
        if self.progress is not None and self.told < self.made:
            self.told = self.made
            self.progress(self.made, whole)

    def look(self, stream: str) -> _Backlog:
        """Return what is left to do in a project."""
        door = self.door

        def query(state: State) -> _Backlog:
            facts, episodes = state.part(FACTS), state.part(EPISODES)
            texts = [*self._of_facts(facts), *self._of_episodes(episodes)]
            is_behind = bool(texts) or self._waits(facts) or self._waits(episodes)
            return _Backlog(texts, door.engine.version(door.key(stream)), is_behind)

        return door.read_written(stream, query)

    def _waits(self, part: Facts | Episodes) -> bool:
        """Return whether vectors of this embedder wait for the switch."""
        return bool(part.coming.of(self.embedder.id, self.embedder.dim))

    def _is_other(self, part: Facts | Episodes) -> bool:
        return (part.model, part.dim) != (self.embedder.id, self.embedder.dim)

    def _of_facts(self, facts: Facts) -> Iterator[_Text]:
        waiting, is_other = facts.coming.of(self.embedder.id, self.embedder.dim), self._is_other(facts)
        for entry in facts.entries.values():
            if (is_other or entry.vector_seq == NO_VECTOR) and entry.id not in waiting:
                yield _Text(entry.id, entry.content, entry.vector_seq, entry.body_seq)

    def _of_episodes(self, episodes: Episodes) -> Iterator[_Text]:
        waiting, is_other = episodes.coming.of(self.embedder.id, self.embedder.dim), self._is_other(episodes)
        for (seq, episode), vector_seq in zip(episodes.by_seq.items(), episodes.vector_seqs(), strict=True):
            if (is_other or vector_seq == NO_VECTOR) and episode.id not in waiting:
                yield _Text(episode.id, text_of(episode), vector_seq, seq)

    def embed(self, left: dict[str, int]) -> None:
        """Embed what is left, a page at a time, and let it wait in the log."""
        whole = self.made + sum(left.values())
        for stream in left:
            # Looked at one by one: all texts of all projects at once would be held beside what `memory_bytes` bounds.
            before = erased_count(self.door.engine)
            texts = self.look(stream).texts
            for begin in range(0, len(texts), REEMBEDDED_PAGE_COUNT):
                page = texts[begin : begin + REEMBEDDED_PAGE_COUNT]
                if not self._commit(stream, page, before):
                    break  # Something was erased, of which no vector must come back: the next attempt looks again.
                self.made += len(page)
                if not self.is_held:
                    self.tell(whole)

    def _commit(self, stream: str, page: Sequence[_Text], erased_before: int) -> bool:
        """Write the vectors of a page, unless something was erased since it was looked at; return whether they are."""
        vectors = self.embedder.embed([text.text for text in page])
        sources = self._sources(page)
        pending = Pending()
        pending.erased_count = erased_before
        for text, cited, row in zip(page, sources, vectors, strict=True):
            packed = row.astype("<f4").tobytes()
            event = VectorRenewed(cited, text.id, text.prior, packed, self.embedder.id)
            pending.add(self.door.key(stream), event, None)
        try:
            self.commit(pending)
        except WrongVersion:
            return False
        return True

    def _sources(self, page: Sequence[_Text]) -> Iterator[tuple[int, ...]]:
        """Return what each vector was derived from, so that erasing the text reaches it.

        That is the event with the vector before it, which holds the text too or is derived from it. A vector that the
        caller gave for a text of another event, or one that was erased, says nothing of the text: its event stands in.
        """
        priors = sorted({text.prior for text in page} - {NO_VECTOR})
        known = dict(zip(priors, self.door.engine.loader.recorded(priors), strict=True))
        for text in page:
            event = known[text.prior].event if text.prior in known else None
            if event is None:
                yield (text.body_seq,)
            elif isinstance(event, MemoryUpdated) and event.content is None:
                yield (text.prior, text.body_seq)
            else:
                yield (text.prior,)

    def switch(self, streams: Collection[str]) -> int | None:
        """Let what waits count, everywhere in one commit; return its seq, ``None`` if others wrote meanwhile."""
        pending = Pending()
        for stream in streams:
            look = self.look(stream)
            if look.texts:
                return None
            key = self.door.key(stream)
            pending.reads[key] = look.version
            pending.add(key, EmbedderSwitched((), self.embedder.id, self.embedder.dim), None)
        last: list[int] = []
        pending.later.append((-len(pending.events), lambda stamp: last.append(stamp.seq)))
        try:
            self.commit(pending)
        except WrongVersion:
            return None
        self.switched += len(streams)
        return last[0] - len(streams) + 1


def reembed(door: Door, embedder: object, progress: Callable[[int, int], None] | None) -> Reembedded:
    """Give everything in every project a vector of an embedder, ``None``: of the one it embeds with.

    From the switch on this memory embeds with it. Raises what the embedder raises; what was made until then is kept for
    the next call. ``StoreBusy`` if others never stop writing.
    """
    batches.refuse(door.engine, "embedding a memory anew")
    door.engine.check_writable()
    chosen = checked_embedder(embedder)
    embedding = door.embedding if chosen is None else Embedding(chosen)
    work = _Reembedding(door, embedding.embedder, progress)
    is_done = False
    for attempt in range(REDO_COUNT_MAX):
        is_done = _held_attempt(work, embedding) if attempt >= _FREE_ATTEMPTS_COUNT else _reembed_once(work, embedding)
        if is_done:
            break
    work.tell(work.made)
    if not is_done:
        raise StoreBusy(
            f"the projects were written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; call again"
        )
    if not work.switched and chosen is not None:
        door.switch(embedding, lambda: door.engine.head)
    return Reembedded(work.embedder.id, work.embedder.dim, work.switched, work.made)


def _reembed_once(work: _Reembedding, embedding: Embedding) -> bool:
    """Embed what is behind and switch; return whether nothing was left to do."""
    left = _behind(work)
    if left:
        work.embed(left)
        work.door.switch(embedding, partial(work.switch, left))
    return not left


def _held_attempt(work: _Reembedding, embedding: Embedding) -> bool:
    """Do the same while nobody else of this process can write, for those who never stop: a page or two are left."""
    with work.door.engine.exclusive():
        work.is_held = True
        return _reembed_once(work, embedding)


def _behind(work: _Reembedding) -> dict[str, int]:
    """Return the projects that have anything to embed or to switch, and how many texts are to be embedded."""
    door = work.door
    names = history.ids(door.engine, door.branch, "project", at=None, after=None, limit=None)
    looks = ((stream, work.look(stream)) for stream in (f"project/{name}" for name in names))
    return {stream: len(look.texts) for stream, look in looks if look.is_behind}
