"""Resources of a memory's server: their addresses, their contents, and the clients who watch them.

While anybody watches, one subscription to the log runs on its thread. It only marks what changed, and the loop is woken
once for all that was marked meanwhile, so that many events of one resource are one notification. Each connection is
told by a task of its own: one that does not read keeps no other waiting.
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

from refold import checks, fold
from refold.errors import LimitExceeded, NotFound, RefoldError
from refold.event import Erased, Event, Restored
from refold.importers.values import entry_json, event_json, message_json
from refold.limits import (
    LISTED_COUNT_MAX,
    PAGE_BYTES_MAX,
    PAGE_ENTRIES_MAX,
    PAGE_EVENTS_MAX,
    RECENT_DAYS,
    WATCHED_COUNT_MAX,
)
from refold.views.journal import JournalAppended

if TYPE_CHECKING:
    from mcp.server.connection import Connection

    from refold import Conversation, Memory, Recorded
    from refold.memory import Subscription


# The addresses of resources: ``memory://conversations/{id}/window`` and the others, read and written.

SCHEME: Final = "memory"
SCRATCHPAD: Final = "scratchpad"
WINDOW: Final = "window"
EVENTS: Final = "events"
PROFILE: Final = "profile"
NOTES: Final = "notes"
MEMORIES: Final = "memories"

CONVERSATION_KINDS: Final = (SCRATCHPAD, WINDOW, EVENTS)

TEMPLATES: Final = {
    SCRATCHPAD: "memory://conversations/{id}/scratchpad",
    WINDOW: "memory://conversations/{id}/window",
    EVENTS: "memory://conversations/{id}/events{?from,to}",
    NOTES: "memory://notes/{date}",
    MEMORIES: "memory://projects/{id}/memories{?offset,limit}",
}
"""By the kind of resource; the profile has one address alone."""

_PAGING: Final = {EVENTS: ("from", "to"), MEMORIES: ("offset", "limit")}
_NUMBER_CHARS_MAX: Final = 19
_ADVICE: Final = "resources/list and resources/templates/list show those that there are"


class Address(Struct, frozen=True):
    """Which resource is meant: its kind, the id or the day that it is of, and which part of it."""

    kind: str
    id: str = ""
    paging: tuple[tuple[str, int], ...] = ()

    @property
    def whole(self) -> "Address":
        """The resource without what says which part of it."""
        return Address(self.kind, self.id)

    @property
    def uri(self) -> str:
        """The address as a client writes it."""
        base = _BASES[self.kind].format(quote(self.id, safe=""))
        return base + ("?" + "&".join(f"{name}={number}" for name, number in self.paging) if self.paging else "")


_BASES: Final = {
    **{kind: f"{SCHEME}://conversations/{{}}/{kind}" for kind in CONVERSATION_KINDS},
    PROFILE: f"{SCHEME}://profile",
    NOTES: f"{SCHEME}://notes/{{}}",
    MEMORIES: f"{SCHEME}://projects/{{}}/memories",
}


def parse_address(uri: str) -> Address:
    """Return what an address means; ``InvalidInput`` for one that means nothing."""
    try:
        _check_characters(uri)
        split = urlsplit(uri)
        kind, name = _kind(split.scheme, split.netloc, split.path.split("/")[1:])
        paging = _numbers(kind, parse_qsl(split.query, keep_blank_values=True, strict_parsing=bool(split.query)))
        if split.fragment:
            _none("there is no part of a resource that is called so")
    except ValueError as error:
        checks.invalid(f"no resource has the address {checks.shown(uri)} ({error}); {_ADVICE}")
    return Address(kind, name, paging)


def _kind(scheme: str, root: str, path: list[str]) -> tuple[str, str]:
    """Return the kind of a resource and its id; ``ValueError`` where there is none like it."""
    match root, path:
        case "conversations", [name, kind] if kind in CONVERSATION_KINDS and name:
            found = kind, unquote(name, errors="strict")
        case "projects", [name, "memories"] if name:
            found = MEMORIES, unquote(name, errors="strict")
        case "notes", [day] if day:
            found = NOTES, unquote(day, errors="strict")
        case "profile", [] | [""]:
            found = PROFILE, ""
        case _:
            found = "", ""
    if scheme != SCHEME or not found[0]:
        _none("there is no such kind of resource")
    return found


def _check_characters(uri: str) -> None:
    """Refuse what ``urlsplit`` leaves out without a word, so that another resource would be meant."""
    if not uri.isprintable() or uri != uri.strip():
        _none("spaces around it, and what cannot be printed in it, are written with %")


def _none(why: str) -> NoReturn:
    raise ValueError(why)


def _numbers(kind: str, given: list[tuple[str, str]]) -> tuple[tuple[str, int], ...]:
    """Return what a query says, in the order of its names."""
    known = _PAGING.get(kind, ())
    for name, text in given:
        if name not in known or not (text.isascii() and text.isdecimal() and len(text) <= _NUMBER_CHARS_MAX):
            _none(f"{name}={text} is none of {', '.join(f'{name}=NUMBER' for name in known) or 'nothing'}")
    numbers = {name: int(text) for name, text in given}
    if len(numbers) < len(given):
        _none("a number is given twice")
    return tuple((name, numbers[name]) for name in known if name in numbers)


# What a server is bound to: the memory, and what its host says of conversation, project, profile and journal.

CONVERSATION_META: Final = "refold/conversation"
"""The key of a request's ``_meta`` under which a host names the conversation; a model does not write it."""


