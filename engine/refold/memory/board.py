"""The board of a session, or of a node of a project: its handle, the decision of each change, its listeners."""

from collections.abc import Callable, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import msgspec

from refold import checks
from refold.engine import batch as batches
from refold.engine import reader
from refold.engine.states import Recorded
from refold.engine.subscriptions import Subscription
from refold.engine.transaction import ANY, Pending, erased_count
from refold.errors import InvalidInput, NotFound, ReadOnly, StoreBusy, WrongVersion
from refold.event import Erased, Event, pack_json, unpack_json
from refold.fold import State
from refold.limits import REDO_COUNT_MAX
from refold.memory import board_parts
from refold.memory.board_parts import BUNDLE, SECTIONS, Given, JsonObject, Layers, Scope, iso, scoped
from refold.memory.conversation import Conversation
from refold.memory.options import Door, Options, Sources, seq_at
from refold.message import Message
from refold.views.board import (
    BOARD,
    FIELDS,
    MESSAGES,
    MESSAGES_KEPT,
    BoardChanged,
    BoardMessageAppended,
    Posted,
    changing,
    order_of,
)
from refold.views.board import Board as BoardState
from refold.views.window import WINDOW

if TYPE_CHECKING:
    import datetime

    from refold.memory.aio import AsyncConversation
    from refold.results import Receipt


# How a change of a board is decided: on what the board and the one beneath it say at that moment.
#
# What a session's board saves goes from the board of the node beneath: a part is saved in one place. Where only some
# fields of a part change, the others come along, each with the event that it came from among its sources, so that an
# erasure of that one reaches them. One that comes between the look and the commit lets it be decided anew: what was
# copied may be what it erased.

Plan: TypeAlias = Callable[[Layers], Sequence[Event]]
"""What a verb makes of a board as it is: the events to come, none where nothing would change."""

_NOTHING: Final = BoardState()
_FIELDED: Final = ("session", "config")
"""Parts of which a verb changes some fields and leaves the rest."""


class Place(NamedTuple):
    """Where a handle stands: its door, whose board it is on, and the seq that it is frozen at."""

    door: Door
    scope: Scope
    at: int | None

    def layers(self) -> Layers:
        """Return the board and the one beneath it, both of one moment."""
        stream, door = self.scope.stream, self.door
        with door.engine.state_lock:
            own = door.read(stream, _copied, self.at)
            beneath = self.scope.beneath(own)
            return Layers(self.scope, own, _NOTHING if beneath is None else door.read(beneath, _copied, self.at))


class Change(NamedTuple):
    """A verb on its way: what it plans, which parts it saves, and what its caller asked."""

    plan: Plan
    parts: tuple[str, ...]
    asked: tuple[Any, ...]
    options: Options


def _copied(state: State) -> BoardState:
    return state.part(BOARD).copy()


def commit(place: Place, change: Change, *, is_single: bool = True) -> list[Event]:
    """Write what a change plans, as one commit; return its events. ``is_single``: it plans at most one."""
    door = place.door
    if place.at is not None:
        door.refuse_frozen(place.scope.stream, place.at)
    door.engine.check_writable()
    if batches.active(door.engine) is not None:
        return _in_batch(place, change)
    if is_single and not _moves(place.layers(), change.parts):
        return _alone(place, change)
    for _ in range(REDO_COUNT_MAX):
        written = _attempt(place, change)
        if written is not None:
            return written
    raise StoreBusy(
        f"{place.scope.stream} was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; let its writers "
        f"pause and call again"
    )


def _moves(layers: Layers, parts: Sequence[str]) -> bool:
    """Return whether a board beneath has what is about to be saved."""
    return any(layers.beneath.has(part) for part in parts)


def _alone(place: Place, change: Change) -> list[Event]:
    """Let the engine decide a change of this board alone, in its turn."""

    def decide(state: State) -> Event | None:
        planned = change.plan(Layers(place.scope, state.part(BOARD), _NOTHING))
        assert len(planned) <= 1, planned
        return planned[0] if planned else None

    expected, request_id, _ = change.options
    noted = place.door.note(
        place.scope.stream, decide, at=place.at, asked=change.asked, expected=expected, request_id=request_id
    )
    return [] if noted is None else [noted[0]]


