"""Snapshots of a conversation, their bytes, restores and forks, and step-by-step replays."""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from refold import checks, fold
from refold.engine import batch as batches
from refold.engine.conflicts import ANY
from refold.engine.engine import Engine
from refold.engine.history import changes_between
from refold.engine.streams import STORE_STREAM, Stream, key_of, name_of, reports_damage, session_board
from refold.errors import InvalidInput, NotFound, ReadOnly, StoreVersion, WrongVersion
from refold.event import (
    ConversationOpened,
    Event,
    ForkDropped,
    Forked,
    ImportedBody,
    ImportedMessage,
    Recorded,
    Restored,
    SnapshotNamed,
    Stamp,
    StateImported,
    View,
    unpack_json,
)
from refold.fold import State
from refold.limits import NAME_BYTES_MAX, REDO_COUNT_MAX
from refold.memory.core import Core
from refold.memory.options import Options, seq_at
from refold.message import ROLES, Message, MessageAppended, MessageReplaced, imported_messages, plain_message
from refold.results import Change
from refold.text import sha256
from refold.views.scratchpad import SCRATCH
from refold.views.session import SESSION
from refold.views.state import STATE
from refold.views.store import SETTINGS, NamedSnapshot
from refold.views.window import EVICTION, WINDOW, Window, WindowResized

T = TypeVar("T")


class _ViewFields(NamedTuple):
    """A view that can be restored by itself, and its fields in an imported state."""

    view: View[Any]
    fields: tuple[str, ...]


RESTORED: Final = {
    "window": _ViewFields(WINDOW, ("window_tokens", "counter", "policy", "messages", "bodies")),
    "scratchpad": _ViewFields(SCRATCH, ("entries", "notes")),
    "state": _ViewFields(STATE, ("state",)),
}
"""The views of a conversation by the names that ``restore`` takes."""

_MAGIC: Final = b"REFOLDSN"
_FORMAT: Final = 1
_HEAD_BYTES: Final = len(_MAGIC) + 1 + 32
_ENCODE: Final = msgspec.msgpack.Encoder().encode


class SnapshotContent(Struct, frozen=True, array_like=True):
    """The content of snapshot bytes: store, stream and seq of a state, and the state itself."""

    store_id: bytes
    stream: str
    seq: int
    tokens: int
    state: StateImported
    cut: int = 0


