"""The door between the public handles and the engine: the options that every mutation takes, in one place."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypeVar, cast

from refold import checks, fold
from refold.engine import batch as batches
from refold.engine import branches, noting
from refold.engine.admission import Deferred, Verb, check_version
from refold.engine.core import Engine
from refold.engine.keys import key_of
from refold.engine.pending import ANY, EXISTS, NO_STREAM, Decide, Noted, Pending, Request, place_of
from refold.engine.slots import Slot
from refold.engine.streams import STORE_STREAM
from refold.errors import Closed, InvalidInput, ReadOnly
from refold.event import ConversationOpened, Event, Stamp, pack_json
from refold.message import Message, MessageAppended
from refold.renewal import EmbedderSwitched
from refold.text import TokenCounter
from refold.views.journal import Note
from refold.views.window import POLICY

if TYPE_CHECKING:
    from refold.embedders import Embedder
    from refold.engine.ticks import Ticks
    from refold.memory.embedding import Embedding

T = TypeVar("T")

Sources: TypeAlias = Sequence[Any]
"""What a mutation was derived from: seqs, or results that have one."""

Progress: TypeAlias = Callable[[int, int], None] | None
"""What is called with how much is done, and how much there is."""


class Options(NamedTuple):
    """What every mutation takes beside its own arguments."""

    expected: object = ANY
    request_id: str | None = None
    sources: Sequence[Any] = ()


class Released:
    """What stands in the place of the engine once the handle on a fork was closed."""

    is_closed = True

    def __getattr__(self, _: str) -> NoReturn:
        """Refuse every use."""
        message = "this handle on a fork is closed; take another one with memory.fork(name)"
        raise Closed(message)


class Door:
    """What the handles of one memory share: the engine, the branch, and the defaults that a constructor gave."""

    __slots__ = (
        "_embedding",
        "_main",
        "_switches",
        "_switching",
        "_ticks",
        "_unsettled",
        "branch",
        "counter",
        "embedder",
        "engine",
        "path",
        "timezone",
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
        main: "Door | None" = None,
    ) -> None:
        self.embedder = embedder
        """The embedder that the caller chose, ``None`` for the built-in one."""
        self._embedding: Embedding | None = None
        self._switches: list[tuple[int, int, Embedding]] = []
        """Of the main line's door: branch, seq and what has made vectors there since, for each reembedding."""
        self._switching = threading.Lock()
        self._unsettled: tuple[int, int, Embedding] | None = None
        """Of the main line's door: a reembedding that was cut off, with the head before its last commit."""
        self.branch = branch
        self.engine = engine
        self.counter = counter
        self.timezone = timezone
        self.window_tokens = window_tokens
        self.path = path
        self._ticks: Ticks | None = None
        self._main = self if main is None else main

    @property
    def ticks(self) -> "Ticks":
        """What the tasks of event loops write through, the same for all branches."""
        if self._main is not self:
            return self._main.ticks
        if self._ticks is None:
            from refold.engine.ticks import Ticks  # noqa: PLC0415 - asyncio is loaded only by those who use it

            self._ticks = Ticks(self.engine)
        return self._ticks

    @property
    def embedding(self) -> "Embedding":
        """What makes vectors of texts, the same for all branches but those that were embedded anew."""
        return self.embedding_at(None)

    def embedding_at(self, at: int | None) -> "Embedding":
        """Return what made vectors of texts at a seq, as far as this memory has seen it change."""
        main = self._main
        if main._unsettled is not None:  # noqa: SLF001 - its own kind
            main._settle_switch()  # noqa: SLF001
        if main._switches:  # noqa: SLF001
            with self.engine.state_lock:
                bounds = self.engine.streams.bounds(self.branch, self.engine.head if at is None else at)
            for branch, seq, switched in reversed(main._switches):  # noqa: SLF001
                if seq <= bounds.get(branch, 0):
                    return switched
        if main._embedding is None:  # noqa: SLF001
            from refold.memory.embedding import Embedding  # noqa: PLC0415 - loaded only by those who remember

            main._embedding = Embedding(main.embedder)  # noqa: SLF001
        return main._embedding  # noqa: SLF001

    def switch(self, embedding: "Embedding", commit: Callable[[], int | None]) -> bool:
        """Let another embedder make the vectors of this branch, once what ``commit`` does is done.

        That returns the seq from which on it is so, ``None`` if it failed; returns whether it did not.
        """
        main = self._main
        with main._switching:  # noqa: SLF001 - its own kind
            head = self.engine.current_head()
            try:
                seq = commit()
                if seq is not None:
                    main._switches.append((self.branch, seq, embedding))  # noqa: SLF001
            except BaseException:
                main._unsettled = (self.branch, head, embedding)  # noqa: SLF001
                raise
        return seq is not None

    def _settle_switch(self) -> None:
        """Look up in the log whether a reembedding that was cut off had switched."""
        if self._unsettled is None:
            return
        branch, head, embedding = self._unsettled
        for event, stamp in self.engine.all_events(head, None, branch):
            if isinstance(event, EmbedderSwitched) and event.model == embedding.embedder.id:
                self._switches.append((branch, stamp.seq, embedding))
                break
        self._unsettled = None

    def has_switched(self, at: int | None, embedding: "Embedding") -> bool:
        """Return whether another embedder makes vectors by now; waits for one that is about to."""
        with self._main._switching:  # noqa: SLF001 - its own kind
            return self.embedding_at(at) is not embedding

    def close(self) -> None:
        """Close the engine, and end the thread that writes for event loops; of a branch, the handles alone."""
        if self._main is not self:
            self.engine = cast("Engine", Released())
            return
        self.engine.close()
        if self._ticks is not None:
            self._ticks.close()

    def to(self, branch: int) -> "Door":
        """Return a door to another branch, with the same defaults."""
        return Door(
            self.engine,
            counter=self.counter,
            timezone=self.timezone,
            window_tokens=self.window_tokens,
            path=self.path,
            embedder=self.embedder,
            branch=branch,
            main=self._main,
        )

    def key(self, stream: str) -> str:
        """Return the key under which the engine knows a stream of this door's branch."""
        return key_of(self.branch, stream)

    def read(self, stream: str, query: Callable[[fold.State], T], at: int | None) -> T:
        """Return what ``query`` makes of a stream's state: at a seq, in this context's batch, or live."""
        if at is None:
            batch = batches.active(self.engine)
            if batch is not None:
                with self.engine.state_lock:
                    return query(noting.state_in_batch(self.engine, batch.pending, self.key(stream)))
        return self.read_written(stream, query, at)

    def read_lightly(self, stream: str, query: Callable[[fold.State], T], at: int | None) -> T:
        """Return what ``query`` makes of a stream's state, in a way that counts as no read of it by an open batch.

        It is the batch's own state where that has read and changed the stream, and otherwise the one past the batch.
        """
        batch = None if at is not None else batches.active(self.engine)
        key = self.key(stream)
        if batch is not None and key in batch.pending.reads and batch.pending.places.get(key):
            return self.read(stream, query, at)
        return self.read_written(stream, query, at)

    def read_written(self, stream: str, query: Callable[[fold.State], T], at: int | None = None) -> T:
        """Return what ``query`` makes of a stream's state, past an open batch."""
        return self.engine.read(self.key(stream), query, at)

    def take(self, stream: str, event: MessageAppended, at: int | None, occurred_ns: int | None) -> Message | None:
        """Append a message if that needs no look at any state, alone or in this context's batch.

        ``None`` leaves it to ``note``.
        """
        engine = self.engine
        if at is not None or event.sources or not engine.is_writable:
            return None
        if self.branch:
            stream = self.key(stream)
        batch = batches.active(engine)
        if batch is not None:
            pending = batch.pending
            if stream not in pending.opened and stream not in pending.places and engine.is_open(stream):
                pending.opened.add(stream)
            return pending.take(stream, event, occurred_ns)
        stamp = engine.append_alone(stream, event, occurred_ns)
        return None if stamp is None else Message(event, stamp)

    def note(
        self,
        stream: str,
        make: Event | Decide,
        *,
        at: int | None,
        asked: tuple[Any, ...],
        opening: Event | None = None,
        occurred_ns: int | None = None,
        expected: object = ANY,
        request_id: str | None = None,
        in_main: bool = False,
    ) -> Noted | None:
        """Commit one mutation, or add it to this context's batch; return its event, ``None`` where nothing changed.

        ``in_main`` writes it into the main line, whichever branch asks.
        """
        engine = self.engine
        if at is not None:
            self.refuse_frozen(stream, at)
        if not engine.is_writable:
            engine.check_writable()
        if expected != ANY:
            expected = _checked_expected(expected)
        request = None if request_id is None else self.request(request_id, stream, asked)
        verb = Verb(stream if in_main else self.key(stream), make, opening, occurred_ns, expected, request)
        batch = batches.active(engine)
        return engine.commit(verb) if batch is None else self._note_in(batch, verb)

    def _note_in(self, batch: batches.Batch, verb: Verb) -> Noted | None:
        if verb.request is not None:
            try:
                return self.engine.answered(verb.request)
            except LookupError:
                self._refuse_repeat(batch.pending, verb.request)
        place = noting.note(self.engine, batch.pending, verb)
        return None if place is None else batch.pending.noted(place)

    def request(self, request_id: str, stream: str, asked: tuple[Any, ...]) -> Request:
        """Return a request as the store keeps it; what a branch's elders answered before it was forked counts too."""
        given, keyed_hash = checks.request_id(request_id), self.engine.keyed_hash
        asked_hash = keyed_hash(b"asked" + pack_json([stream, *asked]))
        if not self.branch:
            return Request(keyed_hash(b"id" + given), asked_hash)
        with self.engine.state_lock:
            bounds = self.engine.streams.bounds(self.branch, self.engine.head)
        own, *elders = [
            (keyed_hash(branches.request_prefix(branch) + given), until) for branch, until in bounds.items()
        ]
        return Request(own[0], asked_hash, tuple(elders))

    def answered(self, request_id: str, stream: str, asked: tuple[Any, ...]) -> list[Event] | None:
        """Return all events of a request that was answered before, ``None`` if it was not; no batch may repeat one."""
        request = self.request(request_id, stream, asked)
        if self.engine.is_answered(request):
            return self.engine.answer(request)
        batch = batches.active(self.engine)
        if batch is not None:
            self._refuse_repeat(batch.pending, request)
        return None

    def _refuse_repeat(self, pending: Pending, request: Request) -> None:
        if request.id_hash in pending.requests:
            if pending.starts:
                raise Deferred
            message = "this request_id was already used in this batch; give each request an id of its own"
            raise InvalidInput(message)

    def refuse_frozen(self, stream: str, at: int | None) -> None:
        """Raise ``ReadOnly`` for a handle that is frozen at a seq."""
        if at is not None:
            message = f"{stream} is frozen at seq {at}; mutate the live handle, or fork the live one at this seq"
            raise ReadOnly(message)

    def opening(self, project: str | None = None, window_tokens: int | None = None) -> ConversationOpened:
        """Return the event that opens a conversation: with what was asked for, else with the memory's defaults."""
        budget = self.window_tokens if window_tokens is None else window_tokens
        return ConversationOpened((), budget, self.counter.id, POLICY, project)

    def version(self, stream: str) -> int:
        """Return the version of a stream, what this context's batch has added included."""
        batch = batches.active(self.engine)
        if batch is None:
            return self.engine.version(self.key(stream))
        return noting.version_in_batch(self.engine, batch.pending, self.key(stream))

    def check_version(self, stream: str, expected: object) -> None:
        """Raise ``WrongVersion`` unless a stream is where the caller of a verb on another stream expects it."""
        if expected != ANY:
            check_version(stream, self.engine.find(self.key(stream)), 0, _checked_expected(expected))

    def check_head(self, expected: object) -> None:
        """Raise ``WrongVersion`` unless the whole memory is where the caller expects it: its version is its head."""
        if expected != ANY:
            whole = Slot(0, STORE_STREAM)
            whole.version = self.engine.head
            check_version("the memory", whole, 0, _checked_expected(expected))

    def counts(self, count: Callable[[], str]) -> str:
        """Return the counts that a handle shows; showing one must never fail."""
        try:
            return count()
        except Closed:
            return "closed"

    def expect_stamp(self, message: Message) -> None:
        """Let the engine fill in a message's stamp when this context's batch is committed."""
        batch = batches.active(self.engine)
        assert batch is not None, "a provisional result outside a batch"
        batch.pending.messages.append(message)

    def dated(self, note: Note, stamp: Stamp) -> Note:
        """Return a note whose time the engine fills in when this context's batch is committed, if it has one."""
        batch = batches.active(self.engine)
        if batch is not None and stamp.seq < 0:
            note = Note(note.day, note.text, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            batch.pending.notes.append((place_of(stamp.seq), note))
        return note

    def sources(self, sources: Sequence[Any]) -> tuple[int, ...]:
        """Return the seqs that sources stand for."""
        if isinstance(sources, tuple) and not sources:
            return ()
        seqs = checks.sources(sources, self.engine.head)
        if any(seq < 0 for seq in seqs):
            self._check_provisional(sources)
        return seqs

    def _check_provisional(self, sources: Sequence[Any]) -> None:
        """Refuse results of a batch that is not this context's open one: they never got a seq."""
        batch = batches.active(self.engine)
        events = [] if batch is None else batch.pending.events
        for source in sources:
            stamp = getattr(source, "stamp", None)
            if stamp is not None and stamp.seq < 0:
                place = place_of(stamp.seq)
                if place >= len(events) or not _is_of(events[place], source):
                    message = f"source {checks.shown(source)} is of a batch that was not committed; leave it out"
                    raise InvalidInput(message)


def _is_of(event: Event, result: Any) -> bool:
    """Return whether a result was made of an event: of that very one, or, as a memory, of one that names its id."""
    return event is result.event if hasattr(result, "event") else getattr(event, "id", None) == result.id


def _checked_expected(expected: object) -> object:
    if expected in (ANY, NO_STREAM, EXISTS):
        return ANY if expected == ANY else expected
    if not isinstance(expected, int) or isinstance(expected, bool) or expected < 0:
        message = f"expected is {checks.shown(expected)}; give ANY, NO_STREAM, EXISTS or a version from 0 on"
        raise InvalidInput(message)
    return expected
