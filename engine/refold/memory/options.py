"""Checked input (mutation options, constructor arguments, times and seqs), and the core that all handles share."""

import datetime as dates
import inspect
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias, TypedDict, TypeVar, cast

from refold import checks, fold
from refold.engine import batch as batches
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
from refold.errors import Closed, InvalidInput, NotFound, ReadOnly, WrongVersion
from refold.event import ConversationOpened, Event, ForkDropped, Recorded, Stamp, View, pack_json
from refold.fold import State
from refold.limits import NAME_BYTES_MAX, TIME_NS_MAX, VECTOR_DIMENSIONS_MAX
from refold.log.commits import is_address
from refold.log.protocol import Log
from refold.memory.references import sources_of
from refold.message import Message
from refold.text import TokenCounter
from refold.threads import enter_once
from refold.views.base import V
from refold.views.profile import Note
from refold.views.window import POLICY

if TYPE_CHECKING:
    from refold.embedders import Embedder, Embedding
    from refold.engine.aio import AsyncWriter
    from refold.engine.scan import EventFilter
    from refold.engine.subscriptions import Subscriber, Subscription
    from refold.index.ranking import Ranking
    from refold.memory.claims import Claims
    from refold.memory.drops import Drops
    from refold.memory.earlier import EarlierMessages
    from refold.memory.message_indexes import MessageIndexes
    from refold.memory.message_vectors import MessageVectors
    from refold.memory.share import Share
    from refold.memory.turns import Passage
    from refold.memory.watches import Watch


# Times and seqs as callers give them.

_EPOCH = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_REST_OF_MICROSECOND_NS = 999  # A datetime has microsecond resolution, so it includes all of its last microsecond.

_MICROSECOND = dates.timedelta(microseconds=1)


def nanoseconds(moment: object, what: str) -> int:
    """Return a moment, given as nanoseconds since 1970 or as an aware datetime, in nanoseconds."""
    if isinstance(moment, dates.datetime):
        moment = _nanoseconds_of(moment, what)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise InvalidInput(
            f"{what} must be nanoseconds or an aware datetime, not {type(moment).__name__} ({checks.brief(moment)})"
        )
    if not -TIME_NS_MAX <= moment <= TIME_NS_MAX:
        raise InvalidInput(
            f"{what} is {checks.brief(moment)}, beyond the 64 bits of nanoseconds: the years 1678 to 2261"
        )
    return int(moment)


def _nanoseconds_of(moment: dates.datetime, what: str) -> int:
    if moment.utcoffset() is None:
        raise InvalidInput(f"{what} is the naive datetime {moment}; give it a time zone, such as datetime.UTC")
    return (moment - _EPOCH) // _MICROSECOND * 1_000


def seq_at(engine: Engine, at: object, head: int | None = None) -> int:
    """Resolve ``at`` to a seq: the seq itself, or the last one acknowledged at or before an aware datetime."""
    last = engine.reader.current_head()
    return seq_in(engine.reader.log, last, at, last if head is None else head)


def seq_in(log: Log, head: int, at: object, limit: int) -> int:
    """Resolve ``at`` to a seq of at most ``limit``, in a log that ends at ``head``."""
    if isinstance(at, dates.datetime):
        return min(reader.seq_at_time(log, head, _nanoseconds_of(at, "at") + _REST_OF_MICROSECOND_NS), limit)
    if not isinstance(at, int) or isinstance(at, bool):
        raise InvalidInput(f"at must be a seq or an aware datetime, not {type(at).__name__} ({checks.brief(at)})")
    if not 0 <= at <= limit:
        raise InvalidInput(
            f"seq {checks.brief(at)} is not in this log, which runs from 0 (empty) to {limit}; "
            f"give a seq that has happened"
        )
    return int(at)


def day_of(day: object, what: str) -> str:
    """Return a day, given as a date or as a ``YYYY-MM-DD`` string, as ``YYYY-MM-DD``."""
    if isinstance(day, dates.datetime):
        raise InvalidInput(f"{what} is a datetime; give its date, in the time zone you mean")
    if isinstance(day, dates.date):
        return day.isoformat()
    try:
        return dates.date.fromisoformat(checks.text(day, what)).isoformat()
    except ValueError as error:
        raise InvalidInput(f"{what} is {checks.brief(day)}; give a date or a string such as '2026-11-21'") from error


