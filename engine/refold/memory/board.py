"""The board of a session, or of a node of a project: the writes, the messages of a conversation, listeners, the handle.

A part is saved in one place. What a session's board saves leaves the board of the node under it. Where only some fields
of a part change, the others come along, each with the event that it came from among its sources, so that an erasure of
that event reaches them. If one of them is erased before the commit, the write is decided anew.
"""

from collections.abc import Callable, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack

import msgspec

from refold import checks
from refold.engine import batch as batches
from refold.engine import reader
from refold.engine.subscriptions import Subscription
from refold.errors import InvalidInput, NotFound, ReadOnly, StoreBusy
from refold.event import Erased, Event, Recorded, pack_json, unpack_json
from refold.fold import State
from refold.limits import REDO_COUNT_MAX
from refold.memory.board_parts import (
    BUNDLE,
    CLEANERS,
    SECTIONS,
    BoardMessage,
    BoardScope,
    JsonObject,
    Layers,
    clean_message,
    iso,
    part_of,
    scoped,
)
from refold.memory.conversation import Conversation
from refold.memory.options import Core, MutationOptions, Options, chosen, mutation, seq_at
from refold.memory.plans import EventPlan, PlannedWrite
from refold.message import Message
from refold.views.board import (
    BOARD,
    FIELDS,
    MESSAGES,
    MESSAGES_KEPT,
    BoardChanged,
    BoardMessageAppended,
    BoardState,
    Posted,
    board_change,
    order_of,
)
from refold.views.window import WINDOW

if TYPE_CHECKING:
    import datetime

    from refold.memory.aio import AsyncConversation
    from refold.results import Receipt

BoardDecision: TypeAlias = Callable[[Layers], Sequence[Event]]
"""From a board as it is to the events of a verb, none where nothing would change."""

_NO_BOARD: Final = BoardState()
_FIELDED: Final = ("session", "config")  # Parts of which a verb changes some fields and leaves the rest.


class BoardStream(NamedTuple):
    """The stream of a board, live or frozen at a seq."""

    core: Core
    scope: BoardScope
    at: int | None

    def layers(self) -> Layers:
        """Return the board and the one under it, both at one moment."""
        with self.core.engine.reader.state_lock:
            own = self.core.read(self.scope.stream, _copied, self.at)
            base = self.scope.base(own)
            return Layers(self.scope, own, _NO_BOARD if base is None else self.core.read(base, _copied, self.at))

    def write(
        self,
        decide: BoardDecision,
        parts: tuple[str, ...],
        request: tuple[Any, ...],
        options: Options,
        *,
        is_single: bool = True,
    ) -> list[Event]:
        """Write the events of a decision that saves parts, as one commit; return them.

        ``is_single`` says that it decides on one event at most.
        """
        core, stream = self.core, self.scope.stream
        core.refuse_frozen(stream, self.at)
        core.engine.reader.check_writable()
        is_alone = is_single and batches.active(core.engine) is None
        if is_alone and not any(map(self.layers().base.has, parts)):  # Read outside of a batch alone.
            return self._write_alone(decide, request, options)
        write = PlannedWrite(core, stream, lambda: self._plan(decide, parts), request, options)
        for _ in range(REDO_COUNT_MAX):
            events = write.run()
            if events is not None:
                return events
        raise StoreBusy(
            f"{stream} was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; let its writers pause and "
            f"call again"
        )

    def _write_alone(self, decide: BoardDecision, request: tuple[Any, ...], options: Options) -> list[Event]:
        def decide_alone(state: State) -> Event | None:
            events = decide(Layers(self.scope, state.part(BOARD), _NO_BOARD))
            assert len(events) <= 1, events
            return events[0] if events else None

        expected, request_id, _ = options
        noted = self.core.write(
            self.scope.stream, decide_alone, at=self.at, call=request, expected=expected, request_id=request_id
        )
        return [] if noted is None else [noted[0]]

    def _plan(self, decide: BoardDecision, parts: tuple[str, ...]) -> EventPlan:
        core, stream = self.core, self.scope.stream
        with core.engine.reader.state_lock:
            layers = self.layers()
            base = self.scope.base(layers.own)
            reads = {name: core.version(name) for name in (stream, base) if name is not None}
            decided = decide(layers)
        if not decided:
            return EventPlan((), reads)
        events = [(stream, event) for event in (*_moved(layers, parts, decided), *decided)]
        leaving = [field for part in parts for field in FIELDS[part] if layers.base.sets(field)]
        if leaving and base is not None:
            events.append((base, board_change((), {}, leaving)))
        return EventPlan(events, reads)


