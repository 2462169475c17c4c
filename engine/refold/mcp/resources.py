"""Resources of a memory's server: their addresses, their contents, and the clients that watch them.

While any client watches, one subscription to the log runs on its own thread. It only marks changes and wakes the event
loop once for all changes marked meanwhile, so that many events of one resource become one notification. A separate task
notifies each connection, so a slow one does not delay the others.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
from mcp import types
from mcp.server import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated
from msgspec import Struct, field

from refold import Conversation, Memory, Recorded, checks, fold
from refold.engine.streams import session_board
from refold.engine.subscriptions import Subscription
from refold.errors import LimitExceeded, NotFound, RefoldError
from refold.event import Erased, Event, Restored
from refold.importers.values import entry_json, event_json, message_json
from refold.limits import (
    LISTED_COUNT_MAX,
    NAME_BYTES_MAX,
    PAGE_BYTES_MAX,
    PAGE_ENTRIES_MAX,
    PAGE_EVENTS_MAX,
    RECENT_DAYS,
    WATCHED_COUNT_MAX,
)
from refold.views.board import PARTS, BoardChanged, BoardMessageAppended
from refold.views.profile import JournalAppended

if TYPE_CHECKING:
    from mcp.server.connection import Connection

JSON: Final = "application/json"
# The key in a request's `_meta` under which a host, never a model, names the conversation.
CONVERSATION_META: Final = "refold/conversation"


class Binding(Struct, frozen=True):
    """The memory that a server serves, and which part of it; chosen by the host, never by a model.

    Without a `conversation`, each session has its own: the one that the host names in `_meta`, that of its HTTP
    session, or `own`, drawn at random when the server starts. Since 2026 the protocol has no sessions over HTTP: such
    clients share `own` unless their hosts name others. Without a `project`, the conversation's project is used. With
    `asks_model`, tools accept the id of a conversation as an argument.
    """

    memory: Memory
    conversation: str | None = None
    project: str | None = None
    profile: str = "default"
    journal: str = "default"
    readonly: bool = False
    asks_model: bool = False
    own: str = field(default_factory=lambda: f"mcp-{os.urandom(8).hex()}")

    def check(self) -> None:
        """Raise `InvalidInput` for an invalid name, or for a fixed conversation together with `asks_model`."""
        for kind in ("conversation", "project", "profile", "journal"):
            name = getattr(self, kind)
            if name is not None:
                checks.name(name, kind)
        if self.asks_model and self.conversation is not None:
            checks.invalid(
                f"the server is bound to the conversation {self.conversation!r}, so a model cannot name another; leave "
                "out one of conversation and asks_model"
            )

    def conversation_id(self, meta: Mapping[str, Any] | None, session: str | None) -> str:
        """Return the id of the conversation of a request, given its `_meta` and its session id."""
        if self.conversation is not None:
            return self.conversation
        name = None if meta is None else meta.get(CONVERSATION_META)
        if name is not None:
            return checks.text(name, CONVERSATION_META)
        return self.own if session is None else f"mcp-{session}"

    @property
    def only_project(self) -> str | None:
        """The only project whose memories are served: the bound one, or that of the bound conversation."""
        if self.project is not None or self.conversation is None:
            return self.project
        return self.project_of(self.memory.conversation(self.conversation))

    def serves(self, conversation_id: str) -> bool:
        """Return whether a conversation is the bound one, belongs to the bound project, or is new."""
        if self.conversation is not None or self.project is None:
            return self.conversation in (None, conversation_id)
        chat = self.memory.conversation(conversation_id)
        return not chat.version or (chat.project or "default") == self.project

    def conversations(self, *, after: str | None = None, limit: int) -> list[str]:
        """List the ids of the served conversations, sorted and paged."""
        ids: list[str] = []
        while len(ids) < limit:
            page = self.memory.conversations(after=after, limit=limit)
            ids += filter(self.serves, page)
            if len(page) < limit:
                break
            after = page[-1]
        return ids[:limit]

    def chat(self, conversation_id: str) -> Conversation:
        """Return a handle on a conversation; a new one will be opened in the bound project.

        Raises `NotFound` for a conversation of a project other than the bound one.
        """
        if not self.serves(conversation_id):
            raise NotFound(
                f"the conversation {checks.brief(conversation_id)} is not of the project {self.project!r}, which this "
                "server is bound to; name another one, or bind a server to its project"
            )
        chat = self.memory.conversation(conversation_id)
        if self.project is None or chat.version:
            return chat
        return self.memory.conversation(conversation_id, project=self.project)

    def project_of(self, chat: Conversation) -> str:
        """Return the name of the project whose memories a conversation uses."""
        return self.project or chat.project or "default"


# Addresses such as `memory://conversations/{id}/window`.

SCRATCHPAD: Final = "scratchpad"
WINDOW: Final = "window"
EVENTS: Final = "events"
PROFILE: Final = "profile"
NOTES: Final = "notes"
MEMORIES: Final = "memories"
CONVERSATION_KINDS: Final = (SCRATCHPAD, WINDOW, EVENTS)
BOARD: Final = "board"
BOARD_KINDS: Final = {f"board/{part}": part for part in PARTS}
_SCHEME: Final = "memory://"
_PATHS: Final = {
    **{kind: f"conversations/{{}}/{kind}" for kind in (*CONVERSATION_KINDS, *BOARD_KINDS)},
    PROFILE: "profile",
    NOTES: "notes/{}",
    MEMORIES: "projects/{}/memories",
}
_PAGING: Final = {EVENTS: ("from", "to"), MEMORIES: ("offset", "limit")}
_ABOUT: Final = {
    SCRATCHPAD: "The working memory of a conversation: its keys and its notes.",
    WINDOW: "The messages of a conversation that fit its token budget, oldest first.",
    EVENTS: "What happened in a conversation, by seq; `next` is where the next page begins.",
    PROFILE: "What is remembered in every conversation: keys and values.",
    NOTES: "The notes of a day.",
    MEMORIES: "What is remembered about a project, as it was added; `next` is the offset of the next page.",
    **dict.fromkeys((BOARD, *BOARD_KINDS), "A part of the board of a session, empty while its settings hide it."),
}
# By kind of resource; the profile has only one address.
TEMPLATES: Final = {
    kind: _SCHEME
    + path.format("{date}" if kind == NOTES else "{id}")
    + (f"{{?{','.join(_PAGING[kind])}}}" if kind in _PAGING else "")
    for kind, path in _PATHS.items()
    if kind != PROFILE and kind not in BOARD_KINDS
} | {BOARD: f"{_SCHEME}conversations/{{id}}/board/{{part}}"}

_NUMBER_CHARS_MAX: Final = 19


class Address(Struct, frozen=True):
    """The address of a resource: its kind, its id or day, and its page."""

    kind: str
    id: str = ""
    paging: tuple[tuple[str, int], ...] = ()

    @property
    def uri(self) -> str:
        """The URI of the address."""
        query = "&".join(f"{name}={number}" for name, number in self.paging)
        return f"{_SCHEME}{_PATHS[self.kind].format(quote(self.id, safe=''))}{f'?{query}' if query else ''}"


ALL: Final = Address("")  # Stands for every resource: an erasure can reach any of them.


def parse_address(uri: str) -> Address:
    """Parse a URI; raises `InvalidInput` if no resource can have it."""
    try:
        if not uri.isprintable() or uri != uri.strip():  # `urlsplit` would drop these and find another resource.
            _refuse("spaces around it, and what cannot be printed in it, are written with %")
        split = urlsplit(uri)
        kind, name = _kind(split.scheme, [split.netloc, *split.path.split("/")[1:]])
        paging = _numbers(kind, parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        if split.fragment:
            _refuse("there is no part of a resource that is called so")
    except ValueError as error:
        checks.invalid(
            f"no resource has the address {checks.brief(uri)} ({error}); "
            "resources/list and resources/templates/list show those that there are"
        )
    return Address(kind, name, paging)


def _kind(scheme: str, parts: list[str]) -> tuple[str, str]:
    parts = ["profile"] if parts == ["profile", ""] else parts
    for kind, path in _PATHS.items() if f"{scheme}://" == _SCHEME else ():
        shape = path.split("/")
        if len(shape) == len(parts) and all(
            part == known or (known == "{}" and part) for part, known in zip(parts, shape, strict=True)
        ):
            return kind, unquote(parts[shape.index("{}")], errors="strict") if "{}" in shape else ""
    raise ValueError("there is no such kind of resource")


def _numbers(kind: str, query: list[tuple[str, str]]) -> tuple[tuple[str, int], ...]:
    names = _PAGING.get(kind, ())
    for name, text in query:
        if name not in names or not (text.isascii() and text.isdecimal() and len(text) <= _NUMBER_CHARS_MAX):
            _refuse(f"{name}={text} is none of {', '.join(f'{name}=NUMBER' for name in names) or 'nothing'}")
    numbers = {name: int(text) for name, text in query}
    if len(numbers) < len(query):
        _refuse("a number is given twice")
    return tuple((name, numbers[name]) for name in names if name in numbers)


def _refuse(why: str) -> NoReturn:
    raise ValueError(why)


# Listing resources.


def templates() -> list[types.ResourceTemplate]:
    """List the templates of the addresses that contain an id."""
    return [
        types.ResourceTemplate(name=kind, uri_template=template, description=_ABOUT[kind], mime_type=JSON)
        for kind, template in TEMPLATES.items()
    ]


class Cursor(Struct, frozen=True, array_like=True):
    """The end of a page of resources: a project or a conversation."""

    kind: Literal["memories", "window"]
    after: str


def list_resources(binding: Binding, cursor: str | None) -> tuple[list[types.Resource], str | None]:
    """List a page of the resources, with the cursor of the next page; raises `InvalidInput` for a wrong cursor.

    A server bound to a conversation lists that conversation and its project; one bound to a project lists the project
    and its conversations.
    """
    memory = binding.memory
    if cursor is None:
        place = Cursor(MEMORIES, "")
        addresses = [Address(PROFILE), *(Address(NOTES, day) for day in days(binding))]
    else:
        addresses = []
        try:
            place = msgspec.json.decode(cursor, type=Cursor)
        except checks.UNDECODABLE:
            checks.invalid(f"{checks.brief(cursor)} is no cursor of a list; give nextCursor as it came, or none")
    if place.kind == MEMORIES:
        names = _page(memory.projects, binding.only_project, place.after)
        addresses += [Address(MEMORIES, name) for name in names]
        place = Cursor(MEMORIES, names[-1]) if len(names) == LISTED_COUNT_MAX else Cursor(WINDOW, "")
    if place.kind == WINDOW:
        names = _page(binding.conversations, binding.conversation, place.after)
        addresses += [Address(kind, name) for name in names for kind in _kinds_of(memory, name)]
        place = Cursor(WINDOW, names[-1] if len(names) == LISTED_COUNT_MAX else "")
    following = msgspec.json.encode(place).decode() if place.after else None
    page = [
        types.Resource(
            uri=address.uri,
            name=f"{address.kind} of {address.id}" if address.id else address.kind,
            description=_ABOUT[address.kind],
            mime_type=JSON,
        )
        for address in addresses
    ]
    return page, following


def _kinds_of(memory: Memory, conversation_id: str) -> tuple[str, ...]:
    return (*CONVERSATION_KINDS, *(BOARD_KINDS if _has_board(memory, conversation_id) else ()))


def _has_board(memory: Memory, conversation_id: str) -> bool:
    # A conversation whose name is too long for the name of its board has none.
    return len(session_board(conversation_id).encode()) <= NAME_BYTES_MAX and bool(
        memory.board(session=conversation_id).version
    )


def _page(names: Callable[..., list[str]], bound: str | None, after: str) -> list[str]:
    if bound is not None:
        return [] if after else [bound]
    return names(after=after or None, limit=LISTED_COUNT_MAX)


def days(binding: Binding) -> list[str]:
    """List the days with notes in the last weeks."""
    notes = binding.memory.journal(binding.journal).recent(RECENT_DAYS)
    return list(dict.fromkeys(note.day for note in notes))


# Contents: states of a memory as JSON. Read-only.


def read_resource(binding: Binding, address: Address) -> str:
    """Read a resource as JSON.

    Raises `NotFound` for a conversation or a project that does not exist or that this server does not serve, and
    `InvalidInput` for an invalid day.
    """
    _check_scope(binding, address)
    memory, content = binding.memory, dict[str, Any]()
    if address.kind == PROFILE:
        content = dict(memory.profile(binding.profile).items())
    elif address.kind == NOTES:
        notes = memory.journal(binding.journal).day(address.id)
        content = {"day": address.id, "notes": [{"text": note.text, "time_ns": note.time_ns} for note in notes]}
    elif address.kind == MEMORIES:
        content = _memories(binding, address)
    else:
        content = _conversation_content(binding, address)
    return msgspec.json.encode(content).decode()


def _check_scope(binding: Binding, address: Address) -> None:
    if address.kind in {*CONVERSATION_KINDS, *BOARD_KINDS} and not binding.serves(address.id):
        named = (
            f"project {binding.project!r}" if binding.conversation is None else f"conversation {binding.conversation!r}"
        )
        _raise_not_found(address, f"this server is bound to the {named}")
    if address.kind == MEMORIES and binding.only_project not in (None, address.id):
        _raise_not_found(address, f"this server is bound to the project {binding.only_project!r}")
    if address.kind == NOTES:
        binding.memory.journal(binding.journal).day(address.id)


def _raise_not_found(address: Address, why: str) -> NoReturn:
    raise NotFound(
        f"no resource has the address {checks.brief(address.uri)}: {why}; resources/list shows those that it has"
    )


def is_project(memory: Memory, name: str) -> bool:
    """Return whether a project of that name has any events."""
    return next(iter(memory.project(name).events()), None) is not None


def _conversation_content(binding: Binding, address: Address) -> dict[str, Any]:
    if address.kind in BOARD_KINDS:
        return _board_content(binding, address)
    chat = binding.chat(address.id)
    if not chat.version and binding.conversation is None:
        _raise_not_found(address, f"there is no conversation {checks.brief(address.id)}")
    if address.kind == SCRATCHPAD:
        return chat.scratchpad.to_dict()
    if address.kind == WINDOW:
        counts = {"conversation": chat.id, "tokens": chat.token_count(), "window_tokens": chat.window_tokens}
        return counts | {"messages": [message_json(message) for message in chat.window()]}
    paging, head = dict(address.paging), binding.memory.head
    first, last = paging.get("from", 1), min(paging.get("to", head), head)
    events = takewhile(lambda recorded: recorded.stamp.seq <= last, chat.events(min(max(first - 1, 0), last)))
    page, rest = _cut((event_json(binding.memory, recorded) for recorded in events), PAGE_EVENTS_MAX)
    return {"conversation": chat.id, "events": page, "next": None if rest is None else rest["seq"]}


def _board_content(binding: Binding, address: Address) -> dict[str, Any]:
    # For a session without a conversation, the project is not known.
    is_known = binding.project is None or binding.memory.conversation(address.id).version
    if not (is_known and _has_board(binding.memory, address.id)) and binding.conversation is None:
        _raise_not_found(address, f"there is no board of a session {checks.brief(address.id)}")
    part = BOARD_KINDS[address.kind]
    return {"session": address.id, "part": part, "value": binding.memory.board(session=address.id).get(part)}


def _cut(lines: Iterator[dict[str, Any]], count_max: int) -> tuple[list[msgspec.Raw], dict[str, Any] | None]:
    """Take the lines that fit on one page; return them and the first line that does not fit."""
    page: list[msgspec.Raw] = []
    size = 0
    for line in lines:
        packed = msgspec.json.encode(line)
        size += len(packed)
        if len(page) >= count_max or (page and size > PAGE_BYTES_MAX):
            return page, line
        page.append(msgspec.Raw(packed))
    return page, None


def _memories(binding: Binding, address: Address) -> dict[str, Any]:
    project = binding.memory.project(address.id)
    if binding.only_project is None and not is_project(binding.memory, address.id):
        _raise_not_found(address, f"there is no project {checks.brief(address.id)}")
    paging = dict(address.paging)
    # A page without entries would name itself as the next one.
    offset, limit = paging.get("offset", 0), max(min(paging.get("limit", PAGE_ENTRIES_MAX), PAGE_ENTRIES_MAX), 1)
    page, rest = _cut(map(entry_json, project.list(offset=offset, limit=limit + 1)), limit)
    following = None if rest is None else offset + len(page)
    return {"project": address.id, "offset": offset, "memories": page, "next": following}


# Changes: which resources an event could have changed, and whether it changed the list of resources.

# The kind of resource that shows a view, by the view's name.
_SHOWN: Final = {"scratch": SCRATCHPAD, "window": WINDOW, "facts": MEMORIES}


def _event_kinds(event: Event) -> tuple[str, ...]:
    """Return the kinds of resources that an event changes: those of the views that fold it, or all for a new base."""
    views = fold.VIEWS_OF.get(type(event))
    if views is None or type(event) in fold.BASE_TYPES:
        return tuple(_SHOWN.values())
    return tuple(kind for view, kind in _SHOWN.items() if view in views and event.is_visible)


_MESSAGE_PARTS: Final = ("messages", "messages_meta", "last_user_message")
_CONTEXT_PARTS: Final = ("node_context", "fetched_context")
_GRAPH_PARTS: Final = ("project_graph", "elements_graph", "project_structure")
# The parts that show the value of a board field; a field that is not listed shows in the part of the same name.
_SHOWN_IN: Final[dict[str, tuple[str, ...]]] = {
    "session.project_id": PARTS,
    "session.active_node_id": PARTS,
    "config.history_length": ("config", "messages", "messages_meta"),
    "config.include_project_structure": ("config", *_GRAPH_PARTS),
    "config.include_context": ("config", *_CONTEXT_PARTS),
    "config.include_working_history": ("config", "working_history"),
    "project_graph": ("project_graph", "project_structure"),
    "elements_graph": ("elements_graph", "project_structure"),
    "messages": _MESSAGE_PARTS,
    "last_user_message": ("last_user_message", "messages_meta"),
}


def _event_parts(event: Event) -> Iterable[str]:
    """Return the parts of a board that one of its events could change, always including the time of the session."""
    if isinstance(event, BoardMessageAppended):
        return ("session", *_MESSAGE_PARTS)
    if not isinstance(event, BoardChanged):
        return PARTS
    bases = [field.partition("@")[0] for field in event.fields]
    shown = (_SHOWN_IN.get(base, (base.partition(".")[0],)) for base in bases)
    return dict.fromkeys(("session", *(part for parts in shown for part in parts)))


def event_addresses(binding: Binding, recorded: Recorded) -> Iterable[Address]:
    """Return the resources that an event could have changed; an address without an id means all of its kind."""
    event, stamp = recorded
    root, _, name = stamp.stream.partition("/")
    if root == "conversation":
        changed = _event_kinds(event)
        # The first event of a conversation brings all its resources into being.
        kinds = [kind for kind in (SCRATCHPAD, WINDOW) if stamp.version == 1 or kind in changed]
        return [Address(kind, name) for kind in (EVENTS, *kinds)]
    if root == "board":
        owner, _, session = name.partition("/")
        # A node's board lies beneath the boards of sessions, and only those record which sessions use it.
        parts: Iterable[str] = PARTS if stamp.version == 1 else _event_parts(event)
        return [Address(f"board/{part}", session if owner == "session" else "") for part in parts]
    if root == "project":
        return [Address(MEMORIES, name)] if stamp.version == 1 or MEMORIES in _event_kinds(event) else []
    if stamp.stream == f"profile/{binding.profile}":
        return [Address(PROFILE)]
    if stamp.stream == f"journal/{binding.journal}":
        return [Address(NOTES, getattr(event, "day", ""))]
    return [ALL] if isinstance(event, Erased) else []


def is_among(address: Address, marked: set[Address]) -> bool:
    """Return whether a resource was marked: by itself, by its kind, or with everything."""
    return not marked.isdisjoint((address, Address(address.kind), ALL))


class ListTracker:
    """Detects events that change the list of resources, using the days whose notes it has seen."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._days: set[str] = set()

    def is_changed(self, recorded: Recorded) -> bool:
        """Return whether an event adds a resource to the list or removes one."""
        event, stamp = recorded
        root, _, _ = stamp.stream.partition("/")
        if root == "board":
            owner, _, session = stamp.stream.partition("/")[2].partition("/")
            is_listed = self._binding.conversation in (None, session) and owner == "session" and stamp.version == 1
            return is_listed and bool(self._binding.conversation or self._binding.memory.conversation(session).version)
        if root in {"conversation", "project"}:
            # A bound server lists its conversation or project before it exists, and never lists any other.
            return stamp.version == 1 and getattr(self._binding, root) is None
        if stamp.stream != f"journal/{self._binding.journal}":
            # A stream that was erased as a whole continues under another name.
            return isinstance(event, Erased)
        if not isinstance(event, JournalAppended):
            self._days.clear()
            return isinstance(event, Restored)
        if event.day in self._days:
            return False
        self._days.add(event.day)
        try:
            notes = self._binding.memory.journal(self._binding.journal).day(event.day)
            return not notes or (notes[0].time_ns == stamp.time_ns and event.day in days(self._binding))
        except RefoldError:  # The memory is being closed; clients will see when they look.
            return True