class Binding(Struct, frozen=True):
    """What a server serves, decided by who starts it and never by a model, unless ``asks_model`` says so.

    Without a ``conversation`` each session has its own: one that the host names in ``_meta``, that of its HTTP session,
    or ``own``, drawn when the server starts. Since 2026 the protocol has no sessions over HTTP: such clients share
    ``own`` unless their hosts name others. Without a ``project`` it is the conversation's.
    """

    memory: "Memory"
    conversation: str | None = None
    project: str | None = None
    profile: str = "default"
    journal: str = "default"
    readonly: bool = False
    asks_model: bool = False
    """Whether tools take the id of a conversation among their arguments."""
    own: str = field(default_factory=lambda: f"mcp-{os.urandom(8).hex()}")

    def check(self) -> None:
        """Raise ``InvalidInput`` for what is no name, and for a conversation that is fixed and asked for at once."""
        for what in ("conversation", "project", "profile", "journal"):
            name = getattr(self, what)
            if name is not None:
                checks.name(name, what)
        if self.asks_model and self.conversation is not None:
            checks.invalid(
                f"the server is bound to the conversation {self.conversation!r}, so a model cannot name another; leave "
                "out one of conversation and asks_model"
            )

    def conversation_id(self, meta: Mapping[str, Any] | None, session: str | None) -> str:
        """Return the id of the conversation of a request, of its ``_meta`` and of its session's id."""
        if self.conversation is not None:
            return self.conversation
        named = None if meta is None else meta.get(CONVERSATION_META)
        if named is not None:
            return checks.text(named, CONVERSATION_META)
        return self.own if session is None else f"mcp-{session}"

    def chat(self, conversation_id: str) -> "Conversation":
        """Return a handle on a conversation; one that is not there yet will be opened in the project."""
        chat = self.memory.conversation(conversation_id)
        if self.project is None or chat.version:
            return chat
        return self.memory.conversation(conversation_id, project=self.project)

    def project_of(self, chat: "Conversation") -> str:
        """Return the name of the project whose memories are used in a conversation."""
        return self.project or chat.project or "default"


# What resources hold: states of a memory as JSON, and lists of those that there are. Reads only.

JSON: Final = "application/json"

_ABOUT: Final = {
    SCRATCHPAD: "The working memory of a conversation: its keys and its notes.",
    WINDOW: "The messages of a conversation that fit its token budget, oldest first.",
    EVENTS: "What happened in a conversation, by seq; `next` is where the next page begins.",
    PROFILE: "What is remembered in every conversation: keys and values.",
    NOTES: "The notes of a day.",
    MEMORIES: "What is remembered about a project, as it was added; `next` is the offset of the next page.",
}