def _copied(state: State) -> BoardState:
    return state.part(BOARD).copy()


def _moved(layers: Layers, parts: Sequence[str], decided: Sequence[Event]) -> list[Event]:
    """Return the events that take the rest of the saved parts over from the board under this one."""
    replaced = {field for event in decided if isinstance(event, BoardChanged) for field in event.fields}
    events: list[Event] = []
    for part in parts:
        if part in _FIELDED and not layers.own.has(part):
            values, seqs = layers.base.entries.values, layers.base.entries.seqs
            for field in FIELDS[part]:
                if field in values and field not in replaced:
                    # Msgpack of a map of one field, whose value is packed already.
                    packed = b"\x81" + pack_json(field) + values[field]
                    events.append(BoardChanged((seqs[field],), (field,), packed))
        elif part == MESSAGES and part not in replaced:
            events += _moved_messages(layers, decided)
    return events


def _moved_messages(layers: Layers, decided: Sequence[Event]) -> list[Event]:
    """Return the events of the messages below: none is lost because another one is added above."""
    known = {posted.id for posted in layers.own.messages}
    known |= {event.id for event in decided if isinstance(event, BoardMessageAppended)}
    return [
        BoardMessageAppended((posted.seq,), posted.id, posted.created_ns, posted.packed)
        for posted in layers.base.messages
        if posted.packed and (not posted.id or posted.id not in known)
    ]


# Decisions: the event of a change, or none.

_MICROSECOND_NS: Final = 1_000
_SORTED: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def set_fields(sources: tuple[int, ...], values: dict[str, Any]) -> BoardDecision:
    """Return the decision to set fields; those that have their value already are left out."""

    def decide(layers: Layers) -> Sequence[Event]:
        changed = {field: value for field, value in values.items() if not _has_value(layers, field, value)}
        return [board_change(sources, changed)] if changed else []

    return decide


def _has_value(layers: Layers, field: str, value: Any) -> bool:
    """Return whether a field has a value already, whatever the order of keys in its objects."""
    if field == MESSAGES:
        rows = [unpack_json(posted.packed) for posted in layers.layer(MESSAGES).messages if posted.packed]
        return rows == [fields for _, fields in value["rows"]]
    return bool(_SORTED(layers.value(field)) == _SORTED(value))


def append_message(sources: tuple[int, ...], given: BoardMessage, now_ns: int) -> BoardDecision:
    """Return the decision to append a message, unless the very same is there under its id."""

    def decide(layers: Layers) -> Sequence[Event]:
        fields, created_ns = given
        rows = (posted for posted in layers.layer(MESSAGES).messages if posted.id == fields["id"] and posted.packed)
        existing = next(rows, None) if fields["id"] else None
        known = None if existing is None else unpack_json(existing.packed)
        if not fields["created_at"]:
            created_ns = now_ns if existing is None else existing.created_ns
            fields = fields | {"created_at": iso(now_ns) if known is None else known["created_at"]}
        return [] if known == fields else [_message_event(sources, fields, created_ns)]

    return decide


def _message_event(sources: tuple[int, ...], fields: JsonObject, created_ns: int | None) -> Event:
    return BoardMessageAppended(sources, fields["id"], created_ns, pack_json(fields))


# Messages of a conversation.