def day_at(time_ns: int, timezone: str) -> str:
    """Return the day of a moment in a time zone."""
    moment = _EPOCH + dates.timedelta(microseconds=time_ns // 1_000)
    return moment.astimezone(zone(timezone)).date().isoformat()


def days_before(day: str, count: int) -> str:
    """Return the day ``count`` days before a day, but no earlier than the first day that a date can represent."""
    date = dates.date.fromisoformat(day)
    return (date - dates.timedelta(days=min(count, date.toordinal() - 1))).isoformat()


def zone(timezone: object) -> dates.tzinfo:
    """Return a time zone by its IANA name."""
    if not isinstance(timezone, str):
        raise InvalidInput(f"timezone must be an IANA name such as 'Europe/Oslo', not {checks.brief(timezone)}")
    if timezone == "UTC":
        return dates.UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - not needed for UTC, the default

    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NotFound(
            f"time zone {timezone!r} is not known here; give an IANA name such as 'Europe/Oslo', or install tzdata"
        ) from error


# Arguments of the memory itself: constructor arguments, paths, pages of names.


def check_page(after: str | None, limit: int | None) -> tuple[str | None, int | None]:
    """Check and return the bounds of a page of names: the name that it starts after, and its limit."""
    known = None if after is None else checks.text(after, "after", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    return known, None if limit is None else checks.count(limit, "limit")


def check_embedder(embedder: object) -> "Embedder | None":
    """Check that an embedder has the required attributes, and return it."""
    if embedder is None:
        return None
    from refold.embedders import Embedder  # noqa: PLC0415 - loaded only if the caller chose one

    if not isinstance(embedder, Embedder):
        checks.invalid(f"embedder needs an id, a dim and embed(texts), which {checks.brief(embedder)} lacks")
    checks.name(embedder.id, "embedder.id")
    checks.integer(embedder.dim, "embedder.dim", 1, VECTOR_DIMENSIONS_MAX, "VECTOR_DIMENSIONS_MAX")
    return embedder


def check_callables(**functions: object) -> None:
    """Check the clock and the source of random bytes."""
    for option, function in functions.items():
        if not callable(function):
            checks.invalid(f"{option} must be a function, not {type(function).__name__} ({checks.brief(function)})")


def check_witness(witness: object, store: str | None) -> str | None:
    """Check and return the path of a witness, which must lie outside the store, or it would be rolled back with it."""
    if witness is None:
        return None
    path = check_path(witness, "witness")
    if store is not None and is_address(store):
        return path
    if store is None:
        checks.invalid("a memory in RAM keeps nothing that a witness could tell of; give a path, or drop witness")
    inside = os.path.realpath(store)
    if os.path.commonpath([inside, os.path.realpath(path)]) == inside:
        shown = checks.brief(witness)
        checks.invalid(f"witness {shown} lies in the store {store} and would be rolled back with it; put it elsewhere")
    return path


def check_cache(cache: object, store: str | None) -> str | None:
    """Check and return the path for the local copy of a log on a server."""
    if cache is None:
        return None
    if store is None or not is_address(store):
        checks.invalid(f"cache {checks.brief(cache)} is for the copy of a log on a server; drop it")
    return check_path(cache, "cache")


def check_path(path: object, name: str = "path") -> str:
    """Return a path as a string that a file system accepts."""
    if isinstance(path, os.PathLike):
        path = os.fspath(cast("os.PathLike[str]", path))
    if not isinstance(path, str):
        checks.invalid(f"{name} must be a str or a path, not {type(path).__name__} ({checks.brief(path)})")
    if not path:
        checks.invalid(f"{name} is empty; give a path")
    try:
        storable = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        storable = False
    if not storable:
        checks.invalid(f"{name} {checks.brief(path)} holds a NUL or a lone surrogate, which no file system takes")
    return path


T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

Sources: TypeAlias = Sequence[Any]
"""The sources of a mutation: seqs, or results that have one."""

Progress: TypeAlias = Callable[[int, int], None] | None
"""A callback that takes the amount done and the total amount."""


class Options(NamedTuple):
    """The three options of every mutation."""

    expected: object = ANY
    request_id: str | None = None
    sources: Sources = ()


class MutationOptions(TypedDict, total=False):
    """The fields of ``Options`` as keyword arguments of a verb, for type checkers and editors."""

    expected: object
    request_id: str | None
    sources: Sources


def parse_options(options: MutationOptions) -> Options:
    """Return the options of a mutation with their defaults; raise ``TypeError`` for an unknown option."""
    unknown = options.keys() - Options._field_defaults.keys()
    if unknown:
        raise TypeError(f"unexpected keyword arguments: {', '.join(sorted(unknown))}; see the verb's signature")
    return Options(**options)


_KEYWORDS: Final = [
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
    for name, default in Options._field_defaults.items()
]


def mutation(verb: Function) -> Function:
    """Show the three options of a mutation, which the verb takes as ``**options``, in its signature."""
    signature = inspect.signature(verb)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    verb.__signature__ = signature.replace(parameters=[*own, *_KEYWORDS])  # type: ignore[attr-defined]
    return verb


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
        "_drops",
        "_earlier_messages",
        "_embedding",
        "_main",
        "_message_indexes",
        "_message_vectors",
        "_switches",
        "_switching",
        "_unsettled",
        "branch",
        "counter",
        "embedder",
        "engine",
        "new_id",
        "own_watches",
        "passages",
        "path",
        "ranking",
        "share",
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
        self._switching = threading.RLock()
        self._unsettled: tuple[int, int, Embedding] | None = None
        """On the main line's core: a reembedding that was interrupted, with the head before its last commit."""
        self.watches: list[Watch] = [] if main is None else main.watches
        self.own_watches: list[Watch] = []  # The subset of ``watches`` that ends with this memory.
        self.ranking: Ranking | None = None  # On a scenario's core: the default ranking of its searches.
        self.branch = branch
        self.engine = engine
        self.new_id = engine.reader.new_id
        self.counter = counter
        self.timezone = timezone
        self.window_tokens = window_tokens
        self.path = path
        self._async_writer: AsyncWriter | None = None
        self._message_indexes: MessageIndexes | None = None
        self._message_vectors: MessageVectors | None = None
        self._earlier_messages: EarlierMessages | None = None
        self._drops: Drops | None = None
        self.passages: dict[str, Passage] = {}
        """By stream key, what was read of turns that are longer than their window."""
        self._main = self if main is None else main
        self.share: Share | None = None  # On a memory's core: what it shares with other memories of the same path.
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

    @property
    def message_indexes(self) -> "MessageIndexes":
        """The message indexes of all branches; empty before the first search."""
        main = self._main
        if main._message_indexes is None:  # noqa: SLF001 - same class
            from refold.memory.message_indexes import MessageIndexes  # noqa: PLC0415 - loaded only for searches

            main._message_indexes = MessageIndexes()  # noqa: SLF001
        return main._message_indexes  # noqa: SLF001

    @property
    def message_vectors(self) -> "MessageVectors":
        """The background embedder of messages, shared by all branches."""
        main = self._main
        if main._message_vectors is None:  # noqa: SLF001 - same class
            from refold.memory.message_vectors import MessageVectors  # noqa: PLC0415 - loaded only for embedding

            main._message_vectors = MessageVectors(main)  # noqa: SLF001
        return main._message_vectors  # noqa: SLF001

    @property
    def earlier_messages(self) -> "EarlierMessages":
        """The newest messages of all branches, for contexts; empty before the first context."""
        main = self._main
        if main._earlier_messages is None:  # noqa: SLF001 - same class
            from refold.memory.earlier import EarlierMessages  # noqa: PLC0415 - loaded only for contexts

            main._earlier_messages = EarlierMessages(lambda: main.message_indexes)  # noqa: SLF001
        return main._earlier_messages  # noqa: SLF001

    @property
    def drops(self) -> "Drops":
        """The conversations of all branches that were ever dropped; empty before the first lookup."""
        main = self._main
        if main._drops is None:  # noqa: SLF001 - same class
            from refold.memory.drops import Drops  # noqa: PLC0415 - loaded only if something was dropped

            main._drops = Drops()  # noqa: SLF001
        return main._drops  # noqa: SLF001

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
        if self.share is not None:
            self.share.leave(self)
            return
        if self._main is not self:
            reason = "this handle on a fork is closed; take another one with memory.fork(name)"
            self.engine = cast("Engine", ClosedEngine(reason))
            return
        if self._message_vectors is not None:
            self._message_vectors.close(self.engine.reader)
        self.engine.close()
        if self._async_writer is not None:
            self._async_writer.close()

    def subscribe(self, function: "Subscriber", after: int | None) -> "Subscription":
        """Call a function with the branch's events after a seq, until the memory or the subscription is closed."""
        subscription = self.engine.subscribe(function, after, self.branch)
        self.subscriptions = [each for each in self.subscriptions if each.is_alive]
        self.subscriptions.append(subscription)
        return subscription

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

    def read(self, stream: str, query: Callable[[fold.State], T], at: int | None) -> T:
        """Apply ``query`` to a stream's state: at a seq, in this context's batch, or live."""
        if at is None:
            batch = batches.active_batch(self.engine)
            if batch is not None:
                with self.engine.reader.state_lock:
                    return query(batch.transaction.state(self.key(stream)))
        return self.read_written(stream, query, at)

    def read_lightly(self, stream: str, query: Callable[[fold.State], T], at: int | None) -> T:
        """Apply ``query`` to a stream's state without registering a read by an open batch.

        If the batch has read and changed the stream, that is the batch's state, else the committed state.
        """
        batch = None if at is not None else batches.active_batch(self.engine)
        key = self.key(stream)
        if batch is not None and key in batch.transaction.reads and batch.transaction.places.get(key):
            return self.read(stream, query, at)
        return self.read_written(stream, query, at)

    def read_key(self, stream: str, keys: KeyMap[V], key: str, at: int | None) -> V | None:
        """Return the value of a key, or ``None`` if there is none; an open batch registers a read of that key only."""
        batch = None if at is not None else batches.active_batch(self.engine)
        if batch is not None:
            value: V | None = batch.transaction.value(self.key(stream), keys, key)
            return value
        return self.read_written(stream, lambda state: keys(state).values.get(key), at)

    def look(self, stream: str, view: View[Any], query: Callable[[fold.State], T], at: int | None) -> T:
        """Apply ``query`` to a view of a stream's state, this context's batch included, without registering a read."""
        batch = None if at is not None else batches.active_batch(self.engine)
        if batch is not None:
            with self.engine.reader.state_lock:
                return query(batch.transaction.look(self.key(stream), view))
        return self.read_written(stream, query, at)

    def read_written(self, stream: str, query: Callable[[fold.State], T], at: int | None = None) -> T:
        """Apply ``query`` to a stream's committed state, ignoring an open batch."""
        return self.engine.reader.read(self.key(stream), query, at)

    def event(self, seq: int) -> Recorded:
        """Return the event at a seq, on any branch, or at a provisional seq of this context's batch."""
        if seq < 0 and (batch := batches.active_batch(self.engine)) is not None:
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
        batch = batches.active_batch(self.engine)
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

    def _answer(self, request: Request) -> Recorded | None:
        """Return the last event of an answered request, once reads show it; raise ``LookupError`` if not answered."""
        batch = batches.active_batch(self.engine)
        if batch is not None and request.id_hash in batch.transaction.requests:
            places = batch.transaction.answer_places(request)
            return batch.transaction.recorded_event(places[-1]) if places else None
        recorded = self.engine.reader.find_answer(request)
        if recorded is not None and recorded.stamp.seq > self.engine.reader.head:
            with self.engine.writer.exclusive():  # It is durable, but its commit is not folded yet.
                pass
        return recorded

    def request(self, request_id: str, stream: str, call: tuple[Any, ...]) -> Request:
        """Return a request as the store keeps it; on a branch, answers of its ancestors before the fork also count."""
        given, keyed_hash = checks.request_id(request_id), self.engine.reader.keyed_hash
        verb_hash = keyed_hash(b"verb" + pack_json([stream.partition("/")[0], call[0]]))
        content_hash = keyed_hash(b"call" + pack_json([stream, *call]))
        call_hash = verb_hash[:VERB_BYTES] + content_hash[VERB_BYTES:]
        if not self.branch:
            return Request(keyed_hash(b"id" + given), call_hash)
        with self.engine.reader.state_lock:
            bounds = self.engine.reader.streams.bounds(self.branch, self.engine.reader.head)
        own, *elders = [(keyed_hash(reader.request_prefix(branch) + given), until) for branch, until in bounds.items()]
        return Request(own[0], call_hash, tuple(elders))

    def find_answer(self, request_id: str, stream: str, call: tuple[Any, ...]) -> list[Event] | None:
        """Return all events of a request that was answered before, or ``None`` if it was not."""
        request = self.request(request_id, stream, call)
        try:
            self._answer(request)
        except LookupError:
            return None
        batch = batches.active_batch(self.engine)
        if batch is not None and request.id_hash in batch.transaction.requests:
            return [batch.transaction.events[place] for place in batch.transaction.answer_places(request)]
        return self.engine.reader.answer_events(request)

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
        batch = batches.active_batch(self.engine)
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
        batch = batches.active_batch(self.engine)
        assert batch is not None, "a provisional result outside a batch"
        batch.transaction.messages.append((place_of(message.stamp.seq), message))

    def date_note(self, note: Note, stamp: Stamp) -> Note:
        """Return a note; if it belongs to this context's batch, the engine fills in its time at the commit."""
        batch = batches.active_batch(self.engine)
        if batch is not None and stamp.seq < 0:
            note = Note(note.day, note.text, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            batch.transaction.notes.append((place_of(stamp.seq), note))
        return note

    def sources(self, sources: Sequence[Any]) -> tuple[int, ...]:
        """Resolve sources to seqs."""
        if isinstance(sources, tuple) and not sources:
            return ()
        return sources_of(self, sources)


def _check_expected(expected: object) -> object:
    if expected in (ANY, NO_STREAM, EXISTS):
        return ANY if expected == ANY else expected
    if not isinstance(expected, int) or isinstance(expected, bool) or expected < 0:
        raise InvalidInput(f"expected is {checks.brief(expected)}; give ANY, NO_STREAM, EXISTS or a version from 0 on")
    return expected


def core_of(handle: Any) -> tuple[Core, int | None]:
    """Return the core of a handle and the seq at which it is frozen, for the layers above."""
    return handle._core, handle._at  # noqa: SLF001 - not part of the public handle


class Handle:
    """The base class of every handle on a stream: the core, the stream's name, the seq at which it is frozen."""

    __slots__ = ("_at", "_claims", "_core", "_key", "_opening", "_since", "_stream")

    def __init__(
        self, core: Core, stream: str, at: int | None, opening: Any = None, claims: "Claims | None" = None
    ) -> None:
        self._core = core
        self._stream = stream
        self._key = stream if not core.branch else core.key(stream)
        self._at = at
        self._opening = opening
        self._claims = claims
        self._since = core.engine.reader.stored_head() if opening is not None and at is None else 0

    def _read(self, query: Callable[[State], T]) -> T:
        return self._core.read(self._stream, query, self._at)

    def _source_seqs(self, options: MutationOptions) -> tuple[int, ...]:
        return self._core.sources(options.get("sources", ()))

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
        core = self._core
        engine, request = core.engine, None
        expected: object = ANY
        if self._claims is not None and not self._claims.is_settled:
            self._claims.settle(core, self._stream, self._at)
        if self._at is not None:
            core.refuse_frozen(self._stream, self._at)
        if core.watches and isinstance(self._opening, ConversationOpened):
            from refold.memory.watches import warn  # noqa: PLC0415 - loaded only if there are watches

            warn(core, self._stream, make, self._opening)
        if isinstance(self._opening, ConversationOpened) and ForkDropped in engine.reader.types_written:
            from refold.memory.drops import guard  # noqa: PLC0415 - loaded only if something was dropped

            make = guard(core, self._stream, self._since, make)
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
                return core._answer(request)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        try:
            return batch.transaction.apply(mutation)
        except WrongVersion:
            if engine.shared is None:
                raise
            engine.refresh()  # The local copy of a log on a server can be slightly out of date.
            return batch.transaction.apply(mutation)
