"""Events, stamps and views, the events that several views fold, and states packed slice by slice.

An event is a frozen Struct, written as one msgpack array ``[tag, sources, structural..., body...]``. A field without a
default is *structural* (order and eviction depend on it, erasure keeps it); a field with a default is *body* (erasure
drops it). This module is pure: it may import nothing that reads a clock, a disk or a random source.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from refold.errors import StoreCorrupt
from refold.limits import PACKED_SLICE_COUNT

# Rows of a large state as one msgpack array, encoded slice by slice, so that no thread has to wait for all of it.

T = TypeVar("T")

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_SHORT_COUNT: Final = 2**4
_MIDDLE_COUNT: Final = 2**16


class Cut(Generic[T]):
    """The packed form of a state at one moment; events that are folded afterwards do not change it.

    It is one array. All of it is encoded at once, except the table between ``before`` and ``after``, whose rows are
    encoded slice by slice. The cut has its own list of the rows, whose values must not be changed in place. ``row_of``
    returns the part of a row that is packed, and ``seq_of`` the seq of the event that holds the rest.
    """

    def __init__(
        self,
        before: Sequence[Any],
        rows: Iterable[T],
        after: Sequence[Any],
        *,
        row_of: Callable[[T], Any],
        seq_of: Callable[[T], int],
    ) -> None:
        self._rows = list(rows)
        self._row_of, self._seq_of = row_of, seq_of
        self._after = _elements(after)
        opening = _array_header(len(before) + 1 + len(after)) + _elements(before) + _array_header(len(self._rows))
        self._parts = [opening]
        """The encoded parts so far: the opening, then one for each slice."""

    @property
    def _done_count(self) -> int:
        return (len(self._parts) - 1) * PACKED_SLICE_COUNT

    @property
    def is_done(self) -> bool:
        """Whether everything is encoded."""
        return self._done_count >= len(self._rows)

    def step(self) -> None:
        """Encode the next slice."""
        begin = self._done_count
        rows = self._rows[begin : begin + PACKED_SLICE_COUNT]
        self._parts.append(_elements(list(map(self._row_of, rows))))

    def result(self) -> tuple[bytes, list[int]]:
        """Return the array, and the seqs of the events that hold the rest of each row; requires ``is_done``."""
        assert self.is_done, f"{self._done_count} of {len(self._rows)} rows are encoded; step() until is_done"
        return b"".join((*self._parts, self._after)), list(map(self._seq_of, self._rows))


def _elements(values: Sequence[Any]) -> bytes:
    """Encode values as they appear inside an array."""
    return _ENCODE(values)[len(_array_header(len(values))) :]


def _array_header(count: int) -> bytes:
    """Return the msgpack header of an array of ``count`` elements."""
    if count < _SHORT_COUNT:
        return bytes([0x90 | count])
    if count < _MIDDLE_COUNT:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


FLAG_ERASED: Final = 1
"""The body was erased."""

FLAG_BODY_ELSEWHERE: Final = 2
"""The body is stored outside the row."""

FLAG_ENCRYPTED: Final = 4
"""The body is a ciphertext under the record's key id."""

FLAG_BASE: Final = 8
"""The event points at the state that it starts from: a fork or a restore."""

FLAG_OCCURRED: Final = 16
"""The caller or importer gave the time at which it happened.

Otherwise ``occurred_ns`` repeats ``time_ns``, or is what the clock showed if that was far behind the log.
"""


HOST: Final = "host"
"""The actor if no other is known: the program that hosts refold."""

ACTORS: Final = (
    *(HOST, "user", "assistant", "tool", "hook", "cli", "mcp", "mirror", "extraction"),
    *("import:openai", "import:locomo", "import:beam", "import:swe-agent", "import:mem0", "import:memories"),
    *("tool:memory_read", "tool:memory_write", "tool:memory_set", "tool:memory_search", "tool:memory_add"),
    *("tool:memory_update", "tool:memory_delete", "tool:memory_forget", "tool:journal_append", "tool:memory"),
    *("hook:obey_command", "hook:inject", "hook:inject_skills", "hook:generate_at_end"),
)
"""The actors that refold itself defines, in the order of their numbers: a new one must come last."""

ACTOR_NUMBERS: Final = {name: number for number, name in enumerate(ACTORS)}
NAMED_ACTORS_FROM: Final = 256
"""The number of any other actor is this plus the seq of the event that named it."""