def _events(place: Place, change: Change) -> list[tuple[str, Event]]:
    """Return what a change comes to, each event with its stream."""
    layers, stream = place.layers(), place.scope.stream
    planned = change.plan(layers)
    if not planned:
        return []
    events = [(stream, event) for event in (*_brought(layers, change.parts, planned), *planned)]
    leaving = [field for part in change.parts for field in FIELDS[part] if layers.beneath.sets(field)]
    beneath = place.scope.beneath(layers.own)
    return [*events, (beneath, changing((), {}, leaving))] if leaving and beneath is not None else events


def _brought(layers: Layers, parts: Sequence[str], planned: Sequence[Event]) -> list[Event]:
    """Return what comes along from the board beneath: the rest of the parts of which something changes."""
    replaced = {field for event in planned if isinstance(event, BoardChanged) for field in event.fields}
    beneath, events = layers.beneath, list[Event]()
    for part in parts:
        if part in _FIELDED and not layers.own.has(part):
            values, seqs = beneath.entries.values, beneath.entries.seqs
            left = [field for field in FIELDS[part] if field in values and field not in replaced]
            events += [BoardChanged((seqs[field],), (field,), _map_of(field, values[field])) for field in left]
        elif part == MESSAGES and part not in replaced:
            events += _messages(layers, planned)
    return events


def _messages(layers: Layers, planned: Sequence[Event]) -> list[Event]:
    """Return the messages beneath: a board gets more of them, and none is lost because another one is added above."""
    own = {posted.id for posted in layers.own.messages}
    known = own | {event.id for event in planned if isinstance(event, BoardMessageAppended)}
    left = [posted for posted in layers.beneath.messages if posted.packed and (not posted.id or posted.id not in known)]
    return [BoardMessageAppended((posted.seq,), posted.id, posted.created_ns, posted.packed) for posted in left]


def _map_of(field: str, packed: bytes) -> bytes:
    """Return msgpack of a map of one field, whose value is packed already."""
    return b"\x81" + pack_json(field) + packed


def _attempt(place: Place, change: Change) -> list[Event] | None:
    """Decide on both boards as they are, and commit what was decided; ``None`` if one moved meanwhile."""
    door, stream = place.door, place.scope.stream
    expected, request_id, _ = change.options
    answered = None if request_id is None else door.answered(request_id, stream, change.asked)
    if answered is not None:
        return answered
    pending = Pending()
    with door.engine.state_lock:
        pending.erased_count = erased_count(door.engine)
        beneath = place.scope.beneath(door.read(stream, _copied, None))
        for name in (stream, *([] if beneath is None else [beneath])):
            pending.reads[door.key(name)] = door.version(name)
        events = _events(place, change)
    door.check_version(stream, expected)
    for name, event in events:
        pending.add(door.key(name), event, None)
    if request_id is not None:
        request = door.request(request_id, stream, change.asked)
        pending.requests[request.id_hash] = (request, range(len(pending.events)))
    elif not events:
        return []
    try:
        door.engine.commit_batch(pending)
    except WrongVersion:
        return None
    return pending.events


def _in_batch(place: Place, change: Change) -> list[Event]:
    """Add what a change comes to to the open batch."""
    door, stream = place.door, place.scope.stream
    expected, request_id, _ = change.options
    answered = None if request_id is None else door.answered(request_id, stream, change.asked)
    if answered is not None:
        return answered
    pending = _pending(door)
    begin = len(pending.events)
    events = _events(place, change)
    try:
        for number, (name, event) in enumerate(events):
            door.note(name, event, at=None, asked=change.asked, expected=ANY if number else expected)
        if not events:
            door.note(stream, _decline, at=None, asked=change.asked, expected=expected)
    except BaseException:
        pending.truncate(begin)
        raise
    if request_id is not None:
        request = door.request(request_id, stream, change.asked)
        pending.requests[request.id_hash] = (request, range(begin, len(pending.events)))
    return [event for _, event in events]