class Snapshot(Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """A pointer to a state: the stream of a conversation, empty for a whole memory, and a seq.

    >>> from refold import Memory
    >>> chat = Memory().conversation("chat-42")
    >>> chat.scratchpad.set("user_name", "Alice")
    >>> Snapshot.from_bytes(chat.snapshot().to_bytes()).seq
    2
    """

    stream: str
    seq: int
    name: str | None = None
    origin: Any = None
    """The source of the state: the engine, or the content of snapshot bytes."""

    branch: int = 0
    """The fork of the memory that has the state: 0 is the main line."""

    cut: int = 0
    """The seq of the whole log at which it was taken; a restore brings back the session's board as it was there."""

    @property
    def _place(self) -> tuple[int, str, int]:
        return self.branch, self.stream, self.seq

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    def __repr__(self) -> str:
        branch = f", branch={self.branch}" if self.branch else ""
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Snapshot(stream={self.stream!r}, seq={self.seq}{branch}{named})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rendered state: a pickled snapshot is independent of its store."""
        return Snapshot.from_bytes, (self.to_bytes(),)

    @property
    def messages(self) -> list[Message]:
        """The messages of its window, oldest first; messages read from bytes have the seq of the snapshot."""
        if isinstance(self.origin, SnapshotContent):
            return list(imported_messages(self.origin.state, Stamp(self.seq, self.stream, 0, 0, 0)))
        return self._read(lambda state: state.part(WINDOW).live())

    @property
    def tokens(self) -> int:
        """The tokens of its messages."""
        if isinstance(self.origin, SnapshotContent):
            return self.origin.tokens
        return self._read(lambda state: state.part(WINDOW).tokens)

    def to_json(self) -> str:
        """Render project, budget, messages, scratchpad and state as one JSON object."""
        carried = self.origin if isinstance(self.origin, SnapshotContent) else self._read_content()
        state = carried.state
        content = {
            "stream": self.stream,
            "seq": self.seq,
            "project": state.project,
            "window_tokens": state.window_tokens,
            "tokens": carried.tokens,
            "messages": [plain_message(message) for message in self.messages],
            "scratchpad": {"entries": dict(sorted(state.entries)), "notes": state.notes},
            "state": {key: unpack_json(value) for key, value in sorted(state.state)},
        }
        return msgspec.json.encode(content).decode()

    def to_bytes(self) -> bytes:
        """Render the whole state with a checksum, so that another store can restore from it.

        Raises ``InvalidInput`` for the snapshot of a whole memory; use ``memory.export`` for that.
        """
        carried = self.origin if isinstance(self.origin, SnapshotContent) else self._read_content()
        payload = _ENCODE(carried)
        return _MAGIC + bytes([_FORMAT]) + sha256(payload) + payload

    def _read(self, query: Callable[[State], T]) -> T:
        engine = self.origin
        if not isinstance(engine, Engine):
            checks.invalid("this Snapshot was made by hand; take one with chat.snapshot() or Snapshot.from_bytes()")
        if not self.stream:
            checks.invalid("the snapshot is of a whole memory; hand that over with memory.at(seq).export(path)")
        return engine.reader.read(key_of(self.branch, self.stream), query, self.seq)

    def _read_content(self) -> SnapshotContent:
        def render(state: State) -> SnapshotContent:
            store_id = self.origin.reader.store_id
            return SnapshotContent(
                store_id, self.stream, self.seq, state.part(WINDOW).tokens, export_state(state), self.cut
            )

        return self._read(render)

    @staticmethod
    def from_bytes(rendered: object) -> "Snapshot":
        """Read the bytes of ``to_bytes``.

        Raises ``InvalidInput`` for bytes that are damaged or not a snapshot, ``StoreVersion`` for a newer format.
        """
        carried = _parse(rendered)
        return Snapshot(carried.stream, carried.seq, None, carried, cut=carried.cut)


def _parse(rendered: object) -> SnapshotContent:
    if not isinstance(rendered, (bytes, bytearray, memoryview)):
        checks.invalid(f"snapshot bytes must be bytes, not {type(rendered).__name__}; give what to_bytes() returned")
    rendered = bytes(cast("bytes", rendered))
    if len(rendered) < _HEAD_BYTES or not rendered.startswith(_MAGIC):
        checks.invalid("these bytes are not a refold snapshot; give what to_bytes() returned, whole")
    number = rendered[len(_MAGIC)]
    if not number:
        checks.invalid("the snapshot bytes are damaged: they name no format; hand them over again")
    if number > _FORMAT:
        raise StoreVersion(f"the snapshot is of format {number}, and this refold reads up to {_FORMAT}; upgrade refold")
    payload = rendered[_HEAD_BYTES:]
    if sha256(payload) != rendered[len(_MAGIC) + 1 : _HEAD_BYTES]:
        checks.invalid("the snapshot bytes are damaged: their checksum does not match; hand them over again")
    try:
        carried = msgspec.msgpack.decode(payload, type=SnapshotContent)
    except checks.UNDECODABLE as error:
        raise InvalidInput(f"the snapshot bytes hold no state ({error}); hand them over again") from error
    _check(carried)
    return carried


def _check(carried: SnapshotContent) -> None:
    """Check the claims of snapshot bytes: their messages must match the window that was rendered."""
    state = carried.state
    if state.policy and state.policy not in EVICTION:
        raise StoreVersion(f"the snapshot's eviction policy {state.policy} is unknown here; upgrade refold")
    if len(state.bodies) != len(state.messages):
        checks.invalid(f"the snapshot has {len(state.messages)} messages and {len(state.bodies)} bodies")
    unknown = {message.role for message in state.messages} - set(ROLES)
    if unknown:
        checks.invalid(f"the snapshot has messages of unknown roles: {', '.join(sorted(unknown))}")
    tokens = sum(message.tokens for message in state.messages)
    if tokens != carried.tokens:
        checks.invalid(f"the snapshot says {carried.tokens} tokens, its messages have {tokens}; hand it over again")
    if tokens > state.window_tokens:
        checks.invalid(f"the snapshot's messages have {tokens} tokens, over its own budget of {state.window_tokens}")
    from refold.engine import jsonl  # noqa: PLC0415 - needed only for bytes from elsewhere

    problem = "its seq is below 0" if carried.seq < 0 else jsonl.problem_in(state)
    if problem is not None:
        checks.invalid(f"the snapshot bytes hold what no refold wrote: {problem}; hand them over again")


def export_state(state: fold.State, sources: tuple[int, ...] = ()) -> StateImported:
    """Return a conversation's whole state as the event that would bring another conversation to this state."""
    window, scratch, scopes = state.part(WINDOW), state.part(SCRATCH), state.part(STATE)
    live = window.live()
    return StateImported(
        sources,
        window.window_tokens,
        window.counter,
        window.policy,
        tuple(_skeleton(window, message) for message in live),
        tuple(_body(message.event, message.erased) for message in live),
        tuple(scratch.entries.values.items()),
        tuple(text for _, text in scratch.notes),
        tuple(scopes.entries.values.items()),
        state.part(SESSION).project,
    )


def _skeleton(window: Window, message: Message) -> ImportedMessage:
    event, stamp = message.event, message.stamp
    answers = event.answers if event.id in window.owners else None
    fixed = (event.id, event.role, event.tokens, event.pinned, event.call_ids, answers)
    return ImportedMessage(*fixed, stamp.time_ns, stamp.occurred_ns)


def _body(event: MessageAppended, erased: bool) -> ImportedBody:  # noqa: FBT001 - the value of the field
    return ImportedBody(event.text, event.parts, event.name, event.calls, event.extra, erased)


def snapshot(core: Core, stream: str, name: str | None, at: int | None, options: Options) -> Snapshot:
    """Return a pointer to a stream's state; a named one is recorded once, permanently."""
    engine = core.engine
    if at is None:
        batches.check_no_batch(engine, "a snapshot")
    if name is None:
        refuse_options(options)
        cut = engine.reader.current_head() if at is None else at
        return Snapshot(stream, engine.reader.last_seq(core.key(stream), cut), None, engine, core.branch, cut)
    name = check_name(name)
    if at is not None:
        raise ReadOnly(
            f"{stream} is frozen at seq {at}; name a snapshot of the live handle, or take an unnamed one here"
        )
    sources = core.sources(options.sources)

    def decide(state: State) -> Event | None:
        core.check_version(stream, options.expected)
        slot = engine.reader.stream(core.key(stream))
        if slot is None:
            raise NotFound(f"{stream} has no events yet, so there is no state to name; append something first")
        known = _find_snapshot(core, state, slot, name)
        if known is None:
            return SnapshotNamed(sources, *pointer(core, stream, None), name)
        if known.seq != slot.seq:
            raise InvalidInput(f"snapshot {name!r} of {slot.name} already exists at seq {known.seq}; give another name")
        return None

    request = ("snapshot", stream, name)
    noted = core.write(STORE_STREAM, decide, at=None, call=request, request_id=options.request_id)
    if noted is not None and isinstance(noted.event, SnapshotNamed):
        return Snapshot(stream, noted.event.base_seq, name, engine, core.branch, noted.stamp.seq)
    return get_snapshot(core, stream, name)


def refuse_options(options: Options) -> None:
    """Refuse mutation options for an unnamed snapshot."""
    if options != Options():
        checks.invalid("an unnamed snapshot writes nothing, so it takes no options; give it a name, or leave them out")


def check_name(name: object) -> str:
    """Check that the name of a snapshot is a text that is not empty, and return it."""
    checked = checks.text(name, "name", NAME_BYTES_MAX, "NAME_BYTES_MAX")
    if not checked:
        checks.invalid("the snapshot's name is empty; give it at least one character, or None for an unnamed one")
    return checked


def _find_snapshot(core: Core, state: State, slot: Stream | None, name: str) -> NamedSnapshot | None:
    """Return a named snapshot of a stream, taken on its own branch or before that branch was forked."""
    snapshots = state.part(SETTINGS).snapshots
    numbers = () if slot is None else core.engine.reader.streams.numbers(slot)
    return next((snapshots[number, name] for number in numbers if (number, name) in snapshots), None)


def pointer(core: Core, stream: str, at: int | None) -> tuple[int, int]:
    """Return number and seq of a stream's last event at a seq, perhaps on an ancestor branch; 0 and 0 for none."""
    engine = core.engine
    with engine.reader.state_lock:
        slot = engine.reader.stream(core.key(stream))
        if slot is None:
            return 0, 0
        place = engine.reader.streams.place(slot, slot.seq if at is None else at)
        return place if place[1] else (0, 0)


def version(core: Core, stream: str, at: int | None) -> int:
    """Return the version of a stream, live or at a seq; 0 if it has no event."""
    if at is None:
        return core.version(stream)
    last = core.engine.reader.last_seq(core.key(stream), at)
    return core.engine.reader.loader.recorded_events([last])[0].stamp.version if last else 0


def get_snapshot(core: Core, stream: str, name: str) -> Snapshot:
    """Return the named snapshot of a stream."""
    slot = core.engine.reader.stream(core.key(stream))
    match = core.read(STORE_STREAM, lambda state: _find_snapshot(core, state, slot, name), None)
    if match is None:
        raise NotFound(
            f"{stream} has no snapshot named {checks.brief(name)}; memory.snapshots() lists those that exist"
        )
    return Snapshot(stream, match.seq, name, core.engine, core.branch, match.cut)


def restoration(
    core: Core,
    opening: ConversationOpened,
    snapshot: object,
    sources: tuple[int, ...],
    views: Collection[str] = tuple(RESTORED),
) -> Callable[[State], Event | None]:
    """Return the decision to continue from a snapshot of this store or another, unless none of the views changes."""
    if not isinstance(snapshot, Snapshot):
        checks.invalid(f"restore takes a Snapshot or a name, not {type(snapshot).__name__} ({checks.brief(snapshot)})")
    if not snapshot.stream:
        checks.invalid("the snapshot is of a whole memory; give it to memory.restore, or take chat.at(seq).snapshot()")
    if not snapshot.stream.startswith("conversation/"):
        checks.invalid(f"{snapshot.stream} is no conversation; restore a conversation's snapshot")
    branch = branch_here(core, snapshot)
    if branch is None:
        carried = content_of(snapshot).state

        def decide_import(state: State) -> Event | None:
            # The project is part of the conversation's identity and stays: it does not make two states different.
            here, now = msgspec.structs.replace(carried, project=project_of(state, opening)), export_state(state)
            fields = [field for view in views for field in RESTORED[view].fields]
            unchanged = all(getattr(now, field) == getattr(here, field) for field in fields)
            return None if unchanged else msgspec.structs.replace(here, sources=sources)

        return decide_import
    base = pointer(core.with_branch(branch), snapshot.stream, snapshot.seq)

    def decide(state: State) -> Event | None:
        project = project_of(state, opening)
        event = Restored(sources, *base, state.part(SESSION).depth, project)
        target = core.engine.reader.look_at_base(event, state.kind.name)
        return None if _same_state(state, target, views) else event

    return decide


def board_restoration(core: Core, stream: str, snapshot: Snapshot) -> Callable[[State], Event | None] | None:
    """Return the decision to restore a session's board with its conversation.

    Returns ``None`` if there is no board now and none in the snapshot, and for the bytes of another store.
    """
    branch = branch_here(core, snapshot)
    if branch is None:
        return None
    base = board_pointer(core.with_branch(branch), snapshot.stream, max(snapshot.cut, snapshot.seq))
    if not base[1] and not core.version(board_of(stream)):
        return None

    def decide(state: State) -> Event | None:
        event = Restored((), *base, 0)
        target = core.engine.reader.look_at_base(event, state.kind.name)
        return None if fold.digests(state) == fold.digests(target) else event

    return decide


def board_of(stream: str) -> str:
    """Return the stream of the board of a conversation's session."""
    return session_board(stream.partition("/")[2])


def board_pointer(core: Core, stream: str, at: int | None) -> tuple[int, int]:
    """Return stream number and seq of the last event of a conversation's session board at a seq; 0 and 0 for none."""
    return pointer(core, board_of(stream), at)


def request_of(core: Core, snapshot: object) -> list[Any]:
    """Return the part of a restore's request that identifies the snapshot: its name, its place, or its bytes' hash."""
    if not isinstance(snapshot, Snapshot):
        return [snapshot if isinstance(snapshot, str) else repr(snapshot)]
    place = [snapshot.stream, snapshot.seq, *([snapshot.branch] if snapshot.branch else [])]
    if snapshot.origin is None or snapshot.origin is core.engine or is_of_earlier_handle(core, snapshot):
        return place
    return [*place, core.engine.reader.keyed_hash(snapshot.to_bytes())]


def _same_state(state: State, target: State, views: Collection[str]) -> bool:
    """Return whether two states are equal in the views; the project, which is identity, is not compared."""
    mine, other = dict(fold.digests(state)), dict(fold.digests(target))
    left_out = {view.name for name, (view, _) in RESTORED.items() if name not in views}
    return is_embedded(state) == is_embedded(target) and all(
        mine.get(view) == other.get(view) for view in (mine.keys() | other.keys()) - left_out - {SESSION.name}
    )


def branch_here(core: Core, snapshot: Snapshot) -> int | None:
    """Return the branch of this store that has a snapshot's state, or ``None`` if the state must be imported."""
    if snapshot.origin is core.engine or is_of_earlier_handle(core, snapshot):
        return snapshot.branch
    carried = content_of(snapshot)
    if carried.store_id != core.engine.reader.store_id or carried.seq > core.engine.reader.head:
        return None
    here = core.read_written(carried.stream, export_state, carried.seq)
    # A copied store has the same id and can have diverged: only an equal state shows that it is the same place.
    return core.branch if here == carried.state else None


def is_of_earlier_handle(core: Core, snapshot: Snapshot) -> bool:
    """Return whether a snapshot was taken through a handle on this very store that has since been closed."""
    origin = snapshot.origin
    reader = core.engine.reader
    is_same = isinstance(origin, Engine) and origin.reader.is_closed and origin.reader.store_id == reader.store_id
    return is_same and snapshot.seq <= reader.head and snapshot.branch <= len(reader.branches_at(None))


def content_of(snapshot: Snapshot) -> SnapshotContent:
    """Return the content that a snapshot carries to another store: its state, and the place of that state."""
    if isinstance(snapshot.origin, SnapshotContent):
        return snapshot.origin
    if snapshot.origin is None:
        checks.invalid("this Snapshot was made by hand; take one with chat.snapshot() or Snapshot.from_bytes()")
    return content_of(Snapshot.from_bytes(snapshot.to_bytes()))


def fork(
    core: Core,
    parent: str,
    stream: str,
    opening: ConversationOpened,
    seq: int | None,
    replaces: bool,  # noqa: FBT001 - the same as in the verb
    options: Options,
) -> None:
    """Begin a conversation from the state of another one, now or at a seq."""
    engine, sources = core.engine, core.sources(options.sources)

    def decide(_: State) -> Event:
        known = engine.reader.version(core.key(stream))
        if known and not replaces:
            raise InvalidInput(f"{stream} already exists; fork to an id that is new, or give replace=True")
        if seq is not None:
            _check_begun(core, parent, seq)
        base = pointer(core, parent, seq)
        # The project belongs to the conversation, not to its state at a seq: a fork at an early seq is in it too.
        project = core.read_written(parent, lambda state: project_of(state, opening))
        depth = _depth_at(core, parent, base[1]) if base[1] else 0
        return (Restored if known else Forked)(sources, *base, depth + 1, project)

    request, (expected, request_id, _) = ("fork", parent, seq, *(["replace"] if replaces else [])), options
    batches.check_no_batch(engine, "a fork")
    is_answered = request_id is not None and core.find_answer(request_id, stream, request) is not None
    # Another machine may have begun the board; the batch then finds that its read is out of date.
    has_board = engine.shared is not None or board_pointer(core, parent, seq)[1]
    if is_answered or not (has_board or replaces):
        core.write(stream, decide, at=None, call=request, expected=expected, request_id=request_id)
        return

    def write() -> None:
        engine.refresh()
        core.version(board_of(parent))  # Read first: a board event committed with the parent's next events conflicts.
        if replaces:
            core.write(stream, drop(()), at=None, call=(), expected=expected)
        core.write(stream, decide, at=None, call=request, expected=ANY if replaces else expected, request_id=request_id)
        board, is_new = board_pointer(core, parent, seq), not core.version(board_of(stream))
        if board[1]:
            core.write(board_of(stream), (Forked if is_new else Restored)((), *board, 1), at=None, call=())
        elif not is_new:
            core.write(board_of(stream), drop_board, at=None, call=())

    write_whole(core, write, expected)


def _check_begun(core: Core, stream: str, seq: int) -> None:
    """Raise ``InvalidInput`` if a conversation had no event at a seq, and so no state, project or budget to fork."""
    if pointer(core, stream, seq)[1]:
        return
    first = next(core.engine.reader.events(core.key(stream), 0, first_page=1), None)
    if first is None:
        raise InvalidInput(f"{stream} has no events; append something first, or leave out at")
    began = first.stamp.seq
    raise InvalidInput(f"{stream} began at seq {began}, after seq {seq}; give a seq from {began} on")


def write_whole(core: Core, write: Callable[[], None], expected: object) -> None:
    """Call ``write`` in the open batch, or in one of its own, again if another writer has changed what it read.

    It is called once if the caller expects a version.
    """
    if batches.active_batch(core.engine) is not None:
        write()
        return
    for attempt in range(REDO_COUNT_MAX):
        try:
            with batches.Batch(core.engine):
                write()
        except WrongVersion:
            if expected != ANY or attempt == REDO_COUNT_MAX - 1:
                raise
        else:
            return


def _depth_at(core: Core, stream: str, seq: int) -> int:
    """Return the fork depth of a conversation at a seq, if possible without building its state there.

    The first event decides it for good, unless the fork was dropped: what comes after that is not a fork.
    """
    depth: int = core.read_written(stream, lambda state: state.part(SESSION).depth)
    if depth:
        return depth
    first = next(core.engine.reader.events(core.key(stream), 0))
    if not isinstance(first.event, Forked):
        return 0
    return core.read_written(stream, lambda state: state.part(SESSION).depth, seq)


def decide_close(stream: str, sources: tuple[int, ...]) -> Callable[[State], Event | None]:
    """Return the decision to end a fork for good."""

    def decide(state: State) -> Event | None:
        session = state.part(SESSION)
        if not session.depth:
            raise InvalidInput(f"{stream} is not a fork, so it cannot be dropped; clear it, or erase it")
        return ForkDropped(sources)

    return decide


def drop(sources: tuple[int, ...]) -> Callable[[State], Event | None]:
    """Return the decision to close a conversation for good; nothing changes if there is no conversation."""

    def decide(state: State) -> Event | None:
        session = state.part(SESSION)
        return ForkDropped(sources) if session.opened or session.depth else None

    return decide


def drop_board(state: State) -> Event | None:
    """Return the event that empties the board of a dropped fork, or ``None`` if the board is not open."""
    return ForkDropped(()) if fold.is_open(state) else None


# Replays: one state, folded forward, and the changes of each event.


class Step(Struct, frozen=True):
    """One step of a replay: the event, its changes, the messages that it evicted, and the states around it.

    ``tokens`` and ``window_tokens`` are the tokens in the window just after, and its budget. Reading them takes no
    time, while each read of ``before`` and ``after`` folds events again.
    """

    event: Event
    stamp: Stamp
    before: Any
    """The conversation just before, a frozen ``Conversation``."""
    after: Any
    """The conversation just after, a frozen ``Conversation``."""
    changes: tuple[Change, ...]
    evicted: tuple[Message, ...]
    tokens: int = 0
    window_tokens: int = 0

    def __str__(self) -> str:
        rows = [f"{self.stamp.seq} {fold.NAMES.get(type(self.event), 'unknown')} in {self.stamp.stream}"]
        rows += [f"  evicted {message!r}" for message in self.evicted]
        return "\n".join([*rows, *(f"  {change}" for change in self.changes)])


def steps(engine: Engine, key: str, frozen: Callable[[int], Any], after: int, until: int | None) -> Iterator[Step]:
    """Return the steps of a stream's events with ``after < seq <= until``, up to the last event that exists now."""
    last = engine.reader.last_seq(key, after)
    slot = engine.reader.stream(key)
    events = engine.reader.events(key, last, until)
    if slot is None:
        return iter(())
    with engine.reader.state_lock:
        state = engine.reader.loader.state_at(slot, last) if last else fold.empty(slot.kind)
    return _steps(engine, key, frozen, state, events)


def _steps(
    engine: Engine, key: str, frozen: Callable[[int], Any], state: State, events: Iterator[Recorded]
) -> Iterator[Step]:
    live, shown = _live(state.part(WINDOW)), _plain_state(state)
    for event, stamp in events:
        repinned = set(state.part(WINDOW).repinned)
        state = _fold_event(engine, state, event, stamp)
        window = state.part(WINDOW)
        if type(event) is MessageAppended and window.repinned == repinned:
            left, came = _moved_by_append(live, window, event)
        elif type(event) in _MOVING:
            left, came = _moved(live, window)
        else:
            left, came = {}, {}
        before, shown = shown, _plain_state(state)
        changes = (
            *changes_between(name_of(key), before, {**shown, WINDOW.name: before[WINDOW.name]}),
            *changes_between(
                name_of(key),
                {WINDOW.name: {**before[WINDOW.name], "messages": _plain_messages(left)}},
                {WINDOW.name: {**shown[WINDOW.name], "messages": _plain_messages(came)}},
            ),
        )
        evicted = tuple(_evicted_messages(event, stamp, left, live))
        after = frozen(stamp.seq)
        budget = window.window_tokens if window.policy else after.window_tokens
        yield Step(event, stamp, frozen(stamp.seq - 1), after, changes, evicted, window.tokens, budget)


@reports_damage
def _fold_event(engine: Engine, state: State, event: Event, stamp: Stamp) -> State:
    if isinstance(event, (Forked, Restored)):
        state = engine.reader.base_state(event, state.kind.name)
    fold.fold(state, stamp, event)
    return state


def _plain_state(state: State) -> dict[str, dict[str, Any]]:
    """Return the views of a state as plain values, of the window all but the messages."""
    window = state.part(WINDOW)
    counts = {"window_tokens": window.window_tokens, "tokens": window.tokens} if window.policy else {}
    return {**fold.plain(state, without=WINDOW.name), WINDOW.name: counts}


def _plain_messages(messages: Mapping[str, Message]) -> dict[str, Any]:
    return {message_id: plain_message(message) for message_id, message in messages.items()}


# The messages in the window, by id, oldest first. An append moves those at its ends, so it is followed from there: a
# step takes time for what it changes, not for the window.

_Messages: TypeAlias = OrderedDict[str, Message]
_MOVING: Final = frozenset((*WINDOW.handlers, Forked, Restored))


def _live(window: Window) -> _Messages:
    return OrderedDict((message.event.id, message) for message in window.live())


def _moved(live: _Messages, window: Window) -> tuple[dict[str, Message], dict[str, Message]]:
    """Bring the live messages up to date, and return those that left or were changed, and those that came instead."""
    known = live.copy()
    live.clear()
    live.update(_live(window))
    return _others(known, live), _others(live, known)


def _others(here: _Messages, there: _Messages) -> dict[str, Message]:
    return {
        message_id: message
        for message_id, message in here.items()
        if (other := there.get(message_id)) is not message and other != message
    }


def _moved_by_append(
    live: _Messages, window: Window, event: MessageAppended
) -> tuple[dict[str, Message], dict[str, Message]]:
    """Do the same after an append; those that stay keep their order."""
    newest = window.newest()
    came = {event.id: newest} if newest is not None and newest.event.id == event.id else {}
    left: dict[str, Message] = {}
    count = len(live) + len(came) - len(window)
    stayed = (each.event.id for each in chain(window.passed, window.queue) if each.event.id not in window.gone)
    oldest = next(stayed, None)
    for message_id, message in live.items():
        if len(left) == count:
            break
        if message_id == oldest:
            oldest = next(stayed, None)
        else:
            left[message_id] = message
    for message_id in left:
        del live[message_id]
    live.update(came)
    return left, came


def _is_orphan(event: MessageAppended, before: Iterable[Message]) -> bool:
    """Return whether a message never entered the window: an answer enters only while its call is there."""
    answered = event.answers
    return answered is not None and not any(answered in message.event.call_ids for message in before)


def _evicted_messages(
    event: Event, stamp: Stamp, left: Mapping[str, Message], live: Mapping[str, Message]
) -> Iterator[Message]:
    """Yield the messages that the budget pushed out; clearing a window evicts nothing."""
    if isinstance(event, (MessageAppended, MessageReplaced, WindowResized)):
        yield from (message for message_id, message in left.items() if message_id not in live)
    before = chain(left.values(), live.values())
    if isinstance(event, MessageAppended) and event.id not in live and not _is_orphan(event, before):
        yield Message(event, stamp)


def bisect(
    core: Core,
    frozen: Callable[[int], T],
    predicate: Callable[[T], object],
    *,
    after: object,
    until: object,
    at: int | None,
) -> Recorded | None:
    """Return the event that made a predicate of ``frozen(seq)`` true, or ``None`` if it is not true at the end."""
    head = core.engine.reader.current_head() if at is None else at
    low = seq_at(core.engine, after, head, "after")
    high = head if until is None else seq_at(core.engine, until, head, "until")
    if low > high:
        raise InvalidInput(f"after is seq {low}, behind until, which is seq {high}; give an earlier after")
    if not callable(predicate):
        checks.invalid(f"predicate must be a function, not {type(predicate).__name__} ({checks.brief(predicate)})")
    if predicate(frozen(low)):
        raise InvalidInput(f"the predicate is true at seq {low} already; give an `after` at which it is not")
    if not predicate(frozen(high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if predicate(frozen(middle)):
            high = middle
        else:
            low = middle
    return next(core.engine.reader.all_events(high - 1, high, core.branch), None)


def is_embedded(state: State) -> bool:
    """Return whether the messages of a conversation are embedded."""
    return state.part(SESSION).embed


def will_embed(state: State, opening: ConversationOpened) -> bool:
    """Return whether the messages of a conversation are embedded, or would be once it is opened."""
    session = state.part(SESSION)
    return session.embed if session.opened else bool(opening.embed)


def project_of(state: State, opening: ConversationOpened) -> str | None:
    """Return the project of a conversation, or the one that it is about to be opened in."""
    session = state.part(SESSION)
    is_settled = session.opened and not session.unknown
    return session.project if is_settled else session.project or opening.project
