"""The board of a session, or of a node of a project: writes, messages of a conversation, listeners, the handle.

A session's board is layered over the board of its node, which stays unchanged for other sessions. When a session moves
to another node, the messages of its conversation that were written there are added to its board in the same commit.
"""

from collections.abc import Callable, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Unpack, cast

import msgspec

from refold import checks
from refold.engine import history, reader
from refold.engine.subscriptions import Subscription
from refold.errors import InvalidInput, NotFound, ReadOnly, StoreBusy
from refold.event import Erased, Event, Recorded, pack_json, unpack_json
from refold.fold import State
from refold.limits import REDO_COUNT_MAX
from refold.memory import snapshot as memory_snapshot
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
    newness,
    parse_scope,
    part_of,
    scope_of,
)
from refold.memory.conversation import Conversation, check_own
from refold.memory.core import Core
from refold.memory.options import MutationOptions, Options, check_page, mutation, parse_options, seq_at
from refold.memory.plans import EventPlan, PlannedWrite
from refold.message import Message
from refold.views.board import (
    BOARD,
    FIELDS,
    MESSAGES,
    MESSAGES_KEPT,
    BoardMessageAppended,
    BoardRow,
    BoardState,
    board_change,
    field_at,
    order_of,
)
from refold.views.store import ERASED_PREFIX
from refold.views.window import WINDOW

if TYPE_CHECKING:
    import datetime

    from refold.memory.aio import AsyncConversation
    from refold.memory.reasons import Revision
    from refold.results import Receipt

BoardDecision: TypeAlias = Callable[[Layers], Sequence[Event]]
"""A function from the current board to the events of a method; there are none if nothing would change."""

_NO_BOARD: Final = BoardState()
_FIELDED: Final = ("session", "config")  # Parts whose setters change only the given fields.
PENDING_SEQ: Final = -(2**62)  # The seq of a move being decided: after all existing messages.


class BoardStream(NamedTuple):
    """The stream of a board, live or frozen at a seq."""

    core: Core
    scope: BoardScope
    at: int | None

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.scope.stream

    def layers(self) -> Layers:
        """Return the board and the one under it, as of the same moment."""
        with self.core.engine.reader.state_lock:
            return self.layers_of(self.core.read(self.scope.stream, _copy_board, self.at))

    def layers_of(self, own: BoardState) -> Layers:
        """Layer a state of the board over the board of the node that it names."""
        base = self.scope.base(own)
        return Layers(self.scope, own, _NO_BOARD if base is None else self.core.read(base, _copy_board, self.at))

    def write(self, decide: BoardDecision, request: tuple[Any, ...], options: Options) -> list[Event]:
        """Write the events of a decision as one commit and return them."""
        core, stream = self.core, self.scope.stream
        core.refuse_frozen(stream, self.at)
        core.engine.reader.check_writable()
        write = PlannedWrite(core, stream, lambda: self._plan(decide), request, options)
        for _ in range(REDO_COUNT_MAX):
            events = write.run()
            if events is not None:
                return events
        raise StoreBusy(
            f"{stream} was written to in each of REDO_COUNT_MAX = {REDO_COUNT_MAX} attempts; let its writers pause and "
            f"call again"
        )

    def write_one(self, decide: BoardDecision, request: tuple[Any, ...], options: Options) -> bool:
        """Write a decision of at most one event; return whether there was one."""
        core, (expected, request_id, _) = self.core, options

        def decide_alone(state: State) -> Event | None:
            events = decide(self.layers_of(state.part(BOARD)))
            assert len(events) <= 1, events
            return events[0] if events else None

        stream = self.scope.stream
        noted = core.write(stream, decide_alone, at=self.at, call=request, expected=expected, request_id=request_id)
        return noted is not None

    def _plan(self, decide: BoardDecision) -> EventPlan:
        core, stream = self.core, self.scope.stream
        with core.engine.reader.state_lock:
            layers = self.layers()
            events = [(stream, event) for event in decide(layers)]
            return EventPlan(events, {stream: core.version(stream)})


def _copy_board(state: State) -> BoardState:
    return state.part(BOARD).copy()


# Decisions: the event of a change, or none.