def _pending(door: Door) -> Pending:
    batch = batches.active(door.engine)
    assert batch is not None, "a change in a batch outside of one"
    return batch.pending


def _decline(_: State) -> Event | None:
    return None


# What each verb of a board plans: the event of what differs, or none.

_MICROSECOND_NS: Final = 1_000
_SORTED: Final = msgspec.msgpack.Encoder(order="deterministic").encode
_DEFAULTS: Final[dict[str, Any]] = {
    **dict.fromkeys((*FIELDS["session"], "working_history", "last_user_message"), ""),
    **{name: {"nodes": [], "edges": []} for name in FIELDS["project_structure"]},
    **{name: {} for name in ("node_context", "fetched_context", "messages_meta")},
    **{f"config.{name}": value for name, value in board_parts.SETTINGS.items()},
}
"""What a field says that nobody set."""


def setting(cited: tuple[int, ...], values: dict[str, Any]) -> Plan:
    """Return the plan to give fields their values; those that have them already are left out."""

    def plan(layers: Layers) -> Sequence[Event]:
        changed = {field: value for field, value in values.items() if not _says(layers, field, value)}
        return [changing(cited, changed)] if changed else []

    return plan


def _says(layers: Layers, field: str, value: Any) -> bool:
    """Return whether a field has a value already; the order of keys in objects says nothing."""
    if field == MESSAGES:
        held = [unpack_json(posted.packed) for posted in layers.layer(MESSAGES).messages if posted.packed]
        return held == [said for _, said in value["rows"]]
    return bool(_SORTED(layers.value(field, _DEFAULTS[field])) == _SORTED(value))


def session_fields(scope: Scope, given: dict[str, str]) -> dict[str, str]:
    """Return the fields to set of a session; ``InvalidInput`` for another one than the handle is on."""
    fixed = {"session_id": scope.session or "", "project_id": scope.project, "active_node_id": scope.node}
    for name, value in given.items():
        expected = fixed.get(name)
        if expected is not None and value != expected:
            raise InvalidInput(
                f"{name} is {checks.shown(value)}, and this board is of {checks.shown(expected)}; take another one "
                f"with memory.board(...)"
            )
    return {f"session.{name}": value for name, value in given.items() if name != "session_id"}


def appending(cited: tuple[int, ...], given: Given, now_ns: int) -> Plan:
    """Return the plan to put a message on a board; one that is there already, by its id, appends nothing."""

    def plan(layers: Layers) -> Sequence[Event]:
        said, created_ns = given
        held = _held(layers, said["id"])
        if not said["created_at"]:
            created_ns = now_ns if held is None else held.created_ns
            said = said | {"created_at": iso(now_ns) if held is None else unpack_json(held.packed)["created_at"]}
        if held is not None and unpack_json(held.packed) == said:
            return []
        return [_posting(cited, said, created_ns)]

    return plan


def _held(layers: Layers, message_id: str) -> Posted | None:
    held = (posted for posted in layers.layer(MESSAGES).messages if posted.id == message_id and posted.packed)
    return next(held, None) if message_id else None


def _posting(cited: tuple[int, ...], said: JsonObject, created_ns: int | None) -> Event:
    return BoardMessageAppended(cited, said["id"], created_ns, pack_json(said))


# Messages of a conversation.


def window_of(place: Place, conversation: object) -> tuple[str, Callable[[], list[Message]]]:
    """Return the id of a conversation and what reads its window; that of the session where none is named."""
    door = place.door
    conversation = getattr(conversation, "plain", conversation)  # Of a handle for asyncio, the plain one.
    if isinstance(conversation, Conversation):
        other: Door | None = getattr(conversation, "_door", None)
        if other is None or other.engine is not door.engine or other.branch != door.branch:
            raise InvalidInput(f"{checks.shown(conversation)} belongs to another memory; take one of the board's own")
        return conversation.id, conversation.window
    name = place.scope.session if conversation is None else checks.name(conversation, "conversation")
    if name is None:
        checks.invalid("conversation is missing, and this board is of no session; name the conversation to read")
    stream = f"conversation/{name}"
    if conversation is not None and not door.version(stream):
        raise NotFound(f"there is no conversation {checks.shown(name)}; conversations() lists those there are")
    return name, lambda: door.read(stream, lambda state: list(state.part(WINDOW).live()), None)


