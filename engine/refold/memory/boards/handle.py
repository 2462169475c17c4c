"""The board handle: every verb of a board, each part set by its own."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from refold import checks
from refold.engine.loader import Recorded
from refold.engine.pending import ANY
from refold.memory.boards import parts, planning
from refold.memory.boards.overlaying import BUNDLE, SECTIONS, scoped
from refold.memory.boards.writing import Change, Place, Plan, commit
from refold.memory.door import Door, Options, Sources
from refold.memory.moments import seq_at
from refold.views.board import MESSAGES, BoardMessageAppended

if TYPE_CHECKING:
    import datetime

    from refold.engine.subscriptions import Subscription
    from refold.memory.aio import AsyncConversation
    from refold.memory.conversation import Conversation
    from refold.results import Receipt


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
        return self._place.layers().shown(parts.part_of(part))

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
        return _SETTERS[parts.part_of(part)](self, value, expected=expected, request_id=request_id, sources=sources)

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
        given = parts.session(partial)
        values = planning.session_fields(self._place.scope, given)
        return self._set("session", values, given, Options(expected, request_id, sources))

    def set_project_graph(
        self, graph: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the project's graph: nodes keep id, label, type and builder, edges from, to and type."""
        clean = parts.graph(graph, "project_graph")
        return self._set("project_graph", {"project_graph": clean}, clean, Options(expected, request_id, sources))

    def set_elements_graph(
        self, graph: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the graph of the elements, as ``set_project_graph`` does."""
        clean = parts.graph(graph, "elements_graph")
        return self._set("elements_graph", {"elements_graph": clean}, clean, Options(expected, request_id, sources))

    def set_project_structure(
        self, structure: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the graphs that are given, in one event; a bare graph is the project's, ``None`` empties both."""
        clean = parts.structure(structure)
        return self._set(tuple(clean), clean, clean, Options(expected, request_id, sources))

    def set_node_context(
        self, context: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace what is known of the node; notes, customFields and linked_elements beside ``meta`` go into it."""
        clean = parts.node_context(context)
        return self._set("node_context", {"node_context": clean}, clean, Options(expected, request_id, sources))

    def set_fetched_context(
        self, context: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace what was fetched for the node, any JSON object."""
        clean = parts.fetched_context(context)
        return self._set("fetched_context", {"fetched_context": clean}, clean, Options(expected, request_id, sources))

    def set_working_history(
        self, value: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace the history: a text, an object with a ``text``, or any other JSON value, which is written out."""
        clean = parts.working_history(value)
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
        values = {MESSAGES: parts.messages(messages)}
        if meta is not None:
            values["messages_meta"] = parts.messages_meta(meta)
        return self._set(tuple(values), values, values, Options(expected, request_id, sources))

    def append_message(
        self, message: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Add a message, in the place of one with the same id; without a created_at it is of now."""
        given = parts.message(message)
        door, options = self._door, Options(expected, request_id, sources)
        plan = planning.appending(door.sources(sources), given, door.engine.now_ns())
        return bool(self._commit((MESSAGES,), "append_message", given.said, plan, options))

    def set_messages_meta(
        self, meta: Any, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Replace what is known of messages that the board has not; what is given goes before what it counts."""
        clean = parts.messages_meta(meta)
        return self._set("messages_meta", {"messages_meta": clean}, clean, Options(expected, request_id, sources))

    def set_last_user_message(
        self, text: str | None, *, expected: object = ANY, request_id: str | None = None, sources: Sources = ()
    ) -> bool:
        """Say what the user said last; a blank text leaves that to the messages again."""
        clean = parts.last_user_message(text)
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
        given = parts.settings(partial)
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
        name, window = planning.window_of(self._place, conversation)
        node = self._place.layers().session()["active_node_id"] or None
        now_ns = self._door.engine.now_ns()
        plan = planning.hydrating(self._door.sources(sources), name, window, node, now_ns)
        options = Options(expected, request_id, sources)
        events = self._commit((MESSAGES,), "hydrate", name, plan, options, is_single=False)
        return sum(isinstance(event, BoardMessageAppended) for event in events)

    def erase(self, *, derived: str = "erase", forks: str = "refuse") -> "Receipt":
        """Erase the bytes of all its events, and its name; return what was reached, and what no store can reach.

        What was derived from it goes too, unless ``derived="keep"``. ``StoreBusy`` while another handle has the store
        open.
        """
        from refold.memory import erasing  # noqa: PLC0415 - loaded only by those who erase

        return erasing.erase_conversation(self._door, self._place.scope.stream, self._at, derived, forks)

    # Who is told.

    def subscribe(self, listener: "Callable[[Board], Any]", after: int | None = None) -> "Subscription":
        """Call ``listener(board)`` when the board shows something else; it gets the board frozen at that moment.

        Only what is durable is told of, by whichever process it was written, on the thread of all subscriptions;
        ``after`` is a seq to begin behind, ``None`` for the present one. What was written in one commit is told of
        once.
        """
        from refold.memory.boards.listening import (  # noqa: PLC0415 - loaded only by those who subscribe
            check_listener,
            everything,
            subscribed,
        )

        check_listener(listener)
        return subscribed(self._place, after, everything, lambda place, _: listener(_behind(place)))

    def subscribe_settings(self, listener: Callable[[dict[str, Any]], Any], after: int | None = None) -> "Subscription":
        """Call ``listener(settings)`` when the settings of the board become others, as ``subscribe`` does."""
        from refold.memory.boards.listening import (  # noqa: PLC0415 - loaded only by those who subscribe
            check_listener,
            subscribed,
        )

        check_listener(listener)
        return subscribed(self._place, after, lambda layers: layers.config(), lambda _, seen: listener(dict(seen)))

    # What the setters share.

    def _set(self, saved: "str | tuple[str, ...]", values: dict[str, Any], asked: Any, options: Options) -> bool:
        names = (saved,) if isinstance(saved, str) else saved
        plan = planning.setting(self._door.sources(options.sources), values)
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