_MICROSECOND_NS: Final = 1_000
_SORTED: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def set_fields(sources: tuple[int, ...], values: dict[str, Any]) -> BoardDecision:
    """Return the decision to set fields, leaving out those that already have their value."""

    def decide(layers: Layers) -> Sequence[Event]:
        place = layers.place
        changed = {
            field_at(field, place): value for field, value in values.items() if not _has_value(layers, field, value)
        }
        return [board_change(sources, changed)] if changed else []

    return decide


def _has_value(layers: Layers, field: str, value: Any) -> bool:
    """Return whether a field already has a value, whatever the order of keys in its objects."""
    if field == MESSAGES:
        rows = [unpack_json(posted.packed) for posted in layers.listing().rows if posted.packed]
        return (layers.listing().is_whole or bool(rows)) and rows == [fields for _, fields in value["rows"]]
    return bool(_SORTED(layers.value(field)) == _SORTED(value))


def append_message(sources: tuple[int, ...], given: BoardMessage, now_ns: int) -> BoardDecision:
    """Return the decision to append a message, unless an identical one exists under its id."""

    def decide(layers: Layers) -> Sequence[Event]:
        fields, created_ns = given
        rows = (posted for posted in layers.listing().rows if posted.id == fields["id"] and posted.packed)
        existing = next(rows, None) if fields["id"] else None
        known = None if existing is None else unpack_json(existing.packed)
        if not fields["created_at"]:
            created_ns = now_ns if existing is None else existing.created_ns
            fields = fields | {"created_at": iso(now_ns) if known is None else known["created_at"]}
        return [] if known == fields else [_message_event(sources, fields, created_ns, layers)]

    return decide


def _message_event(
    sources: tuple[int, ...], fields: JsonObject, created_ns: int | None, layers: Layers, total: int = 0
) -> BoardMessageAppended:
    return BoardMessageAppended(sources, fields["id"], created_ns, layers.place[1], total, pack_json(fields))


# Messages of a conversation.


def _window_of(stream: BoardStream, conversation: object) -> tuple[str, Callable[[], list[Message]]]:
    """Return the id of a conversation, by default the session's, and a function that reads its window."""
    core = stream.core
    conversation = getattr(conversation, "plain", conversation)  # Unwrap an asyncio handle.
    if isinstance(conversation, Conversation):
        check_own(core, conversation)
        return conversation.id, conversation.window
    name = stream.scope.session if conversation is None else checks.name(conversation, "conversation")
    if name is None:
        checks.invalid("conversation is missing, and this board is of no session; name the conversation to read")
    key = f"conversation/{name}"
    if conversation is not None and not core.version(key):
        raise NotFound(f"there is no conversation {checks.brief(name)}; conversations() lists those there are")
    return name, lambda: core.read(key, lambda state: list(state.part(WINDOW).live()), None)