def hydrating(
    cited: tuple[int, ...], name: str, window: Callable[[], list[Message]], node: str | None, now_ns: int
) -> Plan:
    """Return the plan to put those messages of a conversation on a board that it lacks and that it would hold.

    Each names the message that it is made of as its source.
    """

    def plan(layers: Layers) -> Sequence[Event]:
        said = [(message, text) for message in window() if (text := text_of(message))][-MESSAGES_KEPT:]
        held = layers.layer(MESSAGES).messages
        known, taken = {posted.id for posted in held}, {_microsecond(posted.created_ns) for posted in held}
        lacking: dict[str, Event] = {}
        posted = list(held)
        for message, text in said:
            if message.id not in known:
                created_ns = _free(message.occurred_ns or now_ns, taken)
                row = _row(message, text, name, node, created_ns)
                lacking[message.id] = _posting((message.stamp.seq, *cited), row, created_ns)
                posted.append(Posted(0, 0, message.id, created_ns, b""))
        kept = {row.id for row in sorted(posted, key=order_of)[-MESSAGES_KEPT:]}
        return [event for message_id, event in lacking.items() if message_id in kept]

    return plan


def _microsecond(time_ns: int | None) -> int | None:
    return None if time_ns is None else time_ns // _MICROSECOND_NS


def _free(when_ns: int, taken: set[int | None]) -> int:
    """Return the first microsecond from a time on that no message has: those of one commit have the same time.

    No finer than what a message says as text, so that messages which somebody reads and sets again keep their order.
    """
    place = when_ns // _MICROSECOND_NS
    while place in taken:
        place += 1
    taken.add(place)
    return place * _MICROSECOND_NS


def _row(message: Message, text: str, name: str, node: str | None, created_ns: int) -> JsonObject:
    return {
        "id": message.id,
        "session_id": name,
        "node_id": node,
        "role": message.role,
        "message_type": "",
        "content": text,
        "created_at": iso(created_ns),
    }