def templates() -> list[types.ResourceTemplate]:
    """Return the addresses that have an id in them."""
    return [
        types.ResourceTemplate(name=kind, uri_template=template, description=_ABOUT[kind], mime_type=JSON)
        for kind, template in TEMPLATES.items()
    ]


class Cursor(Struct, frozen=True, array_like=True):
    """Where a list goes on: behind a project, or behind a conversation."""

    kind: Literal["memories", "window"]
    after: str


def list_resources(binding: Binding, cursor: str | None) -> tuple[list[types.Resource], str | None]:
    """Return a page of the resources that there are, and the cursor of the next one; ``InvalidInput`` for a wrong one.

    A server that is bound to a conversation lists that one, and one that is bound to a project lists that one.
    """
    place = Cursor(MEMORIES, "") if cursor is None else _place(cursor)
    found = [] if cursor is not None else _fixed(binding)
    if place.kind == MEMORIES:
        names = _projects(binding, place.after)
        found += [_resource(Address(MEMORIES, name)) for name in names]
        if len(names) == LISTED_COUNT_MAX:
            return found, _written(Cursor(place.kind, names[-1]))
        place = Cursor(WINDOW, "")
    ids = _conversations(binding, place.after)
    found += [_resource(Address(kind, name)) for name in ids for kind in CONVERSATION_KINDS]
    return found, _written(Cursor(place.kind, ids[-1])) if len(ids) == LISTED_COUNT_MAX else None


def _fixed(binding: Binding) -> list[types.Resource]:
    found = [_resource(Address(PROFILE))]
    return found + [_resource(Address(NOTES, day)) for day in days(binding)]


def days(binding: Binding) -> list[str]:
    """Return the days of the last weeks that have notes."""
    notes = binding.memory.journal(binding.journal).recent(RECENT_DAYS)
    return list(dict.fromkeys(note.day for note in notes))


def _projects(binding: Binding, after: str) -> list[str]:
    if binding.project is not None:
        return [] if after else [binding.project]
    return binding.memory.projects(after=after or None, limit=LISTED_COUNT_MAX)


def _conversations(binding: Binding, after: str) -> list[str]:
    if binding.conversation is not None:
        return [] if after else [binding.conversation]
    return binding.memory.conversations(after=after or None, limit=LISTED_COUNT_MAX)


def _resource(address: Address) -> types.Resource:
    name = f"{address.kind} of {address.id}" if address.id else address.kind
    return types.Resource(uri=address.uri, name=name, description=_ABOUT[address.kind], mime_type=JSON)


def _place(cursor: str) -> Cursor:
    try:
        return msgspec.json.decode(cursor, type=Cursor)
    except (msgspec.MsgspecError, UnicodeError):
        checks.invalid(f"{checks.shown(cursor)} is no cursor of a list; give nextCursor as it came, or none")


def _written(cursor: Cursor) -> str:
    return msgspec.json.encode(cursor).decode()


def read_resource(binding: Binding, address: Address) -> str:
    """Return what a resource holds, as JSON.

    Raises ``NotFound`` for a conversation or a project that is not there, or that this server is not bound to, and
    ``InvalidInput`` for what is no day.
    """
    return msgspec.json.encode(_CONTENTS[address.kind](binding, address)).decode()


def check_served(binding: Binding, address: Address) -> None:
    """Raise ``NotFound`` for an address of what this server is not bound to, ``InvalidInput`` for what is no day."""
    if address.kind in CONVERSATION_KINDS and binding.conversation not in (None, address.id):
        _not_there(address, f"this server is bound to the conversation {binding.conversation!r}")
    if address.kind == MEMORIES and binding.project not in (None, address.id):
        _not_there(address, f"this server is bound to the project {binding.project!r}")
    if address.kind == NOTES:
        binding.memory.journal(binding.journal).day(address.id)


def is_project(memory: "Memory", name: str) -> bool:
    """Return whether a project of that name holds something."""
    return next(iter(memory.project(name).events()), None) is not None