ACTOR_NUMBER_MAX: Final = 2**32 - 1


def move_actor(number: int, seq_of: Callable[[int], int]) -> int:
    """Translate an actor's number for a log in which the event that named the actor has another seq."""
    return number if number < NAMED_ACTORS_FROM else NAMED_ACTORS_FROM + seq_of(number - NAMED_ACTORS_FROM)


class Stamp(Struct, frozen=True, gc=False):
    """The engine's addition to an event: its places in the log and in its stream, its times, its actor and its cause.

    ``cause`` is the seq of the event that led to it, 0 for none; ``actor`` is ``host``, ``user``, ``assistant``,
    ``tool:NAME``, ``hook:NAME``, ``cli``, ``mcp:CLIENT``, ``import:FORMAT``, or a name that was passed to
    ``Memory.acting``.
    """

    seq: int
    stream: str
    version: int
    time_ns: int
    occurred_ns: int
    cause: int = 0
    actor: str = HOST
    flags: int = 0

    @property
    def erased(self) -> bool:
        """Whether the event's body was erased."""
        return self.flags & FLAG_ERASED != 0

    @property
    def stamp(self) -> "Stamp":
        """The stamp itself: among ``sources``, a stamp stands for its event, as a result does."""
        return self


def clock_of(stamp: Stamp) -> int:
    """Return what the clock showed when an event was written; of one with a given time, what the log says."""
    return stamp.time_ns if stamp.flags & FLAG_OCCURRED else stamp.occurred_ns


class Event(Struct, frozen=True, array_like=True, gc=False):
    """The base class of events: the seqs that an event was derived from, and the properties of its type."""

    has_own_id: ClassVar[bool] = False
    """Whether its ``id`` was generated for it, so that two events of a stream with the same id are one, written
    twice."""

    is_visible: ClassVar[bool] = True
    """Whether it changes the content of its views, so that clients that watch them are notified."""

    sentence: ClassVar[str] = ""
    """A clause that says what happened; fields in braces are quoted, but not those with ``!s``."""

    subject: ClassVar[tuple[str, str]] = ("", "")
    """The kind of its subject, and the field that identifies the subject; without a field, the event's seq does."""

    ends: ClassVar[tuple[str, ...]] = ()
    """The kinds whose subjects it removes from its stream, all of them."""

    given_ids: ClassVar[tuple[str, ...]] = ()
    """The structural fields with ids that the caller chose. Erasure keeps an id only while an event that stays has it;
    then the erased events get another one in its place."""

    bookkeeping: ClassVar[frozenset[str]] = frozenset(("counter", "model", "ranking"))
    """The fields whose values are not a user's content: an erasure does not look for them, since other events share
    them."""

    sources: tuple[int, ...]

    def mentions(self) -> tuple[str | None, ...]:
        """Return the conversations that its body names; erasing one of them reaches this event."""
        return ()

    def removes(self, key: str) -> bool:  # noqa: ARG002 - for subclasses that remove
        """Return whether it removes the subject that it names."""
        return False

    def check(self, *, is_erased: bool) -> None:
        """Raise ``InvalidInput`` or ``msgspec.ValidationError`` for content that no verb could have written."""

    def repeat(self, chat: Any) -> None:
        """Make the same change in another conversation through its verb; an event without a verb cannot be repeated."""
        raise NotImplementedError(f"no verb of a conversation writes {type(self).__name__} alone")


class Recorded(NamedTuple):
    """An event with its stamp."""

    event: Event
    stamp: Stamp


class ConversationOpened(Event, frozen=True, tag=1):
    """A conversation began under a budget, a token counter and an eviction policy."""

    sentence: ClassVar[str] = "the conversation began, with a window of {window_tokens!s} tokens"

    window_tokens: int
    counter: str
    policy: int
    project: str | None = None
    embed: bool | None = None
    """Whether its messages are embedded; ``None`` if not specified."""


class ConversationEnded(Event, frozen=True, tag=12):
    """A conversation ended: its scratchpad and temporary state are gone."""

    sentence: ClassVar[str] = "the conversation ended: its scratchpad and temporary state were cleared"
    ends: ClassVar[tuple[str, ...]] = ("scratchpad", "note", "temp")

    def repeat(self, chat: Any) -> None:
        """End the other conversation."""
        chat.end()