def _window_of(stream: BoardStream, conversation: object) -> tuple[str, Callable[[], list[Message]]]:
    """Return the id of a conversation, that of the session by default, and a function that reads its window."""
    core = stream.core
    conversation = getattr(conversation, "plain", conversation)  # Of a handle for asyncio, the plain one.
    if isinstance(conversation, Conversation):
        other: Core | None = getattr(conversation, "_core", None)
        if other is None or other.engine is not core.engine or other.branch != core.branch:
            raise InvalidInput(f"{checks.shown(conversation)} belongs to another memory; take one of the board's own")
        return conversation.id, conversation.window
    name = stream.scope.session if conversation is None else checks.name(conversation, "conversation")
    if name is None:
        checks.invalid("conversation is missing, and this board is of no session; name the conversation to read")
    key = f"conversation/{name}"
    if conversation is not None and not core.version(key):
        raise NotFound(f"there is no conversation {checks.shown(name)}; conversations() lists those there are")
    return name, lambda: core.read(key, lambda state: list(state.part(WINDOW).live()), None)


def hydrate(
    sources: tuple[int, ...], name: str, window: Callable[[], list[Message]], node: str | None, now_ns: int
) -> BoardDecision:
    """Return the decision to append those messages of a conversation that the board lacks and has space for.

    Each names the message that it is made of as its source.
    """

    def decide(layers: Layers) -> Sequence[Event]:
        existing = layers.layer(MESSAGES).messages
        known = {posted.id for posted in existing}
        taken = {None if posted.created_ns is None else posted.created_ns // _MICROSECOND_NS for posted in existing}
        events: dict[str, Event] = {}
        posted = list(existing)
        for message, text in [(message, text) for message in window() if (text := text_of(message))][-MESSAGES_KEPT:]:
            if message.id not in known:
                created_ns = _free_time(message.occurred_ns or now_ns, taken)
                fields = {
                    "id": message.id,
                    "session_id": name,
                    "node_id": node,
                    "role": message.role,
                    "message_type": "",
                    "content": text,
                    "created_at": iso(created_ns),
                }
                events[message.id] = _message_event((message.stamp.seq, *sources), fields, created_ns)
                posted.append(Posted(0, 0, message.id, created_ns, b""))
        latest = {row.id for row in sorted(posted, key=order_of)[-MESSAGES_KEPT:]}
        return [event for message_id, event in events.items() if message_id in latest]

    return decide


def _free_time(time_ns: int, taken: set[int | None]) -> int:
    """Return the first microsecond from a time on that no message has: those of one commit have the same time.

    No finer than the text of a time, so that messages which somebody reads and sets again keep their order.
    """
    microsecond = time_ns // _MICROSECOND_NS
    while microsecond in taken:
        microsecond += 1
    taken.add(microsecond)
    return microsecond * _MICROSECOND_NS


def text_of(message: Message) -> str:
    """Return the words of a message, empty where it is erased or only calls tools."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    texts = (part.get("text") for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


# Listeners: on top of the log's subscriptions, durable events alone.


class BoardListener:
    """One listener of a board, with the last value that it was shown.

    ``look`` takes a value from a board; ``notify`` gets the board's stream, frozen at the event that changed
    it, and the value there.
    """

    def __init__(
        self, stream: BoardStream, after: int, look: Callable[[Layers], Any], notify: Callable[[BoardStream, Any], Any]
    ) -> None:
        self._stream = stream
        self._look = look
        self._notify = notify
        self._names: tuple[str | None, ...] = ()
        """The streams of the board and of the one under it: no other one changes what a board shows."""
        self._last = self._at(after)[1]
        self._seen_until = 0  # The end of the command that was looked at last: no command is shown by half.

    def on_event(self, recorded: Recorded) -> None:
        """Look at the board after an event that may have changed it, and notify of a difference."""
        is_related = recorded.stamp.stream in self._names or isinstance(recorded.event, Erased)
        if not is_related or recorded.stamp.seq <= self._seen_until:
            return
        self._seen_until = reader.end_of_command(self._stream.core.engine.reader.log, recorded.stamp.seq)
        stream, seen = self._at(self._seen_until)
        if seen != self._last:
            self._last = seen
            self._notify(stream, seen)

    def _at(self, seq: int) -> tuple[BoardStream, Any]:
        stream = self._stream._replace(at=seq)
        layers = stream.layers()
        self._names = stream.scope.stream, stream.scope.base(layers.own)
        return stream, self._look(layers)


class Board:
    """A handle on the working memory of a session, or of a node of a project, part by part.

    A session's parts lie over those of the node that it works on: a part that the session has not set is read there,
    and moves from there when the session sets it. Each setter brings its value into form, appends nothing where nothing
    would change, and returns whether it did; all of them raise ``InvalidInput`` for a value of another type,
    ``LimitExceeded`` for a value over ``VALUE_BYTES_MAX`` or the id of a message over ``KEY_BYTES_MAX``,
    ``WrongVersion`` and ``ReadOnly`` as other verbs do.

    >>> from refold import Memory
    >>> board = Memory().board(session="s-1")
    >>> board.append_message({"role": "user", "content": "Where were we?"})
    True
    >>> board.get("last_user_message")
    'Where were we?'
    """

    __slots__ = ("_at", "_core", "_stream")

    def __init__(self, core: Core, session: object, project: object, node: object, at: int | None) -> None:
        self._core = core
        self._at = at
        self._stream = BoardStream(core, scoped(session, project, node), at)

    def __repr__(self) -> str:
        ids = zip(("session", "project", "node"), self._stream.scope, strict=True)
        names = ", ".join(f"{name}={value!r}" for name, value in ids if value is not None)
        return f"Board({names}, {self._core.counts(lambda: f'messages={len(self._stream.layers().messages())}')})"

    @property
    def session(self) -> str | None:
        """The session that the board is of, ``None`` for that of a node."""
        return self._stream.scope.session

    @property
    def project(self) -> str | None:
        """The project that the handle names, ``None`` where it is the one that the session recorded."""
        return self._stream.scope.project

    @property
    def node(self) -> str | None:
        """The node that the handle names, ``None`` where it is the one that the session recorded."""
        return self._stream.scope.node

    @property
    def version(self) -> int:
        """The version of the board's stream, for ``expected``; 0 before the first change."""
        if self._at is None:
            return self._core.version(self._stream.scope.stream)
        return sum(1 for _ in self.events())

    @property
    def place(self) -> tuple[str, int]:
        """The board's stream and the seq of the handle, for ``memory.diff``."""
        return self._stream.scope.stream, self._core.engine.reader.current_head() if self._at is None else self._at

    # Reading.

    def get(self, part: str) -> Any:
        """Return a part as the board shows it, empty where it is hidden; a new value at each call.

        The parts are session, project_graph, elements_graph, project_structure, node_context, fetched_context,
        working_history, messages, messages_meta, last_user_message (or last_message) and config.
        """
        return self._stream.layers().shown(part_of(part))

    def to_dict(self) -> dict[str, Any]:
        """Return the board as JSON values: session, project_structure, contexts, history, messages, config."""
        layers = self._stream.layers()
        return {part: layers.shown(part) for part in SECTIONS}

    def to_json(self) -> str:
        """Return ``to_dict`` as a JSON text."""
        return msgspec.json.encode(self.to_dict()).decode()

    def bundle(self) -> dict[str, Any]:
        """Return messages, messages_meta, working_history and last_user_message."""
        layers = self._stream.layers()
        return {part: layers.shown(part) for part in BUNDLE}

    def get_settings(self) -> dict[str, Any]:
        """Return the settings: history_length, the three toggles, auto_refresh_interval in seconds."""
        return self._stream.layers().config()

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the board's own events with a seq greater than ``after``, each with its stamp."""
        checks.count(after, "after")
        return self._core.engine.reader.events(self._core.key(self._stream.scope.stream), after, self._at)

    def at(self, at: "int | datetime.datetime") -> "Board":
        """Return the board as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``."""
        return Board(self._core, *self._stream.scope, seq_at(self._core.engine, at, self._at))

    # Writing.

    @mutation
    def set(self, part: str, value: Any, **options: Unpack[MutationOptions]) -> bool:
        """Set a part by its name, as the setter of that part does."""
        return self._set(part_of(part), value, options)

    @mutation
    def initialise(
        self, *, project_id: str | None = None, active_node_id: str | None = None, **options: Unpack[MutationOptions]
    ) -> bool:
        """Record the project and the node that a session works on, by default those that the handle names."""
        ids = {"project_id": project_id or self.project, "active_node_id": active_node_id or self.node}
        given = {name: value for name, value in ids.items() if value is not None}
        return self._set("session", given, options)

    @mutation
    def set_session(self, partial: dict[str, Any], **options: Unpack[MutationOptions]) -> bool:
        """Change the given fields of the session: project_id, active_node_id, timestamp.

        From then on the board of that node lies under it. Raises ``InvalidInput`` for ids other than the handle's.
        """
        return self._set("session", partial, options)

    @mutation
    def set_project_graph(self, graph: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the project's graph: nodes keep id, label, type and builder, edges from, to and type."""
        return self._set("project_graph", graph, options)

    @mutation
    def set_elements_graph(self, graph: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the graph of the elements, as ``set_project_graph`` does."""
        return self._set("elements_graph", graph, options)

    @mutation
    def set_project_structure(self, structure: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the graphs that are given, in one event; a bare graph is the project's, ``None`` empties both."""
        return self._set("project_structure", structure, options)

    @mutation
    def set_node_context(self, context: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the context of the node; notes, customFields and linked_elements outside of ``meta`` go into it."""
        return self._set("node_context", context, options)

    @mutation
    def set_fetched_context(self, context: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the context that was fetched for the node, any JSON object."""
        return self._set("fetched_context", context, options)

    @mutation
    def set_working_history(self, value: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the history: a text, an object with a ``text``, or any other JSON value, which is written out."""
        return self._set("working_history", value, options)

    @mutation
    def set_messages(self, messages: Any, *, meta: Any = None, **options: Unpack[MutationOptions]) -> bool:
        """Replace the messages: the latest 200, by created_at and id.

        ``meta`` is what the board cannot count itself: total_count, filtered_count, has_more, next_cursor,
        last_user_message, last_synced_at.
        """
        return self._set(MESSAGES, messages, options, meta)

    @mutation
    def append_message(self, message: Any, **options: Unpack[MutationOptions]) -> bool:
        """Add a message, in the place of one with the same id; without a created_at it is of now."""
        given, writing = clean_message(message), chosen(options)
        decide = append_message(self._core.sources(writing.sources), given, self._core.engine.reader.now_ns())
        request = ("board.append_message", given.fields)
        return bool(self._stream.write(decide, (MESSAGES,), request, writing))

    @mutation
    def set_messages_meta(self, meta: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the counts of messages that the board does not have; they win over what it counts."""
        return self._set("messages_meta", meta, options)

    @mutation
    def set_last_user_message(self, text: str | None, **options: Unpack[MutationOptions]) -> bool:
        """Set the last message of the user; with a blank text it is taken from the messages again."""
        return self._set("last_user_message", text, options)

    @mutation
    def update_settings(self, partial: dict[str, Any], **options: Unpack[MutationOptions]) -> bool:
        """Change the given settings; numbers are clamped, and what is no number becomes the default.

        A part that a toggle hides comes back when the toggle is turned on again.
        """
        return self._set("config", partial, options)

    def _set(self, part: str, value: Any, options: MutationOptions, meta: Any = None) -> bool:
        clean = CLEANERS[part](value)
        if meta is not None:
            clean["messages_meta"] = CLEANERS["messages_meta"](meta)
        if part == "session":
            self._check_ids(clean)
        if part in _FIELDED:
            values = {f"{part}.{name}": field for name, field in clean.items() if name != "session_id"}
        else:
            values = clean if part in ("project_structure", MESSAGES) else {part: clean}
        parts = (part,) if part in _FIELDED else tuple(values)
        writing = chosen(options)
        decide = set_fields(self._core.sources(writing.sources), values)
        for field, checked in values.items():
            checks.packed_json(checked, field)
        return bool(self._stream.write(decide, parts, (f"board.{parts[0]}", clean), writing))

    def _check_ids(self, given: dict[str, str]) -> None:
        scope = self._stream.scope
        fixed = {"session_id": scope.session or "", "project_id": scope.project, "active_node_id": scope.node}
        for name, value in given.items():
            own = fixed.get(name)
            if own is not None and value != own:
                raise InvalidInput(
                    f"{name} is {checks.shown(value)}, and this board is of {checks.shown(own)}; take another one "
                    f"with memory.board(...)"
                )

    @mutation
    def hydrate(
        self, conversation: "str | Conversation | AsyncConversation | None" = None, **options: Unpack[MutationOptions]
    ) -> int:
        """Append the messages of a conversation's window that the board lacks; return their number.

        The default conversation is that of the session's own id. Each message is a source of its copy, so that an
        erasure reaches both; those without text are left out. As with every message of a session, those of the board
        under it come along. Raises ``NotFound`` for an unknown conversation.
        """
        name, window = _window_of(self._stream, conversation)
        node = self._stream.layers().session()["active_node_id"] or None
        writing = chosen(options)
        decide = hydrate(self._core.sources(writing.sources), name, window, node, self._core.engine.reader.now_ns())
        events = self._stream.write(decide, (MESSAGES,), ("board.hydrate", name), writing, is_single=False)
        return sum(isinstance(event, BoardMessageAppended) for event in events)

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events derived from it are erased too, unless ``derived="keep"``. ``StoreBusy`` while another handle has the
        store open.
        """
        from refold.memory import store  # noqa: PLC0415 - loaded only by those who erase

        return store.erase_stream(self._core, self._stream.scope.stream, self._at, derived, forks)

    # Listening.

    def subscribe(self, listener: "Callable[[Board], Any]", after: int | None = None) -> "Subscription":
        """Call ``listener(board)`` with the board frozen at each commit that changes what it shows.

        Durable events of any process count, on the thread of all subscriptions; ``after`` is a seq to begin behind,
        ``None`` for the present one.
        """

        def notify(stream: BoardStream, _: Any) -> Any:
            return listener(Board(stream.core, *stream.scope, stream.at))

        return self._subscribe(
            listener, after, lambda layers: {part: layers.shown(part) for part in (*SECTIONS, "messages_meta")}, notify
        )

    def subscribe_settings(self, listener: Callable[[dict[str, Any]], Any], after: int | None = None) -> "Subscription":
        """Call ``listener(settings)`` when the settings of the board change, as ``subscribe`` does."""
        return self._subscribe(listener, after, Layers.config, lambda _, settings: listener(dict(settings)))

    def _subscribe(
        self,
        listener: object,
        after: int | None,
        look: Callable[[Layers], Any],
        notify: Callable[[BoardStream, Any], Any],
    ) -> "Subscription":
        if not callable(listener) or iscoroutinefunction(listener):
            shown = checks.shown(listener)
            checks.invalid(f"listener must be a plain function, not {type(listener).__name__} ({shown})")
        if self._at is not None:
            raise ReadOnly(f"{self._stream.scope.stream} is frozen at seq {self._at}; subscribe to the live one")
        engine = self._core.engine
        begin = engine.reader.current_head() if after is None else checks.count(after, "after")
        board_listener = BoardListener(self._stream, begin, look, notify)
        return engine.subscribe(board_listener.on_event, begin, self._core.branch)
