"""The core that all handles of a memory share, and the base class of the handles on a stream."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from refold import checks, fold
from refold.engine import reader
from refold.engine.batch import active_batch
from refold.engine.conflicts import ANY, EXISTS, NO_STREAM, check_version
from refold.engine.engine import Engine
from refold.engine.keys import KeyMap
from refold.engine.origin import ACTING, BY_HOST, Origin, origin_in
from refold.engine.reader import VERB_BYTES, Request
from refold.engine.streams import key_of
from refold.engine.transaction import Decide, make_mutation, place_of
from refold.entry import EmbedderSwitched
from refold.errors import Closed, InvalidInput, ReadOnly, WrongVersion
from refold.event import ConversationOpened, Event, ForkDropped, Recorded, Stamp, View, pack_json
from refold.fold import State
from refold.memory.options import MutationOptions, parse_options
from refold.memory.references import sources_of
from refold.message import Message
from refold.text import TokenCounter
from refold.threads import enter_once, forkable_lock
from refold.views.base import V
from refold.views.profile import Note
from refold.views.window import POLICY

if TYPE_CHECKING:
    from refold.embedders import Embedder, Embedding
    from refold.engine.aio import AsyncWriter
    from refold.engine.scan import EventFilter
    from refold.engine.subscriptions import Subscriber, Subscription
    from refold.index.ranking import Ranking
    from refold.memory.watches import Watch

T = TypeVar("T")


class ClosedEngine:
    """Replaces the engine of a closed handle while other handles keep the store open."""

    is_closed = True

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, _: str) -> NoReturn:
        raise Closed(self._reason)


class Core:
    """The shared part of the handles of one memory: the engine, the branch, and the constructor's defaults."""

    __slots__ = (
        "__weakref__",
        "_async_writer",
        "_embedding",
        "_main",
        "_parts",
        "_switches",
        "_switching",
        "_unsettled",
        "before_close",
        "branch",
        "counter",
        "embedder",
        "engine",
        "leave",
        "moment_ns",
        "new_id",
        "own_watches",
        "path",
        "ranking",
        "subscriptions",
        "timezone",
        "watches",
        "window_tokens",
    )

    def __init__(
        self,
        engine: Engine,
        *,
        counter: TokenCounter,
        timezone: str,
        window_tokens: int,
        path: str | None,
        embedder: "Embedder | None" = None,
        branch: int = 0,
        main: "Core | None" = None,
    ) -> None:
        self.embedder = embedder  # The embedder that the caller chose, ``None`` for the built-in one.
        self._embedding: Embedding | None = None
        self._switches: list[tuple[int, int, Embedding]] = []
        """On the main line's core, for each reembedding: its branch, its seq, and the embedding in use from then on."""
        self._switching = forkable_lock()
        self._unsettled: tuple[int, int, Embedding] | None = None
        """On the main line's core: a reembedding that was interrupted, with the head before its last commit."""
        self.watches: list[Watch] = [] if main is None else main.watches
        self.own_watches: list[Watch] = []  # The subset of ``watches`` that ends with this memory.
        self.ranking: Ranking | None = None  # On a scenario's core: the default ranking of its searches.
        self.moment_ns: int | None = None  # On the core of ``at(occurred=...)``: that time.
        self.branch = branch
        self.engine = engine
        self.new_id = engine.reader.new_id
        self.counter = counter
        self.timezone = timezone
        self.window_tokens = window_tokens
        self.path = path
        self._async_writer: AsyncWriter | None = None
        self._parts: dict[Callable[[Core], Any], Any] = {}  # On the main line's core, by what made them.
        self._main = self if main is None else main
        self.leave: Callable[[Core], None] | None = None
        """On a memory's core: how it leaves the store, which is closed with the last memory that has it open."""
        self.before_close: list[Callable[[], None]] = []
        """On the main line's core: what must end before the store is closed."""
        self.subscriptions: list[Subscription] = []

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        # Every handle holds a core, so that this is what pickling or copying any of them comes to.
        raise TypeError(
            "a memory and its handles cannot be pickled or deep-copied, because they belong to a store that is open in "
            "this process; pass the path and the id, and open them there: Memory(path).conversation(id)"
        )

    @property
    def async_writer(self) -> "AsyncWriter":
        """The writer for asyncio tasks, shared by all branches."""
        if self._main is not self:
            return self._main.async_writer
        if self._async_writer is None:
            from refold.engine.aio import AsyncWriter  # noqa: PLC0415 - asyncio is loaded only when used

            self._async_writer = AsyncWriter(self.engine)
        return self._async_writer

    def part(self, make: Callable[["Core"], T]) -> T:
        """Return the index, cache or worker that ``make(core)`` makes on first use; all branches share it."""
        main = self._main
        part: T | None = main._parts.get(make)  # noqa: SLF001 - same class
        return main._parts.setdefault(make, make(main)) if part is None else part  # noqa: SLF001

    @property
    def embedding(self) -> "Embedding":
        """The embedding of texts, shared by all branches except those that were reembedded."""
        return self.embedding_at(None)

    def embedding_at(self, at: int | None) -> "Embedding":
        """Return the embedding in use at a seq, according to the changes that this memory has seen."""
        main = self._main
        if main._unsettled is not None:  # noqa: SLF001 - same class
            main._settle_switch()  # noqa: SLF001
        if main._switches:  # noqa: SLF001
            with self.engine.reader.state_lock:
                bounds = self.engine.reader.streams.bounds(self.branch, self.engine.reader.head if at is None else at)
            for branch, seq, switched in reversed(main._switches):  # noqa: SLF001
                if seq <= bounds.get(branch, 0):
                    return switched
        if main._embedding is None:  # noqa: SLF001
            from refold.embedders import Embedding  # noqa: PLC0415 - loaded only when needed

            main._embedding = Embedding(main.embedder)  # noqa: SLF001
        return main._embedding  # noqa: SLF001

    def switch(self, embedding: "Embedding", commit: Callable[[], int | None]) -> bool:
        """Call ``commit`` and, if it succeeds, switch this branch to another embedding; return whether it succeeded.

        ``commit`` returns the seq from which the embedding is in use, or ``None`` if it failed.
        """
        main = self._main
        with enter_once(main._switching):  # noqa: SLF001 - same class
            head = self.engine.reader.current_head()
            try:
                seq = commit()
                if seq is not None:
                    main._switches.append((self.branch, seq, embedding))  # noqa: SLF001
            except BaseException:
                main._unsettled = (self.branch, head, embedding)  # noqa: SLF001
                raise
        return seq is not None

    def _settle_switch(self) -> None:
        """Look up in the log whether an interrupted reembedding had switched."""
        if self._unsettled is None:
            return
        branch, head, embedding = self._unsettled
        for event, stamp in self.engine.reader.all_events(head, None, branch):
            if isinstance(event, EmbedderSwitched) and event.model == embedding.embedder.id:
                self._switches.append((branch, stamp.seq, embedding))
                break
        self._unsettled = None

    def has_switched(self, at: int | None, embedding: "Embedding") -> bool:
        """Return whether a different embedding is in use now; wait for a switch in progress."""
        with enter_once(self._main._switching):  # noqa: SLF001 - same class
            return self.embedding_at(at) is not embedding

    def close(self) -> None:
        """Close the engine, and end the thread that writes for asyncio; on a branch, close only the handles.

        An engine that several memories share is closed with the last of them.
        """
        if self.leave is not None:
            self.leave(self)
            return
        if self._main is not self:
            reason = "this handle on a fork is closed; take another one with memory.fork(name)"
            self.engine = cast("Engine", ClosedEngine(reason))
            return
        for end in self.before_close:
            end()
        self.engine.close()
        if self._async_writer is not None:
            self._async_writer.close()

    def subscribe(self, function: "Subscriber", after: int | None) -> "Subscription":
        """Call a function with the branch's events after a seq, until the memory or the subscription is closed."""
        subscription = self.engine.subscribe(function, after, self.branch)
        self.subscriptions = [each for each in self.subscriptions if each.is_alive]
        self.subscriptions.append(subscription)
        return subscription

    def watch(self, watch: "Watch") -> None:
        """Add a watch, which is called before a message leaves a window, until it or this memory is closed."""
        lists = (self.watches, self.own_watches)
        for watches in lists:
            watches.append(watch)

        def close() -> None:
            for watches in lists:
                if watch in watches:
                    watches.remove(watch)

        watch.on_close(close)

    def with_engine(self, engine: Engine) -> "Core":
        """Return a core for the same branch over the engine of a scenario, with the same defaults."""
        return self._copy(engine, self.branch, None)

    def with_branch(self, branch: int) -> "Core":
        """Return a core for another branch, with the same defaults."""
        return self._copy(self.engine, branch, self._main)

    def _copy(self, engine: Engine, branch: int, main: "Core | None") -> "Core":
        return Core(
            engine,
            counter=self.counter,
            timezone=self.timezone,
            window_tokens=self.window_tokens,
            path=self.path,
            embedder=self.embedder,
            branch=branch,
            main=main,
        )

    def key(self, stream: str) -> str:
        """Return the key under which the engine knows a stream of this core's branch."""
        return key_of(self.branch, stream)

    def now_ns(self, at: int | None) -> int:
        """Return the time that a read refers to: now, or for a frozen handle that of its seq or of ``occurred``."""
        if at is None:
            return self.engine.reader.now_ns()
        return reader.clock_at_seq(self.engine.reader.log, at) if self.moment_ns is None else self.moment_ns

    def read(self, stream: str, query: Callable[[fold.State], T], at: int | None) -> T:
        """Apply ``query`` to a stream's state: at a seq, in this context's batch, or live."""
        if at is None:
            batch = active_batch(self.engine)
            if batch is not None:
                with self.engine.reader.state_lock:
                    return query(batch.transaction.state(self.key(stream)))
        return self.read_written(stream, query, at)

    def read_lightly(self, stream: str, query: Callable[[fold.State], T], at: int | None) -> T:
        """Apply ``query`` to a stream's state without registering a read by an open batch.

        If the batch has read and changed the stream, that is the batch's state, else the committed state.
        """
        batch = None if at is not None else active_batch(self.engine)
        key = self.key(stream)
        if batch is not None and key in batch.transaction.reads and batch.transaction.places.get(key):
            return self.read(stream, query, at)
        return self.read_written(stream, query, at)

    def read_key(self, stream: str, keys: KeyMap[V], key: str, at: int | None) -> V | None:
        """Return the value of a key, or ``None`` if there is none; an open batch registers a read of that key only."""
        batch = None if at is not None else active_batch(self.engine)
        if batch is not None:
            value: V | None = batch.transaction.value(self.key(stream), keys, key)
            return value
        return self.read_written(stream, lambda state: keys(state).values.get(key), at)

    def look(self, stream: str, view: View[Any], query: Callable[[fold.State], T], at: int | None) -> T:
        """Apply ``query`` to a view of a stream's state, this context's batch included, without registering a read."""
        batch = None if at is not None else active_batch(self.engine)
        if batch is not None:
            with self.engine.reader.state_lock:
                return query(batch.transaction.look(self.key(stream), view))
        return self.read_written(stream, query, at)

    def read_written(self, stream: str, query: Callable[[fold.State], T], at: int | None = None) -> T:
        """Apply ``query`` to a stream's committed state, ignoring an open batch."""
        return self.engine.reader.read(self.key(stream), query, at)

    def event(self, seq: int) -> Recorded:
        """Return the event at a seq, on any branch, or at a provisional seq of this context's batch."""
        if seq < 0 and (batch := active_batch(self.engine)) is not None:
            return batch.transaction.recorded_event(place_of(seq))
        with self.engine.reader.state_lock:
            return self.engine.reader.loader.recorded_events([seq])[0]

    def events(
        self,
        sought: "EventFilter",
        stream: str | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        backwards: bool = False,
    ) -> Iterator[Recorded]:
        """Yield the ``sought`` events of this branch, or of one of its streams, with ``after < seq <= until``."""
        from refold.engine.scan import events_with  # noqa: PLC0415 - loaded only when used

        return events_with(
            self.engine.reader, sought, branch=self.branch, stream=stream, after=after, until=until, backwards=backwards
        )

    def read_around(self, stream: str, query: Callable[[fold.State], T], stamp: Stamp, *, is_before: bool = False) -> T:
        """Apply ``query`` to a stream's state after an event, or before it; the event can belong to the open batch."""
        if stamp.seq > 0:
            return self.read_written(stream, query, stamp.seq - is_before)
        batch = active_batch(self.engine)
        assert batch is not None, "a provisional event outside a batch"
        with self.engine.reader.state_lock:
            return query(batch.transaction.state_before(self.key(stream), place_of(stamp.seq) + (not is_before)))

    def write(
        self,
        stream: str,
        make: Event | Decide,
        *,
        at: int | None,
        call: tuple[Any, ...],
        opening: Event | None = None,
        origin: Origin = BY_HOST,
        expected: object = ANY,
        request_id: str | None = None,
        in_main: bool = False,
    ) -> Recorded | None:
        """Write to a stream that has no handle, as ``Handle._write`` does.

        With ``in_main``, the event goes to the main line, whatever the branch of this core.
        """
        handle = Handle(self, stream, at, opening)
        if in_main:
            handle._key = stream  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        options: MutationOptions = {"expected": expected, "request_id": request_id}
        return handle._write(make, call, options, origin)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def answer(self, request: Request) -> Recorded | None:
        """Return the last event of an answered request, once reads show it; raise ``LookupError`` if not answered."""
        batch = active_batch(self.engine)
        if batch is not None and request.id_hash in batch.transaction.requests:
            places = batch.transaction.answer_places(request)
            return batch.transaction.recorded_event(places[-1]) if places else None
        recorded = self.engine.reader.find_answer(request)
        if recorded is not None:
            self._await_fold(recorded.stamp.seq)
        return recorded

    def _await_fold(self, seq: int) -> None:
        """Wait until reads show a durable event, whose commit may not be folded yet."""
        if seq > self.engine.reader.head:
            with self.engine.writer.exclusive():
                pass

    def request(self, request_id: str, stream: str, call: tuple[Any, ...]) -> Request:
        """Return a request as the store keeps it; on a branch, answers of its ancestors before the fork also count."""
        packed_id, keyed_hash = checks.request_id(request_id), self.engine.reader.keyed_hash
        verb_hash = keyed_hash(b"verb" + pack_json([stream.partition("/")[0], call[0]]))
        content_hash = keyed_hash(b"call" + pack_json([stream, *call]))
        call_hash = verb_hash[:VERB_BYTES] + content_hash[VERB_BYTES:]
        if not self.branch:
            return Request(keyed_hash(b"id" + packed_id), call_hash)
        with self.engine.reader.state_lock:
            bounds = self.engine.reader.streams.bounds(self.branch, self.engine.reader.head)
        own, *elders = [
            (keyed_hash(reader.request_prefix(branch) + packed_id), until) for branch, until in bounds.items()
        ]
        return Request(own[0], call_hash, tuple(elders))

    def find_answer(self, request_id: str, stream: str, call: tuple[Any, ...]) -> list[Event] | None:
        """Return all events of a request that was answered before, or ``None`` if it was not."""
        request = self.request(request_id, stream, call)
        try:
            self.answer(request)
        except LookupError:
            return None
        batch = active_batch(self.engine)
        if batch is not None and request.id_hash in batch.transaction.requests:
            return [batch.transaction.events[place] for place in batch.transaction.answer_places(request)]
        return self.engine.reader.answer_events(request)

    def check_after(self, after: object, at: int | None) -> int:
        """Check and return the seq after which a read begins: no later than the head, or the seq of a frozen handle."""

        def check(head: int) -> int:
            seq, last = checks.count(after, "after"), head if at is None else at
            if seq > last:
                raise InvalidInput(
                    f"after is {checks.brief(seq)}, and the last event has seq {last}; give a seq up to it"
                )
            return seq

        return self.engine.check_at_head(check)

    def unchanged_seq(self, stream: str, request_id: str | None, call: tuple[Any, ...]) -> int | None:
        """Return the seq at which an answered request changed nothing; ``None`` if that was in this context's batch."""
        assert request_id is not None, "an answer without a request"
        request, batch = self.request(request_id, stream, call), active_batch(self.engine)
        if batch is not None and request.id_hash in batch.transaction.requests:
            return None
        seq = self.engine.reader.unchanged_seq(request)
        self._await_fold(seq)
        return seq

    def read_unchanged(
        self, stream: str, query: Callable[[fold.State], T], request_id: str | None, call: tuple[Any, ...]
    ) -> T:
        """Apply ``query`` to the state of a stream in which an answered request changed nothing."""
        seq, batch = self.unchanged_seq(stream, request_id, call), active_batch(self.engine)
        if seq is not None:
            return self.read_written(stream, query, seq)
        assert batch is not None, "only a request of an open batch has no seq"
        assert request_id is not None, "an answer without a request"
        places = batch.transaction.answer_places(self.request(request_id, stream, call))
        with self.engine.reader.state_lock:
            return query(batch.transaction.state_before(self.key(stream), places.stop))

    def refuse_frozen(self, stream: str, at: int | None) -> None:
        """Raise ``ReadOnly`` for a handle that is frozen at a seq."""
        if at is not None:
            raise ReadOnly(f"{stream} is frozen at seq {at}; mutate the live handle, or fork the live one at this seq")

    def opening(
        self,
        project: str | None = None,
        window_tokens: int | None = None,
        embed: bool | None = None,  # noqa: FBT001 - as they are recorded
        policy: int = POLICY,
    ) -> ConversationOpened:
        """Return the event that opens a conversation, with the given values or else the memory's defaults."""
        budget = self.window_tokens if window_tokens is None else window_tokens
        return ConversationOpened((), budget, self.counter.id, policy, project, embed or None)

    def version(self, stream: str) -> int:
        """Return the version of a stream, including the events that this context's batch has added."""
        batch = active_batch(self.engine)
        if batch is None:
            return self.engine.reader.version(self.key(stream))
        return batch.transaction.version(self.key(stream))

    def check_version(self, stream: str, expected: object) -> None:
        """Raise ``WrongVersion`` unless a stream has the version expected by the caller of a verb on another stream."""
        if expected != ANY:
            known = self.engine.reader.find(self.key(stream))
            check_version(stream, 0 if known is None else known.version, _check_expected(expected))

    def check_head(self, expected: object) -> None:
        """Raise ``WrongVersion`` unless the whole memory has the version that the caller expects: its head."""
        if expected != ANY:
            check_version("the memory", self.engine.reader.head, _check_expected(expected))

    def counts(self, count: Callable[[], str]) -> str:
        """Return the counts for the ``repr`` of a handle, which must never fail."""
        try:
            return count()
        except Closed:
            return "closed"

    def expect_event(self, message: Message) -> None:
        """Let the engine replace a message's event, which names others of this context's batch, at the commit.

        The message's stamp is filled in regardless.
        """
        batch = active_batch(self.engine)
        assert batch is not None, "a provisional result outside a batch"
        batch.transaction.messages.append((place_of(message.stamp.seq), message))

    def date_note(self, note: Note, stamp: Stamp) -> Note:
        """Return a note; if it belongs to this context's batch, the engine fills in its time at the commit."""
        batch = active_batch(self.engine)
        if batch is not None and stamp.seq < 0:
            note = Note(note.day, note.text, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            batch.transaction.notes.append((place_of(stamp.seq), note))
        return note

    def sources(self, sources: Sequence[Any]) -> tuple[int, ...]:
        """Resolve sources to seqs."""
        if isinstance(sources, tuple) and not sources:
            return ()
        return sources_of(self.engine, sources)


def _check_expected(expected: object) -> object:
    if expected in (ANY, NO_STREAM, EXISTS):
        return ANY if expected == ANY else expected
    if not isinstance(expected, int) or isinstance(expected, bool) or expected < 0:
        raise InvalidInput(f"expected is {checks.brief(expected)}; give ANY, NO_STREAM, EXISTS or a version from 0 on")
    return expected


def core_of(handle: Any) -> tuple[Core, int | None]:
    """Return the core of a handle and the seq at which it is frozen, for the layers above."""
    return handle._core, handle._at  # noqa: SLF001 - not part of the public handle


def stream_of(handle: Any) -> str:
    """Return the name of the stream of a handle, for the layers above."""
    stream = handle._stream  # noqa: SLF001 - as above
    return stream if isinstance(stream, str) else cast("str", stream.name)


class Handle:
    """The base class of every handle on a stream: the core, the stream's name, the seq at which it is frozen."""

    __slots__ = ("_at", "_core", "_is_settled", "_key", "_opening", "_stream")

    def __init__(self, core: Core, stream: str, at: int | None, opening: Event | None = None) -> None:
        self._core = core
        self._is_settled = True  # Nothing has to be checked once before the first write.
        self._stream = stream
        self._key = stream if not core.branch else core.key(stream)
        self._at = at
        self._opening = opening

    def _read(self, query: Callable[[State], T]) -> T:
        return self._core.read(self._stream, query, self._at)

    def _source_seqs(self, options: MutationOptions) -> tuple[int, ...]:
        return self._core.sources(options.get("sources", ()))

    def _guard(self, make: Event | Decide) -> Event | Decide:
        """Do what a kind of handle has to do before a write, and return the event or decision to write."""
        return make

    def _write(
        self,
        make: Event | Decide,
        call: tuple[Any, ...],
        options: MutationOptions,
        origin: Origin = BY_HOST,
    ) -> Recorded | None:
        """Commit a mutation, or add it to this context's batch; return its event, or ``None`` if nothing changed.

        A repeated ``request_id`` must come with the same ``call`` as the first. The actor and cause of ``origin`` apply
        only if the context sets none.
        """
        core, engine = self._core, self._core.engine
        if not self._is_settled or core.watches or ForkDropped in engine.reader.types_written:
            make = self._guard(make)
        request: Request | None = None
        expected: object = ANY
        if self._at is not None:
            core.refuse_frozen(self._stream, self._at)
        if not engine.reader.is_writable:
            engine.reader.check_writable()
        if options:
            expected, request_id, _ = parse_options(options)
            if expected != ANY:
                expected = _check_expected(expected)
            if request_id is not None:
                request = core.request(request_id, self._stream, call)
        if ACTING.get():
            origin = origin_in(engine.reader, origin)
        mutation = make_mutation((self._key, make, self._opening, origin, expected, request))
        if (batch := active_batch(engine)) is None:
            return engine.writer.submit(mutation)
        if request is not None:
            engine.refresh()  # A repeated request can have an answer that this process has not read yet.
            with suppress(LookupError):
                return core.answer(request)
        try:
            return batch.transaction.apply(mutation)
        except WrongVersion:
            if engine.shared is None:
                raise
            engine.refresh()  # The local copy of a log on a server can be slightly out of date.
            return batch.transaction.apply(mutation)