def text_of(message: Message) -> str:
    """Return what a message says in words, empty where it is erased or only calls tools."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    texts = (part.get("text") for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


# Who is told when a board shows something else: on top of the log's subscriptions, durable events alone.


def everything(layers: Layers) -> Any:
    """Return all that a board shows."""
    return {part: layers.shown(part) for part in (*SECTIONS, "messages_meta")}


def subscribed(
    place: Place, after: int | None, seen: Callable[[Layers], Any], tell: Callable[[Place, Any], Any]
) -> Subscription:
    """Return a subscription that tells of each state of a board in which what is ``seen`` of it is another.

    ``tell`` gets the place of the board, frozen at the event that changed it, and what is seen of it there.
    """
    if place.at is not None:
        raise ReadOnly(f"{place.scope.stream} is frozen at seq {place.at}; subscribe to the live one")
    engine = place.door.engine
    begin = engine.current_head() if after is None else checks.count(after, "after")
    listener = _Listener(place, begin, seen, tell)
    return engine.subscribe(listener.hear, begin, place.door.branch)


def check_listener(listener: object) -> None:
    """Raise ``InvalidInput`` for what cannot be called with a board."""
    if not callable(listener) or iscoroutinefunction(listener):
        checks.invalid(f"listener must be a plain function, not {type(listener).__name__} ({checks.shown(listener)})")


class _Listener:
    """One who listens to a board, and what was last seen of it."""

    def __init__(
        self, place: Place, begin: int, seen: Callable[[Layers], Any], tell: Callable[[Place, Any], Any]
    ) -> None:
        self._place = place
        self._seen = seen
        self._tell = tell
        self._streams: tuple[str | None, ...] = ()
        """The board and the one beneath it: no other one changes what is seen, nor which one lies beneath."""
        self._last = self._at(begin)[1]
        self._looked_at = 0
        """The seq up to which the board was looked at: the end of a commit, none of which is seen by half."""

    def hear(self, recorded: Recorded) -> None:
        """Look at the board as it is behind an event that may have changed it, and tell what is new."""
        is_of_ours = recorded.stamp.stream in self._streams or isinstance(recorded.event, Erased)
        if not is_of_ours or recorded.stamp.seq <= self._looked_at:
            return
        self._looked_at = reader.end_of_commit(self._place.door.engine.log, recorded.stamp.seq)
        place, seen = self._at(self._looked_at)
        if seen != self._last:
            self._last = seen
            self._tell(place, seen)

    def _at(self, seq: int) -> tuple[Place, Any]:
        place = self._place._replace(at=seq)
        layers = place.layers()
        self._streams = place.scope.stream, place.scope.beneath(layers.own)
        return place, self._seen(layers)


class Board:
    """A handle on the working memory of a session, or of a node of a project, part by part.

    A session's parts lie over those of the node that it works on: what the session has not set is read there, and what
    it sets goes from there. Each setter brings what it is given into form, appends nothing where nothing would change,
    and returns whether it did; all of them raise ``InvalidInput`` for what is of another kind altogether,
    ``LimitExceeded`` for a value over ``VALUE_BYTES_MAX`` or the id of a message over ``KEY_BYTES_MAX``,
    ``WrongVersion`` and ``ReadOnly`` as other verbs do.

    >>> from refold import Memory
    >>> board = Memory().board(session="s-1")
    >>> board.append_message({"role": "user", "content": "Where were we?"})
    True
    >>> board.get("last_user_message")
    'Where were we?'
    """

    __slots__ = ("_at", "_door", "_place")

    def __init__(self, door: Door, session: object, project: object, node: object, at: int | None) -> None:
        self._door = door
        self._at = at
        self._place = Place(door, scoped(session, project, node), at)

    def __repr__(self) -> str:
        """Return the handle with its count."""
        ids = zip(("session", "project", "node"), self._place.scope, strict=True)
        named = ", ".join(f"{name}={value!r}" for name, value in ids if value is not None)
        return f"Board({named}, {self._door.counts(lambda: f'messages={len(self._place.layers().messages())}')})"

    # Whose it is.

    @property
    def session(self) -> str | None:
        """The session that the board is of, ``None`` for that of a node."""
        return self._place.scope.session

    @property
    def project(self) -> str | None:
        """The project that the handle names, ``None`` where it is what the session recorded."""
        return self._place.scope.project

    @property
    def node(self) -> str | None:
        """The node that the handle names, ``None`` where it is what the session recorded."""
        return self._place.scope.node

    @property
    def version(self) -> int:
        """The version of the board's stream, what ``expected`` compares with; 0 before the first change."""
        if self._at is None:
            return self._door.version(self._place.scope.stream)
        return sum(1 for _ in self.events())

    @property
    def place(self) -> tuple[str, int]:
        """The board's stream and the seq at which the handle stands: what ``memory.diff`` compares."""
        return self._place.scope.stream, self._door.engine.current_head() if self._at is None else self._at

    # What it shows.

    def get(self, part: str) -> Any:
        """Return a part as the board shows it, empty where it is hidden; a new value at each call.

        The parts are session, project_graph, elements_graph, project_structure, node_context, fetched_context,
        working_history, messages, messages_meta, last_user_message (or last_message) and config.
        """
        return self._place.layers().shown(board_parts.part_of(part))

    def to_dict(self) -> dict[str, Any]:
        """Return the board as JSON values: session, project_structure, contexts, history, messages, config."""
        layers = self._place.layers()
        return {part: layers.shown(part) for part in SECTIONS}

    def to_json(self) -> str:
        """Return what ``to_dict`` returns as a JSON text."""
        return msgspec.json.encode(self.to_dict()).decode()

    def bundle(self) -> dict[str, Any]:
        """Return what it knows of the conversation: messages, messages_meta, working_history, last_user_message."""
        layers = self._place.layers()
        return {part: layers.shown(part) for part in BUNDLE}

    def get_settings(self) -> dict[str, Any]:
        """Return the settings: history_length, the three toggles, auto_refresh_interval in seconds."""
        return self._place.layers().config()

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the board's own events with a seq greater than ``after``, each with its stamp."""
        checks.count(after, "after")
        return self._door.engine.events(self._door.key(self._place.scope.stream), after, self._at)

    def at(self, at: "int | datetime.datetime") -> "Board":
        """Return the board as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``."""
        return Board(self._door, *self._place.scope, seq_at(self._door.engine, at, self._at))

    # What sets it.

    def set(
        self, part: str, value: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Set a part by its name, as the setter of that part does."""
        return _SETTERS[board_parts.part_of(part)](
            self, value, expected=expected, request_id=request_id, sources=sources
        )

    def initialise(
        self,
        *,
        project_id: str | None = None,
        active_node_id: str | None = None,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> bool:
        """Record which project and node a session works on; what is not given is what the handle names."""
        given = {"project_id": project_id or self.project, "active_node_id": active_node_id or self.node}
        named = {name: value for name, value in given.items() if value is not None}
        return self.set_session(named, expected=expected, request_id=request_id, sources=sources)

    def set_session(
        self,
        partial: dict[str, Any],
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> bool:
        """Change the fields of the session that are given: project_id, active_node_id, timestamp.

        From then on the board of that node lies beneath. Raises ``InvalidInput`` for ids that the handle has otherwise.
        """
        given = board_parts.session(partial)
        values = session_fields(self._place.scope, given)
        return self._set("session", values, given, Options(expected, request_id, sources))

    def set_project_graph(
        self, graph: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the project's graph: nodes keep id, label, type and builder, edges from, to and type."""
        clean = board_parts.graph(graph, "project_graph")
        return self._set("project_graph", {"project_graph": clean}, clean, Options(expected, request_id, sources))

    def set_elements_graph(
        self, graph: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the graph of the elements, as ``set_project_graph`` does."""
        clean = board_parts.graph(graph, "elements_graph")
        return self._set("elements_graph", {"elements_graph": clean}, clean, Options(expected, request_id, sources))

    def set_project_structure(
        self, structure: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the graphs that are given, in one event; a bare graph is the project's, ``None`` empties both."""
        clean = board_parts.structure(structure)
        return self._set(tuple(clean), clean, clean, Options(expected, request_id, sources))

    def set_node_context(
        self, context: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace what is known of the node; notes, customFields and linked_elements beside ``meta`` go into it."""
        clean = board_parts.node_context(context)
        return self._set("node_context", {"node_context": clean}, clean, Options(expected, request_id, sources))

    def set_fetched_context(
        self, context: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace what was fetched for the node, any JSON object."""
        clean = board_parts.fetched_context(context)
        return self._set("fetched_context", {"fetched_context": clean}, clean, Options(expected, request_id, sources))

    def set_working_history(
        self, value: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the history: a text, an object with a ``text``, or any other JSON value, which is written out."""
        clean = board_parts.working_history(value)
        return self._set("working_history", {"working_history": clean}, clean, Options(expected, request_id, sources))

    def set_messages(
        self,
        messages: Any,
        *,
        meta: Any = None,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> bool:
        """Replace the messages; they are sorted by created_at and id, and the latest 200 of them are kept.

        ``meta`` says what the board cannot count itself: total_count, filtered_count, has_more, next_cursor,
        last_user_message, last_synced_at.
        """
        values = {MESSAGES: board_parts.messages(messages)}
        if meta is not None:
            values["messages_meta"] = board_parts.messages_meta(meta)
        return self._set(tuple(values), values, values, Options(expected, request_id, sources))

    def append_message(
        self, message: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Add a message, in the place of one with the same id; without a created_at it is of now."""
        given = board_parts.message(message)
        door, options = self._door, Options(expected, request_id, sources)
        plan = appending(door.sources(sources), given, door.engine.now_ns())
        return bool(self._commit((MESSAGES,), "append_message", given.said, plan, options))

    def set_messages_meta(
        self, meta: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace what is known of messages that the board has not; what is given goes before what it counts."""
        clean = board_parts.messages_meta(meta)
        return self._set("messages_meta", {"messages_meta": clean}, clean, Options(expected, request_id, sources))

    def set_last_user_message(
        self, text: str | None, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Say what the user said last; a blank text leaves that to the messages again."""
        clean = board_parts.last_user_message(text)
        values = {"last_user_message": clean}
        return self._set("last_user_message", values, clean, Options(expected, request_id, sources))

    def update_settings(
        self,
        partial: dict[str, Any],
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> bool:
        """Change the settings that are given; numbers are clamped, what is none is the default.

        What a toggle hides is kept: it comes back when that is turned on again.
        """
        given = board_parts.settings(partial)
        values = {f"config.{name}": value for name, value in given.items()}
        return self._set("config", values, given, Options(expected, request_id, sources))

    def hydrate(
        self,
        conversation: "str | Conversation | AsyncConversation | None" = None,
        *,
        expected: object = ANY,
        request_id: str | None = None,
        sources: Sources = (),
    ) -> int:
        """Take the messages of a conversation's window that the board lacks; return how many came to it.

        By default that is the conversation of the session's own id. Each names its message as its source, so that an
        erasure of the one reaches the other; those without text are left out. With them come, as with every message of
        a session, those from the board beneath. ``NotFound`` for an unknown conversation.
        """
        name, window = window_of(self._place, conversation)
        node = self._place.layers().session()["active_node_id"] or None
        now_ns = self._door.engine.now_ns()
        plan = hydrating(self._door.sources(sources), name, window, node, now_ns)
        options = Options(expected, request_id, sources)
        events = self._commit((MESSAGES,), "hydrate", name, plan, options, is_single=False)
        return sum(isinstance(event, BoardMessageAppended) for event in events)

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        What was derived from it goes too, unless ``derived="keep"``. ``StoreBusy`` while another handle has the store
        open.
        """
        from refold.memory import store  # noqa: PLC0415 - loaded only by those who erase

        return store.erase_conversation(self._door, self._place.scope.stream, self._at, derived, forks)

    # Who is told.

    def subscribe(self, listener: "Callable[[Board], Any]", after: int | None = None) -> "Subscription":
        """Call ``listener(board)`` when the board shows something else; it gets the board frozen at that moment.

        Only what is durable is told of, by whichever process it was written, on the thread of all subscriptions;
        ``after`` is a seq to begin behind, ``None`` for the present one. What was written in one commit is told of
        once.
        """
        check_listener(listener)
        return subscribed(self._place, after, everything, lambda place, _: listener(_behind(place)))

    def subscribe_settings(self, listener: Callable[[dict[str, Any]], Any], after: int | None = None) -> "Subscription":
        """Call ``listener(settings)`` when the settings of the board become others, as ``subscribe`` does."""
        check_listener(listener)
        return subscribed(self._place, after, lambda layers: layers.config(), lambda _, seen: listener(dict(seen)))

    # What the setters share.

    def _set(self, saved: "str | tuple[str, ...]", values: dict[str, Any], asked: Any, options: Options) -> bool:
        names = (saved,) if isinstance(saved, str) else saved
        plan = setting(self._door.sources(options.sources), values)
        for field, value in values.items():
            checks.packed_json(value, field)
        return bool(self._commit(names, names[0], asked, plan, options))

    def _commit(
        self, names: tuple[str, ...], verb: str, asked: Any, plan: Plan, options: Options, *, is_single: bool = True
    ) -> list[Any]:
        change = Change(plan, names, (f"board.{verb}", asked), options)
        return cast("list[Any]", commit(self._place, change, is_single=is_single))


def _behind(place: Place) -> Board:
    return Board(place.door, *place.scope, place.at)


_SETTERS: dict[str, Callable[..., bool]] = {
    "session": Board.set_session,
    "project_graph": Board.set_project_graph,
    "elements_graph": Board.set_elements_graph,
    "project_structure": Board.set_project_structure,
    "node_context": Board.set_node_context,
    "fetched_context": Board.set_fetched_context,
    "working_history": Board.set_working_history,
    MESSAGES: Board.set_messages,
    "messages_meta": Board.set_messages_meta,
    "last_user_message": Board.set_last_user_message,
    "config": Board.update_settings,
}