def _not_there(address: Address, why: str) -> None:
    raise NotFound(
        f"no resource has the address {checks.shown(address.uri)}: {why}; resources/list shows those that it has"
    )


def _chat(binding: Binding, address: Address) -> "Conversation":
    check_served(binding, address)
    chat = binding.chat(address.id)
    if not chat.version and binding.conversation is None:
        _not_there(address, f"there is no conversation {checks.shown(address.id)}")
    return chat


def _scratchpad(binding: Binding, address: Address) -> Any:
    return _chat(binding, address).scratchpad.to_dict()


def _window(binding: Binding, address: Address) -> Any:
    chat = _chat(binding, address)
    counts = {"conversation": chat.id, "tokens": chat.token_count(), "window_tokens": chat.window_tokens}
    return counts | {"messages": [message_json(message) for message in chat.window()]}


def _events(binding: Binding, address: Address) -> Any:
    """Return a page of the events from a seq to a seq, both included."""
    chat = _chat(binding, address)
    asked = dict(address.paging)
    first, last = asked.get("from", 1), min(asked.get("to", binding.memory.head), binding.memory.head)
    found = takewhile(lambda recorded: recorded.stamp.seq <= last, chat.events(min(max(first - 1, 0), last)))
    lines = (event_json(binding.memory, recorded) for recorded in found)
    page, rest = _cut(lines, PAGE_EVENTS_MAX)
    return {"conversation": chat.id, "events": page, "next": None if rest is None else rest["seq"]}


def _cut(lines: Iterator[dict[str, Any]], count_max: int) -> tuple[list[msgspec.Raw], dict[str, Any] | None]:
    """Return as many lines as one page takes, and the first that it does not."""
    page: list[msgspec.Raw] = []
    size = 0
    for line in lines:
        packed = msgspec.json.encode(line)
        size += len(packed)
        if len(page) >= count_max or (page and size > PAGE_BYTES_MAX):
            return page, line
        page.append(msgspec.Raw(packed))
    return page, None


def _profile(binding: Binding, _: Address) -> Any:
    return dict(binding.memory.profile(binding.profile).items())


def _notes(binding: Binding, address: Address) -> Any:
    notes = binding.memory.journal(binding.journal).day(address.id)
    return {"day": address.id, "notes": [{"text": note.text, "time_ns": note.time_ns} for note in notes]}


def _memories(binding: Binding, address: Address) -> Any:
    check_served(binding, address)
    project = binding.memory.project(address.id)
    if binding.project is None and not is_project(binding.memory, address.id):
        _not_there(address, f"there is no project {checks.shown(address.id)}")
    asked = dict(address.paging)
    offset, limit = asked.get("offset", 0), min(asked.get("limit", PAGE_ENTRIES_MAX), PAGE_ENTRIES_MAX)
    page, rest = _cut(map(entry_json, project.list(offset=offset, limit=limit + 1)), limit)
    following = None if rest is None else offset + len(page)
    return {"project": address.id, "offset": offset, "memories": page, "next": following}


_CONTENTS: Final[dict[str, "Callable[[Binding, Address], Any]"]] = {
    SCRATCHPAD: _scratchpad,
    WINDOW: _window,
    EVENTS: _events,
    PROFILE: _profile,
    NOTES: _notes,
    MEMORIES: _memories,
}


# Which resources an event may have changed, and whether the list of them is another one since.

_SHOWN: Final = {"scratch": SCRATCHPAD, "window": WINDOW, "facts": MEMORIES}
"""The kind of the resource that shows a view, by the name of the view."""


def _changed(event: Event) -> tuple[str, ...]:
    """Return the kinds of resources that an event changes: those of the views that fold it; all for a new base."""
    views = fold.VIEWS_OF.get(type(event))
    if views is None or type(event) in fold.BASE_TYPES:
        return tuple(_SHOWN.values())
    return tuple(kind for view, kind in _SHOWN.items() if view in views and event.is_visible)


