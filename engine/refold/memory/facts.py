"""Memories of a project: the checked input of callers, and the events that add, change and remove memories."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from refold import checks
from refold.embedders import Vector
from refold.engine import batch as batches
from refold.engine.origin import Origin
from refold.engine.transaction import Decide
from refold.entry import (
    CATEGORIES,
    STATUSES,
    Entry,
    MemoryAdded,
    MemoryUpdated,
    entry_of,
    speaker_of,
)
from refold.errors import EmbeddingMismatch, InvalidInput, NotFound, StoreBusy
from refold.event import Event, Recorded, Stamp
from refold.fold import State
from refold.limits import CONTEXT_BYTES_MAX, KEYWORDS_COUNT_MAX, NAME_BYTES_MAX, REDO_COUNT_MAX
from refold.memory.core import Core
from refold.memory.options import Options, nanoseconds
from refold.text import contains
from refold.text import keywords as keywords_of
from refold.views.facts import FACTS, Facts, apply_update

if TYPE_CHECKING:
    import datetime

T = TypeVar("T")


class Stale(Exception):
    """A preparation that does not fit the state being decided on, and must be made again."""


class ProjectStream(NamedTuple):
    """The stream of a project, live or frozen at a seq."""

    core: Core
    name: str
    at: int | None

    def check_writable(self) -> None:
        """Raise unless the stream can be written to."""
        self.core.refuse_frozen(self.name, self.at)
        self.core.engine.reader.check_writable()

    def read(self, query: Callable[[Facts], T]) -> T:
        """Apply `query` to the memories and return the result."""
        return self.core.read(self.name, lambda state: query(state.part(FACTS)), self.at)

    def write(self, make: Event | Decide, request: tuple[Any, ...], options: Options, **more: Any) -> Recorded | None:
        """Commit one event, or add it to the open batch."""
        expected, request_id, _ = options
        return self.core.write(
            self.name, make, at=self.at, call=request, expected=expected, request_id=request_id, **more
        )

    def change(
        self,
        entry_id: str,
        make: Callable[[Facts, Entry], Event | None],
        apply: Callable[[Entry, Stamp, Any], Entry],
        request: tuple[Any, ...],
        options: Options,
        occurred_ns: int | None = None,
    ) -> Entry:
        """Write the event that `make` decides on for one memory; return the memory as `apply` leaves it."""
        before: list[Entry] = []

        def decide(state: State) -> Event | None:
            facts = state.part(FACTS)
            before.append(self.entry(facts, entry_id))
            return make(facts, before[-1])

        noted = self.write(decide, request, options, origin=Origin(occurred_ns))
        if before:
            return before[-1] if noted is None else self.deliver(apply(before[-1], noted[1], noted[0]))
        if noted is not None:
            return self.entry_after(noted, entry_id)
        entry = self.read_unchanged(lambda facts: facts.entries.get(entry_id), request, options)
        return Entry(entry_id, erased=True) if entry is None else entry

    def read_unchanged(self, query: Callable[[Facts], T], request: tuple[Any, ...], options: Options) -> T:
        """Apply `query` to the memories among which an answered request changed nothing."""
        core, request_id = self.core, options.request_id
        return core.read_unchanged(self.name, lambda state: query(state.part(FACTS)), request_id, request)

    def entry(self, facts: Facts, entry_id: str) -> Entry:
        """Return a memory; raise ``NotFound`` if there is none."""
        entry = facts.entries.get(entry_id)
        if entry is None:
            raise self.not_found(entry_id)
        return entry

    def not_found(self, entry_id: str) -> NotFound:
        """Return the error for an id that no memory has."""
        return NotFound(f"{self.name} has no memory {checks.brief(entry_id)}; list() and search() show those it has")

    def entry_after(self, noted: Recorded, entry_id: str) -> Entry:
        """Return a memory as the event of an earlier request left it."""
        entry = self.core.read_around(self.name, lambda state: state.part(FACTS).entries.get(entry_id), noted[1])
        return Entry(entry_id, erased=True) if entry is None else self.deliver(entry)

    def deliver(self, entry: Entry) -> Entry:
        """Return a memory for the caller; the engine completes its seqs and times when the open batch is committed."""
        if entry.body_seq < 0 or entry.updated_ns is None:
            batch = batches.active_batch(self.core.engine)
            assert batch is not None, "a provisional memory outside a batch"
            entry = replace(entry)
            batch.transaction.entries.append(entry)
        return entry

    def retry(self, attempt: Callable[[], T]) -> T:
        """Return the result of an attempt, which is repeated while its preparation is stale.

        It is also stale if the project was embedded anew after the attempt had embedded its text.
        """
        for _ in range(REDO_COUNT_MAX):
            embedding = self.core.embedding_at(self.at)
            try:
                return attempt()
            except Stale:
                continue
            except EmbeddingMismatch:
                if not self.core.has_switched(self.at, embedding):
                    raise
        raise StoreBusy(
            f"{self.name} was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; let its writers pause "
            f"and call again"
        )


GIVEN: Final = "given"
"""The model of vectors that a caller gave without an embedder."""


def check_model(own: tuple[str, int], vector: Vector, *, is_empty: bool) -> str:
    """Return the model of a vector of a project; raise ``EmbeddingMismatch`` for another model or dimension."""
    model, dim = own
    if is_empty:
        return vector.model or GIVEN
    size = len(vector.packed) // 4
    if size != dim or (vector.model is not None and vector.model != model):
        made = "the caller" if vector.model is None else repr(vector.model)
        raise EmbeddingMismatch(
            f"the vector is of {made} with {size} numbers, and this project's are of {model!r} with {dim}; open the "
            f"memory with that embedder, give vector= of that model, or reembed"
        )
    return model


def join_texts(text: str, other: str) -> str:
    """Return the text that contains the other, the first if both do, else both."""
    if contains(text, other):
        return text
    return other if contains(other, text) else f"{text} | {other}"


def join_words(words: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keywords of both, without duplicates, in their order."""
    return tuple(dict.fromkeys((*words, *others)))[:KEYWORDS_COUNT_MAX]