class Forked(Event, frozen=True, tag=13):
    """A conversation began from the state of another conversation at a seq."""

    sentence: ClassVar[str] = "the conversation began as another one was at seq {base_seq!s}"

    base_stream: int
    base_seq: int
    depth: int
    project: str | None = None


class Restored(Event, frozen=True, tag=14):
    """A stream continued from an earlier state, its own or that of another stream of its kind."""

    sentence: ClassVar[str] = "it went on from the state at seq {base_seq!s}"

    base_stream: int
    base_seq: int
    depth: int
    project: str | None = None


class ImportedMessage(Struct, frozen=True, array_like=True, gc=False):
    """The structural part of a message inside an imported state."""

    given_ids: ClassVar[tuple[str, ...]] = ("call_ids", "answers")

    id: str
    role: str
    tokens: int
    pinned: bool
    call_ids: tuple[str, ...]
    answers: str | None
    time_ns: int
    occurred_ns: int


class ImportedBody(Struct, frozen=True, array_like=True, gc=False):
    """The body of a message inside an imported state."""

    text: str | None = None
    parts: bytes | None = None
    name: str | None = None
    calls: bytes | None = None
    extra: bytes | None = None
    erased: bool = False


class StateImported(Event, frozen=True, tag=15):
    """A conversation took over a whole state that was passed in as bytes."""

    sentence: ClassVar[str] = "a whole state was taken over from elsewhere"
    given_ids: ClassVar[tuple[str, ...]] = ("messages",)

    window_tokens: int
    counter: str
    policy: int
    messages: tuple[ImportedMessage, ...]
    bodies: tuple[ImportedBody, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    state: tuple[tuple[str, bytes], ...] = ()
    project: str | None = None


class SnapshotNamed(Event, frozen=True, tag=19):
    """A state of a stream got a name, under which it is kept."""

    sentence: ClassVar[str] = "the state at seq {base_seq!s} was named {name}"

    base_stream: int
    base_seq: int
    name: str = ""


class Erased(Event, frozen=True, tag=20):
    """The bodies of other events were erased."""

    sentence: ClassVar[str] = "events {seqs!s} were erased"

    seqs: tuple[int, ...]
    digests: tuple[tuple[int, bytes], ...] = ()
    """For each record that was erased from, the seq of its last event and its digest afterwards."""


class ForkDropped(Event, frozen=True, tag=21):
    """A forked conversation was closed for good: its state is empty."""

    sentence: ClassVar[str] = "the conversation was closed for good and emptied"
    ends: ClassVar[tuple[str, ...]] = ("message", "scratchpad", "note", "state", "temp", "work", "board")


class BranchForked(Event, frozen=True, tag=22):
    """A whole memory was forked: a branch begins from the state of another branch at a seq."""

    sentence: ClassVar[str] = "the whole memory was forked at seq {base_seq!s} as {name}"

    base_branch: int
    base_seq: int
    name: str = ""


S = TypeVar("S", bound="ViewState")
E = TypeVar("E", bound=Event)
Handler: TypeAlias = Callable[[Any, Stamp, Any], None]
RunHandler: TypeAlias = Callable[[Any, Sequence[Stamp], Sequence[Any]], None]
Located: TypeAlias = Sequence[tuple[Event, Stamp]]
"""The events at the seqs that ``pack`` returned, in the same order, as passed to ``unpack``."""


class LazyEvents:
    """Events that are read on demand, because most reads need little of a large state.

    ``report`` calls the function that reads them, and raises ``StoreCorrupt`` if their bytes are malformed.
    """

    def __init__(
        self,
        seqs: Sequence[int],
        read: Callable[[Sequence[int]], list[Event]],
        report: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._seqs = seqs
        self._read = read
        self.report = report

    def __len__(self) -> int:
        return len(self._seqs)

    def at(self, places: Iterable[int]) -> list[Event]:
        """Return the events at the given places."""
        return self._read([self._seqs[place] for place in places])

    def part(self, begin: int, end: int) -> "LazyEvents":
        """Return the events from place ``begin`` up to ``end``, exclusive."""
        return LazyEvents(self._seqs[begin:end], self._read, self.report)


class ViewState(Protocol):
    """The state that a view holds for a stream, which is empty when created, and its forms.

    A state that can be large has a ``copy``, which returns an independent state, and packs as a ``Cut``, whose rows are
    encoded slice by slice. A state whose ``logical`` is expensive has a ``content``: if two states have equal contents,
    their ``logical`` values are equal.
    """

    def pack(self) -> tuple[Any, list[int]] | Cut[Any]:
        """Return small values to store inline, and the seqs of the events that hold the rest."""
        ...

    @classmethod
    def unpack(cls, inline: Any, events: Located) -> Self:
        """Return the state that was packed."""
        ...

    def logical(self) -> Any:
        """Return the content that a digest covers, ``None`` for an empty state."""
        ...

    def plain(self) -> dict[str, Any]:
        """Return the content in a form for people to compare: nested dicts with ``str`` keys."""
        ...


class View(Generic[S]):
    """One kind of memory: its name, the kinds of its streams, its states, and a handler for each of its events."""

    def __init__(self, name: str, *, kinds: tuple[str, ...], state: type[S]) -> None:
        self.name = name
        self.kinds = kinds
        self.empty: Callable[[], S] = state
        self.pack: Callable[[S], tuple[Any, list[int]] | Cut[Any]] = state.pack
        self.unpack: Callable[[Any, Located], S] = state.unpack
        self.logical: Callable[[S], Any] = state.logical
        self.plain: Callable[[S], dict[str, Any]] = state.plain
        self.content: Callable[[S], Any] = getattr(state, "content", state.logical)
        self.copy: Callable[[S], S] | None = getattr(state, "copy", None)
        self.unpack_later: Callable[[msgspec.Raw, LazyEvents], S] | None = getattr(state, "unpack_later", None)
        """Returns the state that was packed, most of which is read on demand."""
        self.handlers: dict[type[Event], Handler] = {}
        self.runs: dict[type[Event], RunHandler] = {}

    def on(self, *kinds: type[E]) -> Callable[[Callable[[S, Stamp, E], None]], Callable[[S, Stamp, E], None]]:
        """Return a decorator that registers the handler of one or more event types."""

        def register(handler: Callable[[S, Stamp, E], None]) -> Callable[[S, Stamp, E], None]:
            for kind in kinds:
                assert kind not in self.handlers, f"{self.name} folds {kind.__name__} twice"
                self.handlers[kind] = handler
            return handler

        return register

    def on_run(self, kind: type[E]) -> Callable[[RunHandler], RunHandler]:
        """Return a decorator that registers a handler for a run of events, equivalent to the handler of each."""

        def register(handler: RunHandler) -> RunHandler:
            self.runs[kind] = handler
            return handler

        return register


_PLAIN_TYPES = (str, int, float)


def _plain_value(value: object) -> object:
    """Return the plain value of an instance of a subclass of ``str``, ``int`` or ``float``."""
    for plain_type in _PLAIN_TYPES:
        if isinstance(value, plain_type):
            return plain_type(value)
    raise NotImplementedError(type(value).__name__)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_plain_value)
_JSON_VALUE = msgspec.msgpack.Decoder()


def pack_json(value: Any) -> bytes:
    """Return a JSON value as msgpack bytes, the form in which events and states hold it."""
    return _ENCODER.encode(value)


def is_same_json(one: object, other: object) -> bool:
    """Return whether two values are the same in JSON: unlike in Python, ``true`` is not 1, at any depth.

    >>> is_same_json({"a": [1]}, {"a": [1.0]}), is_same_json({"a": [1]}, {"a": [True]})
    (True, False)
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        fields, others = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return fields.keys() == others.keys() and all(is_same_json(fields[name], others[name]) for name in fields)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        items, rest = cast("Sequence[object]", one), cast("Sequence[object]", other)
        return len(items) == len(rest) and all(map(is_same_json, items, rest))
    return one == other


decode_json: Final = _JSON_VALUE.decode
"""Return the JSON value of unchecked msgpack bytes; raises ``msgspec.DecodeError`` if they are malformed."""


def unpack_json(packed: bytes) -> Any:
    """Return a new JSON value, which callers can change without changing a state."""
    try:
        return _JSON_VALUE.decode(packed)
    except ValueError as error:
        raise StoreCorrupt(
            f"a stored JSON value cannot be read ({error}); run `refold verify` and restore a backup"
        ) from error