def hydrate(sources: tuple[int, ...], name: str, window: Callable[[], list[Message]], now_ns: int) -> BoardDecision:
    """Return the decision to append the messages of a conversation that the board lacks and has room for.

    Only messages of the current node are appended: of the node that their metadata names, or else of the one the
    session was at. Each event cites the message it was made from as a source.
    """

    def decide(layers: Layers) -> Sequence[Event]:
        node = layers.session()["active_node_id"] or None
        existing = layers.listing().rows
        known = {posted.id for posted in existing}
        taken = {None if posted.created_ns is None else posted.created_ns // _MICROSECOND_NS for posted in existing}
        texts = [(message, text) for message in window() if (text := text_of(message)) and _is_here(layers, message)]
        events: dict[str, BoardMessageAppended] = {}
        posted = list(existing)
        for message, text in texts[-MESSAGES_KEPT:]:
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
                events[message.id] = _message_event((message.stamp.seq, *sources), fields, created_ns, layers)
                posted.append(BoardRow(0, 0, message.id, created_ns, b""))
        latest = {row.id for row in sorted(posted, key=order_of)[-MESSAGES_KEPT:]}
        written = [event for message_id, event in events.items() if message_id in latest]
        if written:  # The messages left out are counted too.
            ids = {message.id for message, _ in texts}
            rows, total, _ = layers.own.listing(layers.messages_field)
            others = sum(row.id not in ids for row in rows)
            total = max(total + len(written), len(ids) + others)
            written[-1] = msgspec.structs.replace(written[-1], total=total)
        return written

    return decide


def _is_here(layers: Layers, message: Message) -> bool:
    """Return whether a message belongs to the node shown; messages from before any move belong to the first node."""
    named, node = (message.metadata or {}).get("node_id"), layers.session()["active_node_id"]
    if isinstance(named, str) and named:
        return named == node
    moves = layers.own.moves
    places = [place for seq, place in moves if newness(seq) < newness(message.stamp.seq)]
    return not moves or (places[-1] if places else moves[0][1]) == layers.place[1]


def change_session(stream: BoardStream, sources: tuple[int, ...], values: dict[str, Any], now_ns: int) -> BoardDecision:
    """Return the decision to set fields of a session, and to hydrate its board if it moves to another node."""
    name = stream.scope.session

    def decide(layers: Layers) -> Sequence[Event]:
        events = set_fields(sources, values)(layers)
        if not events or name is None or not stream.core.version(f"conversation/{name}"):
            return events
        own = layers.own.copy()
        for field, value in values.items():
            own.entries.put(0, field, pack_json(value))
        own.move(PENDING_SEQ)
        moved = stream.layers_of(own)
        if moved.place == layers.place and layers.own.moves:
            return events
        return [*events, *hydrate(sources, name, _window_of(stream, None)[1], now_ns)(moved)]

    return decide


def _free_time(time_ns: int, taken: set[int | None]) -> int:
    """Return the first microsecond from a time on that no message has: messages of one commit share a time.

    The time is in nanoseconds, and no finer than its text, so that messages that are read and set again keep their
    order.
    """
    microsecond = time_ns // _MICROSECOND_NS
    while microsecond in taken:
        microsecond += 1
    taken.add(microsecond)
    return microsecond * _MICROSECOND_NS


def text_of(message: Message) -> str:
    """Return the text of a message; empty if it was erased or only calls tools."""
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    texts = (part.get("text") for part in content)
    return "\n".join(text for text in texts if isinstance(text, str))


# Listeners: on top of the log's subscriptions, for durable events only.


class BoardListener:
    """A listener of a board, with the last value that it was notified of.

    ``look`` takes a value from a board; ``notify`` gets the board's stream, frozen at the end of the command that
    changed the value, and the value there.
    """

    def __init__(
        self, stream: BoardStream, after: int, look: Callable[[Layers], Any], notify: Callable[[BoardStream, Any], Any]
    ) -> None:
        self._stream = stream
        self._look = look
        self._notify = notify
        self._names: tuple[str | None, ...] = ()
        """The streams of the board and of the one under it; no other stream changes what a board shows."""
        self._last = self._at(after)[1]
        self._seen_until = 0  # The end of the last command looked at: no command is shown half done.

    def on_event(self, recorded: Recorded) -> None:
        """Look at the board after an event that may have changed it, and call ``notify`` if the value differs."""
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
    """A handle on the working memory of a session, or of a node of a project, in parts.

    A session has its own parts for each node, layered over the board of the node it works on: a part that the session
    has not set there is read from the node's board, which no session changes. Each setter normalizes its value, appends
    nothing if nothing would change, and returns whether it appended something. All setters raise ``InvalidInput`` for a
    value of another type, ``LimitExceeded`` for a value over ``VALUE_BYTES_MAX`` or a message id over
    ``KEY_BYTES_MAX``, and ``WrongVersion`` and ``ReadOnly`` as other mutations do.

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
        self._stream = BoardStream(core, parse_scope(session, project, node), at)

    def __repr__(self) -> str:
        ids = zip(("session", "project", "node"), self._stream.scope, strict=True)
        names = ", ".join(f"{name}={value!r}" for name, value in ids if value is not None)
        return f"Board({names}, {self._core.counts(lambda: f'messages={len(self._stream.layers().messages())}')})"

    @property
    def session(self) -> str | None:
        """The session of the board; ``None`` for the board of a node."""
        return self._stream.scope.session

    @property
    def project(self) -> str | None:
        """The project that the handle names; ``None`` if it is the one the session recorded."""
        return self._stream.scope.project

    @property
    def node(self) -> str | None:
        """The node that the handle names; ``None`` if it is the one the session recorded."""
        return self._stream.scope.node

    @property
    def version(self) -> int:
        """The version of the board's stream, for ``expected``; 0 before the first change."""
        return memory_snapshot.version(self._core, self._stream.scope.stream, self._at)

    @property
    def place(self) -> tuple[str, int]:
        """The board's stream and the seq of the handle, for ``memory.diff``."""
        return self._stream.scope.stream, self._core.engine.reader.current_head() if self._at is None else self._at

    # Reading.

    def get(self, part: str) -> Any:
        """Return a part as the board shows it, empty if it is hidden; a new value at each call.

        The parts are session, project_graph, elements_graph, project_structure, node_context, fetched_context,
        working_history, messages, messages_meta, last_user_message (or last_message) and config.
        """
        return self._stream.layers().show(part_of(part))

    def blame(self, part: str) -> "list[Revision]":
        """Return every value that the fields of a part got, each message separately, oldest first, with its writer."""
        from refold.memory.blame import board_revisions  # noqa: PLC0415 - imported on first use

        return board_revisions(self._core, self._stream.scope.stream, FIELDS[part_of(part)], self._at)

    def seqs_shown(self, part: str | None = None) -> list[int]:
        """Return the seqs of the events that a part, or ``to_dict``, is made from, to cite as its sources."""
        layers = self._stream.layers()
        return [seq for each in (SECTIONS if part is None else [part_of(part)]) for seq in layers.seqs(each)]

    def to_dict(self) -> dict[str, Any]:
        """Return the board as JSON values: session, project_structure, contexts, history, messages, config."""
        layers = self._stream.layers()
        return {part: layers.show(part) for part in SECTIONS}

    def to_json(self) -> str:
        """Return ``to_dict`` as a JSON text."""
        return msgspec.json.encode(self.to_dict()).decode()

    def bundle(self) -> dict[str, Any]:
        """Return messages, messages_meta, working_history and last_user_message."""
        layers = self._stream.layers()
        return {part: layers.show(part) for part in BUNDLE}

    def get_settings(self) -> dict[str, Any]:
        """Return the settings: history_length, the three toggles, auto_refresh_interval in seconds."""
        return self._stream.layers().config()

    def events(self, after: int = 0) -> Iterator[Recorded]:
        """Return the board's own events with a seq greater than ``after``, each with its stamp."""
        self._core.check_after(after, self._at)
        return self._core.engine.reader.events(self._core.key(self._stream.scope.stream), after, self._at)

    def at(self, at: "int | datetime.datetime") -> "Board":
        """Return the board as it was at a seq or an aware datetime; mutating it raises ``ReadOnly``."""
        return Board(self._core, *self._stream.scope, seq_at(self._core.engine, at, self._at))

    # Writing.

    @mutation
    def set(self, part: str, value: Any, **options: Unpack[MutationOptions]) -> bool:
        """Set a part by name, as the setter of that part does."""
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

        From then on, the board shows what the session saved at that node, over the node's own board. A move to another
        node adds the messages that the session's conversation wrote there, as ``hydrate`` does. Raises ``InvalidInput``
        for ids other than the handle's.
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
        """Replace the given graphs in one event; a bare graph is the project's, ``None`` empties both."""
        return self._set("project_structure", structure, options)

    @mutation
    def set_node_context(self, context: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the context of the node; notes, customFields and linked_elements outside ``meta`` are moved there."""
        return self._set("node_context", context, options)

    @mutation
    def set_fetched_context(self, context: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the context fetched for the node, any JSON object."""
        return self._set("fetched_context", context, options)

    @mutation
    def set_working_history(self, value: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the history: a text, an object with a ``text``, or another JSON value, stored as JSON text."""
        return self._set("working_history", value, options)

    @mutation
    def set_messages(self, messages: Any, *, meta: Any = None, **options: Unpack[MutationOptions]) -> bool:
        """Replace the messages; the latest 200 are kept, by created_at and id.

        ``meta`` has the values that the board cannot derive: total_count, filtered_count, has_more, next_cursor,
        last_user_message, last_synced_at.
        """
        return self._set(MESSAGES, messages, options, meta)

    @mutation
    def append_message(self, message: Any, **options: Unpack[MutationOptions]) -> bool:
        """Add a message, replacing one with the same id.

        ``created_at`` defaults to that of the message it replaces, or else to now.
        """
        given, writing = clean_message(message), parse_options(options)
        decide = append_message(self._core.sources(writing.sources), given, self._core.engine.reader.now_ns())
        return self._stream.write_one(decide, ("board.append_message", given.fields), writing)

    @mutation
    def set_messages_meta(self, meta: Any, **options: Unpack[MutationOptions]) -> bool:
        """Replace the counts of messages that the board does not hold; they override its own counts."""
        return self._set("messages_meta", meta, options)

    @mutation
    def set_last_user_message(self, text: str | None, **options: Unpack[MutationOptions]) -> bool:
        """Set the user's last message; with a blank text, it is taken from the messages again."""
        return self._set("last_user_message", text, options)

    @mutation
    def update_settings(self, partial: dict[str, Any], **options: Unpack[MutationOptions]) -> bool:
        """Change the given settings; numbers are clamped, and a number that cannot be read becomes the default.

        A part that a toggle hides reappears when the toggle is turned on again.
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
        writing = parse_options(options)
        sources, request = self._core.sources(writing.sources), (f"board.{parts[0]}", clean)
        for field, checked in values.items():
            checks.packed_json(checked, field)
        if part == "session":
            decide = change_session(self._stream, sources, values, self._core.engine.reader.now_ns())
            return bool(self._stream.write(decide, request, writing))
        return self._stream.write_one(set_fields(sources, values), request, writing)

    def _check_ids(self, given: dict[str, str]) -> None:
        scope = self._stream.scope
        fixed = {"session_id": scope.session or "", "project_id": scope.project, "active_node_id": scope.node}
        for name, value in given.items():
            own = fixed.get(name)
            if own is not None and value != own:
                raise InvalidInput(
                    f"{name} is {checks.brief(value)}, and this board is of {checks.brief(own)}; take another one "
                    f"with memory.board(...)"
                )

    @mutation
    def hydrate(
        self, conversation: "str | Conversation | AsyncConversation | None" = None, **options: Unpack[MutationOptions]
    ) -> int:
        """Append the messages of a conversation's window that the board lacks, and return their number.

        The default conversation is the one with the session's id. Messages that were written at another node, that name
        another node in their metadata as ``node_id``, or that have no text are left out. Each message is a source of
        its copy, so that an erasure reaches both. Raises ``NotFound`` for an unknown conversation.
        """
        name, window = _window_of(self._stream, conversation)
        writing = parse_options(options)
        decide = hydrate(self._core.sources(writing.sources), name, window, self._core.engine.reader.now_ns())
        return len(self._stream.write(decide, ("board.hydrate", name), writing))

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        Events derived from it are erased too, unless ``derived="keep"``.
        """
        from refold.memory import store  # noqa: PLC0415 - imported on first use

        return store.erase_stream(self._core, self._stream.name, self._at, derived, forks)

    # Listening.

    def subscribe(self, listener: "Callable[[Board], Any]", after: int | None = None) -> "Subscription":
        """Call ``listener(board)`` with the board frozen at each commit that changes what it shows.

        It is called for durable events of any process, on the thread of all subscriptions. ``after`` is the seq to
        start after, ``None`` for the current one.
        """

        def notify(stream: BoardStream, _: Any) -> Any:
            return listener(Board(stream.core, *stream.scope, stream.at))

        return self._subscribe(
            listener, after, lambda layers: {part: layers.show(part) for part in (*SECTIONS, "messages_meta")}, notify
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
            shown = checks.brief(listener)
            checks.invalid(f"listener must be a plain function, not {type(listener).__name__} ({shown})")
        if self._at is not None:
            raise ReadOnly(f"{self._stream.scope.stream} is frozen at seq {self._at}; subscribe to the live one")
        engine = self._core.engine
        begin = engine.reader.current_head() if after is None else checks.count(after, "after")
        board_listener = BoardListener(self._stream, begin, look, notify)
        return self._core.subscribe(board_listener.on_event, begin)


def list_boards(core: Core, at: int | None, after: "Board | None", limit: int | None) -> list[Board]:
    """Return the boards of a memory, sorted by the names of their streams."""
    after = getattr(after, "plain", after)  # Unwrap an asyncio handle.
    if after is not None and not isinstance(cast("object", after), Board):
        checks.invalid(f"after must be a Board, not {type(after).__name__} ({checks.brief(after)})")
    last, limit = check_page(None if after is None else after.place[0].partition("/")[2], limit)
    names = history.ids(core.engine, core.branch, "board", at=at, after=last, limit=limit)
    scopes = [scope_of(f"board/{name}") for name in names if not name.startswith(ERASED_PREFIX)]
    return [Board(core, *scope, at) for scope in scopes]