# Watching.

_LIST: Final = ""  # Stands among the addresses for the list of resources.


class _Watcher:
    """A connection, or all streams together: the watched addresses, and the changes to send."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.addresses: dict[str, Address] = {}
        self.pending: dict[str, None] = {}
        self._send = send
        self._task: asyncio.Task[None] | None = None

    def notify(self, uris: Iterable[str]) -> None:
        self.pending.update(dict.fromkeys(uris))
        if self.pending and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        while self.pending:
            uri = next(iter(self.pending))
            del self.pending[uri]
            await self._send(uri)

    def end(self) -> None:
        self.pending.clear()
        if self._task is not None:
            self._task.cancel()


class Watches:
    """The resources watched by the clients of one running server."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus)
        self._streams = _Watcher(
            lambda uri: self._bus.publish(ResourcesListChanged() if uri == _LIST else ResourceUpdated(uri))
        )
        self._streams_count: dict[str, int] = {}
        self._watchers: dict[Connection, _Watcher] = {}
        self._lists = ListTracker(binding)
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()
        self._marked: set[Address] = set()
        self._has_news = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def run(self) -> AsyncGenerator["Watches"]:
        """Notify clients of changes until the block exits."""
        self._loop = asyncio.get_running_loop()
        try:
            yield self
        finally:
            self._handler.close()
            if self._subscription is not None:
                self._subscription.close()
            for watcher in (self._streams, *self._watchers.values()):
                watcher.end()

    @property
    def connections_count(self) -> int:
        """Number of connections that watch, or have watched and are still open."""
        return len(self._watchers)

    def watch(self, connection: "Connection", uri: str) -> None:
        """Notify a connection of changes to a resource from now on.

        Raises `InvalidInput` or `NotFound` for an address that is not served, and `LimitExceeded` over
        `WATCHED_COUNT_MAX`.
        """
        watcher = self._watchers.get(connection)
        if watcher is None:
            watcher = self._watchers[connection] = _Watcher(connection.send_resource_updated)
            connection.exit_stack.callback(self._forget, connection)
        address = parse_address(uri)
        _check_scope(self._binding, address)
        if len(watcher.addresses) >= WATCHED_COUNT_MAX and uri not in watcher.addresses:
            raise LimitExceeded(f"{WATCHED_COUNT_MAX = } resources are watched; unsubscribe from some first")
        watcher.addresses[uri] = Address(address.kind, address.id)
        self._subscribe()

    def unwatch(self, connection: "Connection", uri: str) -> None:
        """Stop notifying a connection of changes to a resource."""
        watcher = self._watchers.get(connection)
        if watcher is not None:
            watcher.addresses.pop(uri, None)
            watcher.pending.pop(uri, None)

    def _forget(self, connection: "Connection") -> None:
        watcher = self._watchers.pop(connection, None)
        if watcher is not None:
            watcher.end()

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of changes until its client leaves; raises the same errors as `watch`."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > WATCHED_COUNT_MAX:
            raise LimitExceeded(f"{len(uris)} resources are over {WATCHED_COUNT_MAX = }; listen to fewer")
        addresses = {uri: parse_address(uri) for uri in uris}
        for address in addresses.values():
            _check_scope(self._binding, address)
        self._subscribe()
        for uri, address in addresses.items():
            self._streams.addresses[uri] = Address(address.kind, address.id)
            self._streams_count[uri] = self._streams_count.get(uri, 0) + 1
        try:
            return await self._handler(context, params)
        finally:
            for uri in uris:
                self._streams_count[uri] -= 1
                if not self._streams_count[uri]:
                    del self._streams_count[uri]
                    self._streams.addresses.pop(uri, None)

    def _subscribe(self) -> None:
        if self._subscription is None or not self._subscription.is_alive:
            self._subscription = self._binding.memory.subscribe(self._mark)

    def _mark(self, recorded: Recorded) -> None:
        """Mark the resources that an event changed; runs on the subscription's thread."""
        addresses = event_addresses(self._binding, recorded)
        is_new = self._lists.is_changed(recorded)
        with self._lock:
            is_first = not self._marked and not self._has_news
            self._marked.update(addresses)
            self._has_news = self._has_news or is_new
            is_first = is_first and bool(self._marked or self._has_news)
        if is_first and self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and all watchers with it.
                self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        """Notify the watchers of the marked changes; runs on the event loop."""
        with self._lock:
            marked, has_news = self._marked, self._has_news
            self._marked, self._has_news = set(), False
        for watcher in (self._streams, *self._watchers.values()):
            watcher.notify([uri for uri, address in watcher.addresses.items() if is_among(address, marked)])
        if has_news:
            self._streams.notify([_LIST])