def check_cosine(value: object) -> float:
    """Check a threshold of cosines and return it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1 <= value <= 1:
        checks.invalid(f"threshold is {checks.brief(value)}; give a number from -1 to 1")
    return float(value)


# Input of callers.


class FactInput(NamedTuple):
    """A checked memory to add: its event without id and vector, the vector if given, and the time it happened."""

    fields: MemoryAdded
    vector: Vector | None
    occurred_ns: int | None

    @classmethod
    def parse(
        cls,
        core: Core,
        sources: Sequence[Any],
        content: object,
        category: object,
        keywords: object,
        importance: object,
        metadata: object,
        source: object,
        source_context: object,
        status: object,
        vector: object,
        occurred: "int | datetime.datetime | None",
    ) -> "FactInput":
        """Check the arguments of a caller."""
        text = checks.text(content, "content")
        session, origin = _source(core, source)
        seqs = core.sources(sources)
        fields = MemoryAdded(
            sources=(*seqs, origin) if origin and origin not in seqs else seqs,
            id="",
            origin=origin,
            content=text,
            category=checks.one_of(category, "category", CATEGORIES),
            keywords=keywords_of(text)[:KEYWORDS_COUNT_MAX] if keywords is None else check_keywords(keywords),
            importance=checks.fraction(importance, "importance"),
            status=checks.one_of(status, "status", STATUSES),
            extra=None if metadata is None else checks.json_object(metadata, "metadata"),
            session=session,
            context=_context(source_context),
        )
        given = None if vector is None else core.embedding.parse_vector(vector)
        return cls(fields, given, None if occurred is None else nanoseconds(occurred, "occurred"))

    @property
    def content(self) -> str:
        """The text of the memory."""
        return self.fields.content

    @property
    def speaker(self) -> str | None:
        """The name of the user who said it, if the metadata has one."""
        return speaker_of(self.fields.extra)

    def find_twin(self, facts: Facts) -> Entry | None:
        """Return the memory of the same user with exactly this content, if there is one."""
        return facts.find_content(self.content, self.speaker)

    def fingerprint(self, verb: str, *more: Any) -> tuple[Any, ...]:
        """Return the fields that identify a request; stored hashes depend on their order, so a new field goes last."""
        given = self.fields
        body = (given.content, given.category, given.keywords, given.importance, given.status, given.extra)
        packed = None if self.vector is None else self.vector.packed
        return (verb, *body, given.session, given.origin, given.context, packed, self.occurred_ns, *more)

    def event(self, facts: Facts, entry_id: str, vector: Vector | None) -> MemoryAdded:
        """Return the event that adds the memory; raise ``Stale`` if it has no vector yet."""
        if vector is None:
            raise Stale
        model = check_model((facts.model, facts.dim), vector, is_empty=not facts.entries)
        return replace(self.fields, id=entry_id, vector=vector.packed, model=model)


def _source(core: Core, source: object) -> tuple[str | None, int]:
    """Return the session and the seq of a source; the seq is 0 if the source is the name of a session."""
    if source is None:
        return None, 0
    if isinstance(source, str):
        return checks.text(source, "source", NAME_BYTES_MAX, "NAME_BYTES_MAX") or None, 0
    (seq,) = core.sources((source,))
    if seq < 0:
        batch = batches.active_batch(core.engine)
        assert batch is not None, "a provisional source outside a batch"
        stream = batch.transaction.recorded_event(-seq - 1)[1].stream
    else:
        stream = core.engine.reader.loader.recorded_events([seq])[0].stamp.stream
    kind, _, name = stream.partition("/")
    return (name if kind == "conversation" else None), seq


def _context(source_context: object) -> str | None:
    if source_context is None:
        return None
    return checks.text(source_context, "source_context", CONTEXT_BYTES_MAX, "CONTEXT_BYTES_MAX")


def check_keywords(keywords: object) -> tuple[str, ...]:
    """Return keywords lower-cased, stripped of surrounding spaces and without duplicates, in their order."""
    words = (word.strip().lower() for word in checks.texts(keywords, "keywords", "a keyword"))
    return checks.keywords(tuple(dict.fromkeys(word for word in words if word)))


def check_id(entry_id: object) -> str:
    """Return the id of a memory, given as an id or as the memory."""
    return entry_id.id if isinstance(entry_id, Entry) else checks.text(entry_id, "id")


class FactChanges(NamedTuple):
    """The checked changes of an update; ``None`` leaves a field as it is."""

    content: str | None
    category: str | None
    keywords: tuple[str, ...] | None
    importance: float | None
    extra: bytes | None
    vector: Vector | None
    context: str | None
    occurred_ns: int | None

    @classmethod
    def parse(
        cls,
        core: Core,
        content: object,
        category: object,
        keywords: object,
        importance: object,
        metadata: object,
        vector: object,
        source_context: object,
        occurred: "int | datetime.datetime | None",
    ) -> "FactChanges":
        """Check the arguments of a caller."""
        text = None if content is None else checks.text(content, "content")
        if text is not None and not text.strip():
            checks.invalid("content is empty; give a memory something to say, or delete it")
        if text is None and source_context is not None:
            checks.invalid("source_context is the passage that new content is from; give content too")
        if text is None and occurred is not None:
            checks.invalid("occurred is when new content was said; give content too")
        return cls(
            content=text,
            category=None if category is None else checks.one_of(category, "category", CATEGORIES),
            keywords=None if keywords is None else check_keywords(keywords),
            importance=None if importance is None else checks.fraction(importance, "importance"),
            extra=None if metadata is None else checks.json_object(metadata, "metadata"),
            vector=None if vector is None else core.embedding.parse_vector(vector),
            context=_context(source_context),
            occurred_ns=None if occurred is None else nanoseconds(occurred, "occurred"),
        )

    def fingerprint(self, entry_id: str) -> tuple[Any, ...]:
        """Return the fields that identify a request; stored hashes depend on their order, so a new field goes last."""
        packed = None if self.vector is None else self.vector.packed
        body = (self.content, self.category, self.keywords, self.importance, self.extra, packed)
        return ("update", entry_id, *body, self.context, self.occurred_ns)

    def apply(self, entry: Entry) -> Entry:
        """Return the changed memory; keywords that were found in the old content are found anew in the new content."""
        content = entry.content if self.content is None else self.content
        words = entry.words if self.keywords is None else self.keywords
        if self.keywords is None and _has_own_words(entry):
            words = keywords_of(content)[:KEYWORDS_COUNT_MAX]
        given = {"category": self.category, "importance": self.importance, "extra": self.extra}
        changed = {name: value for name, value in given.items() if value is not None}
        return replace(entry, content=content, words=words, **changed)

    def carries(self, entry: Entry) -> bool:
        """Return whether the changed memory has anything that an earlier event said, or names the same source."""
        has_words = self.keywords is None and bool(entry.words) and not _has_own_words(entry)
        has_metadata = self.extra is None and entry.extra is not None
        has_source = bool(entry.origin or entry.session or (entry.source_context and self.context is None))
        return has_words or has_metadata or has_source

    def event(
        self, facts: Facts, entry: Entry, vector: Vector | None, sources: tuple[int, ...]
    ) -> MemoryUpdated | None:
        """Return the event of the changes, or ``None`` if nothing changes; raise ``Stale`` if a new text has no vector.

        ``vector`` is the vector of the new text, or the one that the caller gave.
        """
        target = self.apply(entry)
        names = ("content", "category", "keywords", "importance", "metadata")
        changed = tuple(name for name in names if getattr(entry, name) != getattr(target, name))
        if "content" in changed:
            refuse_twin(facts, target)
            if vector is None:
                raise Stale
        if not changed and self.vector is None:
            return None
        packed, model = b"", ""
        if vector is not None:
            model = check_model((facts.model, facts.dim), vector, is_empty=len(facts.entries) == 1)
            packed = vector.packed
        has_body = not {"content", "keywords", "metadata"}.isdisjoint(changed)
        is_whole = "content" in changed and not self.carries(entry)
        is_derived = has_body and not is_whole and entry.body_seq not in sources
        return MemoryUpdated(
            sources=(*sources, entry.body_seq) if is_derived else sources,
            id=entry.id,
            changed=changed if vector is None else (*changed, "vector"),
            content=target.content if has_body else None,
            category=target.category if is_whole or "category" in changed else None,
            keywords=target.words if has_body else (),
            importance=target.importance if is_whole or "importance" in changed else None,
            extra=target.extra if has_body else None,
            vector=packed,
            model=model,
            status=target.status if is_whole else None,
            context=self.context if "content" in changed else None,
        )


def _has_own_words(entry: Entry) -> bool:
    """Return whether the keywords of a memory are those of its content."""
    return entry.words == keywords_of(entry.content)[:KEYWORDS_COUNT_MAX]


def refuse_twin(facts: Facts, target: Entry) -> None:
    """Raise ``InvalidInput`` if another memory of the same user already says what a memory is about to say."""
    twin = facts.find_content(target.content, target.speaker)
    if twin is not None and twin.id != target.id:
        raise InvalidInput(f"the memory {twin.id} says exactly this; delete one of the two, or update that one")


# Adding and updating.


def add(stream: ProjectStream, given: FactInput, options: Options) -> Entry:
    """Add a memory and return it; if one of the same user has exactly this content, return that and append nothing."""
    stream.check_writable()
    if not given.content.strip():
        checks.invalid("content is empty; give a memory something to say")
    entry_id = stream.core.engine.reader.new_id()

    def attempt() -> Entry:
        vector = given.vector
        if vector is None and stream.read(given.find_twin) is None:
            vector = stream.core.embedding.of(given.content)
        existing: list[Entry] = []

        def decide(state: State) -> Event | None:
            facts = state.part(FACTS)
            twin = given.find_twin(facts)
            if twin is None:
                return given.event(facts, entry_id, vector)
            existing.append(twin)
            return None

        request = given.fingerprint("add")
        noted = stream.write(decide, request, options, origin=Origin(given.occurred_ns))
        if noted is not None:
            event, stamp = noted
            assert isinstance(event, MemoryAdded), event
            # The memory that answered the request may have been erased since.
            return Entry(event.id, erased=True) if stamp.erased else stream.deliver(entry_of(event, stamp))
        entry = existing[-1] if existing else stream.read_unchanged(given.find_twin, request, options)
        # The memory that answered the request may have been erased since, and its id with it.
        return Entry("", erased=True) if entry is None else entry

    return stream.retry(attempt)


def update(stream: ProjectStream, entry_id: str, changes: FactChanges, options: Options) -> Entry:
    """Change fields of a memory and return the changed memory."""
    stream.check_writable()
    sources = stream.core.sources(options.sources)

    def attempt() -> Entry:
        entry = stream.read(lambda facts: facts.entries.get(entry_id))
        vector = changes.vector
        if entry is not None and vector is None and changes.content not in (None, entry.content):
            vector = stream.core.embedding.of(changes.content or "")
        return stream.change(
            entry_id,
            lambda facts, entry: changes.event(facts, entry, vector, sources),
            apply_update,
            changes.fingerprint(entry_id),
            options,
            changes.occurred_ns,
        )

    return stream.retry(attempt)


# Lists.


def entries_of(stream: ProjectStream, category: object, status: object) -> list[Entry]:
    """Return the memories in the order they were added, of one category or status if given."""
    category = None if category is None else checks.one_of(category, "category", CATEGORIES)
    status = None if status is None else checks.one_of(status, "status", STATUSES)
    return stream.read(
        lambda facts: [
            entry
            for entry in facts.entries.values()
            if category in (None, entry.category) and status in (None, entry.status)
        ]
    )
