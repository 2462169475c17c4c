"""The project handle: facts that outlive conversations and are found by meaning, and episodes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from refold import checks
from refold.entry import STATUSES, Entry, MemoriesCleared, MemoryDeleted, MemoryReviewed, changed_ids
from refold.event import Event, Recorded
from refold.fold import State
from refold.index.ranking import Ranking
from refold.memory import facts
from refold.memory.core import Core
from refold.memory.facts import FactChanges, FactInput, ProjectStream, check_id
from refold.memory.options import MutationOptions, mutation, parse_options, seq_at
from refold.results import Hits, Outcome, ProjectStats, Receipt, Upserted
from refold.views.episodes import Episode
from refold.views.facts import FACTS, apply_review

if TYPE_CHECKING:
    import datetime

    from numpy.typing import NDArray

    from refold.memory.conversation import Conversation
    from refold.memory.search import SearchOptions

    Numbers = Sequence[float] | NDArray[Any] | None


Entries: TypeAlias = list[Entry]
Events: TypeAlias = list[Recorded]
ManyHits: TypeAlias = list[Hits]


class Project:
    """A handle on one project: its memories (with category, keywords, importance and vector) and its episodes.

    >>> from refold import Memory
    >>> project = Memory().project("acme/api")
    >>> _ = project.add("Always use pnpm, never npm.", category="preference", importance=0.9)
    >>> project.search("which package manager: pnpm?")[0].entry.content
    'Always use pnpm, never npm.'
    """

    __slots__ = ("_at", "_core", "_stream", "name")

    def __init__(self, core: Core, name: str, at: int | None) -> None:
        self.name = name
        self._core = core
        self._at = at
        self._stream = ProjectStream(core, f"project/{name}", at)

    def __repr__(self) -> str:
        frozen = "" if self._at is None else f", at={self._at}"
        counts = self._core.counts(lambda: f"memories={self.count()}")
        return f"Project({self.name!r}{frozen}, {counts})"

    @property
    def place(self) -> tuple[str, int]:
        """The project's stream and the seq of the handle, for ``memory.diff``."""
        return self._stream.name, self._core.engine.reader.current_head() if self._at is None else self._at

    # Writing.

    @mutation
    def add(
        self,
        content: str,
        *,
        category: str = "fact",
        keywords: Sequence[str] | None = None,
        importance: float = 0.5,
        metadata: dict[str, Any] | None = None,
        source: Any = None,
        source_context: str | None = None,
        status: str = "active",
        vector: "Numbers" = None,
        occurred: "int | datetime.datetime | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Entry:
        """Add a memory and return it; if one with exactly this content exists, return that and append nothing.

        What two users said, by the ``"said_by"`` of ``metadata``, are two memories, with the same content too.
        ``category`` is preference, convention, pattern, correction or fact, ``importance`` is a number from 0 to 1, and
        ``status`` is active, pending_review, rejected or archived. ``keywords=None`` extracts them from the content.
        ``source`` is a seq, a message or the name of a session; a seq or a message also counts as one of ``sources``.
        ``vector`` must come from the memory's embedder; without it, the content is embedded. Raises ``InvalidInput``
        for invalid values, ``EmbeddingMismatch`` if the vector's model or dimension differs from the project's.

        >>> project.add("The API listens on port 8080.", source="chat-42").category
        'fact'
        """
        checked, body = parse_options(options), (content, category, keywords, importance, metadata)
        origin = (source, source_context, status, vector, occurred)
        given = FactInput.parse(self._core, checked.sources, *body, *origin)
        return facts.add(self._stream, given, checked)

    @mutation
    def upsert(
        self,
        content: str,
        *,
        category: str = "fact",
        keywords: Sequence[str] | None = None,
        importance: float = 0.5,
        metadata: dict[str, Any] | None = None,
        source: Any = None,
        source_context: str | None = None,
        status: str = "active",
        vector: "Numbers" = None,
        occurred: "int | datetime.datetime | None" = None,
        threshold: float | None = None,
        **options: Unpack[MutationOptions],
    ) -> Upserted:
        """Merge a memory into the most similar active one if their cosine exceeds ``threshold``, else add it.

        A merge keeps the content that contains the words of the other one, regardless of case, spaces and punctuation,
        and the existing one if each contains the other; otherwise it joins both with ``" | "``. It takes the higher
        importance and all keywords, and keeps category and metadata. A statement that contradicts the existing one, in
        a number, a sign, a name, a negation or the order of its words, is added instead of merged. If the content is
        empty or nothing would change, the upsert is skipped. What two users said, by the ``"said_by"`` of ``metadata``,
        is never merged. ``threshold=None`` uses the embedder's threshold, 0.85 for the built-in one.

        >>> project.upsert("Deploys happen on Fridays.").outcome
        'inserted'
        >>> project.upsert("Deploys happen on Fridays.").outcome
        'skipped'
        """
        checked, body = parse_options(options), (content, category, keywords, importance, metadata)
        origin = (source, source_context, status, vector, occurred)
        given = FactInput.parse(self._core, checked.sources, *body, *origin)
        from refold.memory import maintenance

        return maintenance.upsert(self._stream, given, threshold, checked)

    @mutation
    def unmerge(self, seq: int | Upserted, **options: Unpack[MutationOptions]) -> Entries:
        """Reverse the merge at a seq; return the memory that had absorbed another, and the other one if it is restored.

        Only fields that still have the merged value are reverted. Raises ``NotFound`` if there is no merge at that seq
        or its memory was deleted, ``InvalidInput`` if the merge was already reversed or erased, or if another memory
        now has the old content.
        """
        from refold.memory import maintenance

        return maintenance.unmerge(self._stream, seq, parse_options(options))

    @mutation
    def update(
        self,
        id: str | Entry,
        *,
        content: str | None = None,
        category: str | None = None,
        keywords: Sequence[str] | None = None,
        importance: float | None = None,
        metadata: dict[str, Any] | None = None,
        source_context: str | None = None,
        vector: "Numbers" = None,
        occurred: "int | datetime.datetime | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Entry:
        """Change the given fields of a memory and return it; new content is embedded. Raises ``NotFound`` if unknown.

        ``source_context`` is the passage that new content comes from, and ``occurred`` is when that was said: contexts
        show the content under that day. Both need ``content``.

        >>> project.update(project.add("The API listens on port 80."), content="It listens on port 443.").content
        'It listens on port 443.'
        """
        changes = FactChanges.parse(
            self._core, content, category, keywords, importance, metadata, vector, source_context, occurred
        )
        return facts.update(self._stream, check_id(id), changes, parse_options(options))

    @mutation
    def delete(self, id: str | Entry, **options: Unpack[MutationOptions]) -> None:
        """Remove a memory, which stays in the log. Raises ``NotFound`` if it is unknown."""
        stream, entry_id, checked = self._stream, check_id(id), parse_options(options)
        sources = self._core.sources(checked.sources)

        def decide(state: State) -> Event:
            return MemoryDeleted(sources, stream.entry(state.part(FACTS), entry_id).id)

        stream.write(decide, ("delete", entry_id), checked)

    @mutation
    def clear(self, **options: Unpack[MutationOptions]) -> int:
        """Remove every memory and return the number removed. Episodes stay."""
        stream, checked, counts = self._stream, parse_options(options), list[int]()
        sources = self._core.sources(checked.sources)

        def decide(state: State) -> Event | None:
            counts.append(len(state.part(FACTS).entries))
            return MemoriesCleared(sources) if counts[-1] else None

        noted = stream.write(decide, ("clear",), checked)
        if counts or noted is None:
            return counts[-1] if counts else 0
        return self._core.read_around(
            stream.name, lambda state: len(state.part(FACTS).entries), noted[1], is_before=True
        )

    @mutation
    def review(self, id: str | Entry, status: str, **options: Unpack[MutationOptions]) -> Entry:
        """Set a memory's status (active, pending_review, rejected, archived) and return it.

        By default, ``search`` finds only active memories.
        """
        entry_id, status, checked = check_id(id), checks.one_of(status, "status", STATUSES), parse_options(options)
        sources = self._core.sources(checked.sources)
        return self._stream.change(
            entry_id,
            lambda _, entry: None if entry.status == status else MemoryReviewed(sources, entry_id, status),
            apply_review,
            ("review", entry_id, status),
            checked,
        )

    @mutation
    def approve(self, id: str | Entry, **options: Unpack[MutationOptions]) -> Entry:
        """Make a memory active and return it."""
        return self.review(id, "active", **options)

    @mutation
    def reject(self, id: str | Entry, **options: Unpack[MutationOptions]) -> Entry:
        """Reject a memory and return it."""
        return self.review(id, "rejected", **options)

    @mutation
    def archive(self, id: str | Entry, **options: Unpack[MutationOptions]) -> Entry:
        """Archive a memory and return it."""
        return self.review(id, "archived", **options)

    # Maintenance.

    @mutation
    def decay(self, *, dry_run: bool = False, **options: Unpack[MutationOptions]) -> Outcome:
        """Multiply importance by 0.95 per week since the last access or decay; return how many memories changed.

        Whole days count, each of them once: a second run on the same day changes nothing.
        """
        from refold.memory import maintenance

        return maintenance.decay(self._stream, parse_options(options), dry_run=dry_run)

    @mutation
    def prune(self, min_importance: float, *, dry_run: bool = False, **options: Unpack[MutationOptions]) -> Outcome:
        """Remove the memories whose importance is below a bound; return how many were removed."""
        from refold.memory import maintenance

        return maintenance.prune(self._stream, min_importance, parse_options(options), dry_run=dry_run)

    @mutation
    def compact(
        self, threshold: float | None = None, *, dry_run: bool = False, **options: Unpack[MutationOptions]
    ) -> Outcome:
        """Merge active memories whose cosine exceeds a threshold (0.90) and return how many were merged.

        Repeats until no more memories can be merged.
        """
        from refold.memory import maintenance

        return maintenance.compact(self._stream, threshold, parse_options(options), dry_run=dry_run)

    # Finding.

    def search(
        self,
        query: str,
        *,
        top_k: int = 10,
        categories: Sequence[str] | None = None,
        statuses: Sequence[str] = ("active",),
        min_importance: float = 0.1,
        metadata: Mapping[str, Any] | None = None,
        ranking: str | Ranking = "hybrid",
        vector: "Numbers" = None,
        now: "int | datetime.datetime | None" = None,
        explain: bool = False,
        floor: float | None = None,
        approximate: bool = False,
    ) -> Hits:
        """Return the memories that best match a query, and write nothing; ``recall`` also records its hits.

        An empty query browses by importance and recency. The search covers memories of the given ``categories``
        (default: all) and ``statuses`` whose importance is at least ``min_importance`` and whose ``metadata`` has the
        given values, compared as in JSON: ``True`` is not 1. ``ranking`` is one of ``refold.RANKINGS`` or your own.
        Recency is relative to ``now``: by default the clock, or on a frozen handle the time of its seq. ``vector``
        is that of the query by the model of the project's memories, on a frozen handle by the one of then.
        ``Hit.parts`` holds the raw signals that have a weight, or all of them with ``explain``.

        If the best score is below ``floor``, nothing is found; 0 means no floor. By default, ``"hybrid"`` uses the
        embedder's floor, which ``Hits.floor`` reports, and drops scores of 0 or less; other rankings, and vectors of
        unknown models, have no floor.

        ``Hits.exact`` is true: the hits are proved to be the best. With ``approximate``, a large project can answer
        from a graph instead, several times faster; ``Hits.exact`` is then false. A few hits in a thousand can be
        missing, more if many vectors are nearly alike. Raises ``EmbeddingMismatch`` if the project's model cannot embed
        the query.
        """
        from refold.memory import search

        checked = search.check_query(
            top_k, categories, statuses, min_importance, metadata, ranking, vector, now, explain, floor, approximate
        )
        return search.search(self._stream, query, checked)

    def search_many(
        self, queries: Sequence[str], *, vectors: "Sequence[Numbers] | None" = None, **options: "Unpack[SearchOptions]"
    ) -> ManyHits:
        """Search for each query in one state; takes the options of ``search`` except ``vector`` and ``approximate``.

        Up to ``QUERIES_COUNT_MAX`` queries are embedded and multiplied with all memories together, which costs less
        than one by one. ``vectors`` has one vector per query, or ``None`` in its place. Raises the same errors as
        ``search``; an error in one query fails the whole call.

        >>> [hits.query for hits in project.search_many(["which port?", "which host?"], top_k=3)]
        ['which port?', 'which host?']
        """
        from refold.memory import search

        return search.search_many(self._stream, queries, vectors, options)

    @mutation
    def recall(
        self,
        query: str,
        *,
        top_k: int = 10,
        categories: Sequence[str] | None = None,
        statuses: Sequence[str] = ("active",),
        min_importance: float = 0.1,
        metadata: Mapping[str, Any] | None = None,
        ranking: str | Ranking = "hybrid",
        vector: "Numbers" = None,
        now: "int | datetime.datetime | None" = None,
        explain: bool = False,
        floor: float | None = None,
        conversation: "str | Conversation | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Hits:
        """Search like ``search``, and record which memories were found, and for which conversation.

        Each hit counts as an access. A search without hits is recorded too. The event's sources include the
        conversation's last message. Returns the memories as they were found.

        >>> [hit.entry.access_count for hit in project.recall("which port does the API listen on?")]
        [0]
        >>> [entry.access_count for entry in project.list()][-1]
        1
        """
        from refold.memory import search

        checked = search.check_query(
            top_k, categories, statuses, min_importance, metadata, ranking, vector, now, explain, floor
        )
        return search.recall(self._stream, query, checked, conversation, parse_options(options))

    # Reading.

    def get(self, id: str | Entry) -> Entry | None:
        """Return a memory, or ``None`` if there is none; an erased memory has only its id."""
        entry_id = check_id(id)
        return self._stream.read(
            lambda facts: Entry(entry_id, erased=True) if entry_id in facts.erased else facts.entries.get(entry_id)
        )

    def list(
        self, *, category: str | None = None, status: str | None = None, offset: int = 0, limit: int | None = None
    ) -> Entries:
        """Return a page of memories in the order in which they were added, of one category or status if given."""
        begin = checks.count(offset, "offset")
        end = None if limit is None else begin + checks.count(limit, "limit")
        return facts.entries_of(self._stream, category, status)[begin:end]

    def count(self, *, category: str | None = None, status: str | None = None) -> int:
        """Return the number of memories, of one category or status if given."""
        return len(facts.entries_of(self._stream, category, status))

    def stats(self) -> ProjectStats:
        """Return counts by category and status, the mean importance, and the number of episodes by kind."""
        from refold.memory import search

        return search.stats(self._stream)

    def history(self, id: str | Entry) -> Events:
        """Return the events that touched a memory, with stamps, oldest first; raise ``NotFound`` if there are none."""
        entry_id = check_id(id)
        own = [recorded for recorded in self.events() if entry_id in (changed_ids(recorded.event) or ())]
        if not own:
            raise self._stream.not_found(entry_id)
        return own

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the project's events with a seq greater than ``after``, each with its stamp."""
        self._core.check_after(after, self._at)
        return self._core.engine.reader.events(self._core.key(self._stream.name), after, self._at)

    def at(self, at: "int | datetime.datetime") -> "Project":
        """Return the project as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``."""
        return Project(self._core, self.name, seq_at(self._core.engine, at, self._at))

    # Episodes.

    @mutation
    def record_episode(
        self,
        kind: str,
        *,
        session: str | None = None,
        task: str,
        approach: str = "",
        outcome: str = "",
        tools: Sequence[str] = (),
        keywords: Sequence[str] | None = None,
        vector: "Numbers" = None,
        occurred: "int | datetime.datetime | None" = None,
        **options: Unpack[MutationOptions],
    ) -> Episode:
        """Record a task, its approach and its outcome, and return the episode.

        ``kind`` is success, failure or discovery. ``keywords=None`` extracts them from the three texts.
        """
        fields = (kind, session, task, approach, outcome, tools, keywords, vector, occurred)
        from refold.memory import search

        return search.record(self._stream, *fields, parse_options(options))

    def search_episodes(
        self,
        query: str,
        *,
        top_k: int = 10,
        kinds: Sequence[str] | None = None,
        ranking: str | Ranking = "hybrid",
        vector: "Numbers" = None,
        now: "int | datetime.datetime | None" = None,
        floor: float | None = None,
    ) -> Hits:
        """Return the episodes of the given ``kinds`` that best match a query, or the newest ones for an empty query."""
        from refold.memory import search

        checked = search.check_query(top_k, None, (), 0.0, None, ranking, vector, now, False, floor)  # noqa: FBT003
        return search.search_episodes(self._stream, query, kinds, checked)

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> Receipt:
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events derived from it and the boards of its nodes are erased too, unless ``derived="keep"``. Its conversations
        are not: erase them first.
        """
        from refold.memory import store

        return store.erase_stream(self._core, self._stream.name, self._at, derived, forks)