ALL: Final = Address("")
"""What an erasure reaches may have been part of anything."""


def touched(binding: Binding, recorded: "Recorded") -> Iterable[Address]:
    """Return the resources that an event may have changed; one without an id stands for all of its kind."""
    event, stamp = recorded
    root, _, name = stamp.stream.partition("/")
    if root == "conversation":
        changed = _changed(event)
        # With its first event everything of it is there.
        kinds = [kind for kind in (SCRATCHPAD, WINDOW) if stamp.version == 1 or kind in changed]
        return [Address(kind, name) for kind in (EVENTS, *kinds)]
    if root == "project":
        return [Address(MEMORIES, name)] if stamp.version == 1 or MEMORIES in _changed(event) else []
    if stamp.stream == f"profile/{binding.profile}":
        return [Address(PROFILE)]
    if stamp.stream == f"journal/{binding.journal}":
        return [Address(NOTES, getattr(event, "day", ""))]
    return [ALL] if isinstance(event, Erased) else []


class Lists:
    """Tells which events make the list of resources another one; it knows the days whose notes it has seen."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._days: set[str] = set()

    def is_changed(self, recorded: "Recorded") -> bool:
        """Return whether a resource is listed, or not listed any more, since an event."""
        event, stamp = recorded
        root, _, _ = stamp.stream.partition("/")
        if root in _BOUND_BY:
            # What a server is bound to is listed before it is there, and nothing else ever.
            return stamp.version == 1 and getattr(self._binding, root) is None
        if stamp.stream == f"journal/{self._binding.journal}":
            return self._has_new_day(event, stamp.time_ns)
        # A stream that was erased as a whole goes on under another name.
        return isinstance(event, Erased)

    def _has_new_day(self, event: Event, time_ns: int) -> bool:
        """Return whether the days that have notes are others since an event of the journal."""
        if not isinstance(event, JournalAppended):
            self._days.clear()
            return isinstance(event, Restored)
        if event.day in self._days:
            return False
        self._days.add(event.day)
        try:
            notes = self._binding.memory.journal(self._binding.journal).day(event.day)
            return not notes or (notes[0].time_ns == time_ns and event.day in days(self._binding))
        except RefoldError:  # It is being closed; who looks will see.
            return True


_BOUND_BY: Final = ("conversation", "project")
"""The kinds of stream that are listed, as a binding calls them, too."""


_LIST: Final = ""
"""Stands among the addresses for the list of them."""


class _Watcher:
    """Who is told: how, of which addresses, and what waits to be told."""

    __slots__ = ("addresses", "pending", "send", "task")

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self.send = send
        self.addresses: dict[str, Address] = {}
        self.pending: dict[str, None] = {}
        self.task: asyncio.Task[None] | None = None

    def tell(self, uris: Iterable[str]) -> None:
        """Tell of changes, each once however often it changed while others were told."""
        self.pending.update(dict.fromkeys(uris))
        if self.pending and (self.task is None or self.task.done()):
            self.task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while self.pending:
            uri = next(iter(self.pending))
            del self.pending[uri]
            await self.send(uri)

    def end(self) -> None:
        """Tell nothing more."""
        self.pending.clear()
        if self.task is not None:
            self.task.cancel()


class Watches:
    """Everything that the clients of one running server watch."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus)
        self._streams = _Watcher(self._publish)
        self._streams_count: dict[str, int] = {}
        self._watchers: dict[Connection, _Watcher] = {}
        self._lists = Lists(binding)
        self._subscription: Subscription | None = None
        self._lock = threading.Lock()
        self._marked: set[Address] = set()
        self._has_news = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Watches"]:
        """Tell clients of changes until the block is left."""
        self._loop = asyncio.get_running_loop()
        try:
            yield self
        finally:
            self._handler.close()
            if self._subscription is not None:
                self._subscription.close()
            for watcher in (self._streams, *self._watchers.values()):
                watcher.end()

    # Connections that shook hands: each says which resource it watches.

    @property
    def connections_count(self) -> int:
        """How many of them watch, or have watched and are still there."""
        return len(self._watchers)

    def watch(self, connection: "Connection", uri: str) -> None:
        """Tell a connection of the changes of a resource from now on.

        Raises ``InvalidInput`` or ``NotFound`` for an address that is not served, ``LimitExceeded`` over
        ``WATCHED_COUNT_MAX``.
        """
        watcher = self._watchers.get(connection)
        if watcher is None:
            watcher = self._watchers[connection] = _Watcher(connection.send_resource_updated)
            connection.exit_stack.callback(self._forget, connection)
        self._add(watcher, uri)

    def unwatch(self, connection: "Connection", uri: str) -> None:
        """Tell a connection no more of a resource; one that it does not watch is none of its business."""
        watcher = self._watchers.get(connection)
        if watcher is not None:
            watcher.addresses.pop(uri, None)
            watcher.pending.pop(uri, None)

    def _forget(self, connection: "Connection") -> None:
        watcher = self._watchers.pop(connection, None)
        if watcher is not None:
            watcher.end()

    def _add(self, watcher: _Watcher, uri: str) -> None:
        address = parse_address(uri)
        check_served(self._binding, address)
        if len(watcher.addresses) >= WATCHED_COUNT_MAX and uri not in watcher.addresses:
            raise LimitExceeded(
                f"WATCHED_COUNT_MAX = {WATCHED_COUNT_MAX} resources are watched; unsubscribe from some first"
            )
        watcher.addresses[uri] = address.whole
        self._subscribe()

    # Requests that are streams: each says at once what it listens to.

    async def listen(
        self, context: ServerRequestContext[Any, Any], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream of changes until its client leaves; raises what ``watch`` raises."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        if len(uris) > WATCHED_COUNT_MAX:
            raise LimitExceeded(
                f"{len(uris)} resources are over WATCHED_COUNT_MAX = {WATCHED_COUNT_MAX}; listen to fewer"
            )
        found = {uri: parse_address(uri) for uri in uris}
        for address in found.values():
            check_served(self._binding, address)
        self._subscribe()
        for uri, address in found.items():
            self._streams.addresses[uri] = address.whole
            self._streams_count[uri] = self._streams_count.get(uri, 0) + 1
        try:
            return await self._handler(context, params)
        finally:
            for uri in uris:
                self._release(uri)

    def _release(self, uri: str) -> None:
        self._streams_count[uri] -= 1
        if not self._streams_count[uri]:
            del self._streams_count[uri]
            self._streams.addresses.pop(uri, None)

    async def _publish(self, uri: str) -> None:
        await self._bus.publish(ResourcesListChanged() if uri == _LIST else ResourceUpdated(uri))

    # What the log tells.

    def _subscribe(self) -> None:
        """Listen to the log, from now on; again, if reading it for us had failed."""
        if self._subscription is None or not self._subscription.is_alive:
            self._subscription = self._binding.memory.subscribe(self._mark)

    def _mark(self, recorded: "Recorded") -> None:
        """Mark what an event changed; runs on the thread of the subscription."""
        reached = touched(self._binding, recorded)
        is_new = self._lists.is_changed(recorded)
        with self._lock:
            is_first = not self._marked and not self._has_news
            self._marked.update(reached)
            self._has_news = self._has_news or is_new
            is_first = is_first and bool(self._marked or self._has_news)
        if is_first and self._loop is not None:
            with suppress(RuntimeError):  # The loop has ended, and with it everybody who watched.
                self._loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        """Tell everybody what was marked; runs on the loop."""
        with self._lock:
            marked, has_news = self._marked, self._has_news
            self._marked, self._has_news = set(), False
        for watcher in (self._streams, *self._watchers.values()):
            watcher.tell([uri for uri, address in watcher.addresses.items() if is_among(address, marked)])
        if has_news:
            self._streams.tell([_LIST])


def is_among(address: Address, marked: set[Address]) -> bool:
    """Return whether a resource is one of those that were marked, by itself, by its kind, or with everything."""
    return address in marked or Address(address.kind) in marked or ALL in marked
