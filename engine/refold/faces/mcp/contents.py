"""What resources hold: states of a memory as JSON, and lists of those that there are. Reads only."""

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from mcp import types
from msgspec import Struct

from refold import checks
from refold.errors import NotFound
from refold.faces.mcp import addresses
from refold.faces.mcp.addresses import Address
from refold.faces.mcp.binding import Binding
from refold.faces.mcp.limits import LISTED_COUNT_MAX, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGE_EVENTS_MAX, RECENT_DAYS
from refold.faces.rendering import entry_json, message_json
from refold.recorders.log import described

if TYPE_CHECKING:
    from collections.abc import Callable

    from refold import Conversation, Memory

JSON: Final = "application/json"

_ABOUT: Final = {
    addresses.SCRATCHPAD: "The working memory of a conversation: its keys and its notes.",
    addresses.WINDOW: "The messages of a conversation that fit its token budget, oldest first.",
    addresses.EVENTS: "What happened in a conversation, by seq; `next` is where the next page begins.",
    addresses.PROFILE: "What is remembered in every conversation: keys and values.",
    addresses.NOTES: "The notes of a day.",
    addresses.MEMORIES: "What is remembered about a project, as it was added; `next` is the offset of the next page.",
}


def templates() -> list[types.ResourceTemplate]:
    """Return the addresses that have an id in them."""
    return [
        types.ResourceTemplate(name=kind, uri_template=template, description=_ABOUT[kind], mime_type=JSON)
        for kind, template in addresses.TEMPLATES.items()
    ]


class Cursor(Struct, frozen=True, array_like=True):
    """Where a list goes on: behind a project, or behind a conversation."""

    kind: Literal["memories", "window"]
    after: str


def listed(binding: Binding, cursor: str | None) -> tuple[list[types.Resource], str | None]:
    """Return a page of the resources that there are, and the cursor of the next one; ``InvalidInput`` for a wrong one.

    A server that is bound to a conversation lists that one, and one that is bound to a project lists that one.
    """
    place = Cursor(addresses.MEMORIES, "") if cursor is None else _place(cursor)
    found = [] if cursor is not None else _fixed(binding)
    if place.kind == addresses.MEMORIES:
        names = _projects(binding, place.after)
        found += [_resource(Address(addresses.MEMORIES, name)) for name in names]
        if len(names) == LISTED_COUNT_MAX:
            return found, _written(Cursor(place.kind, names[-1]))
        place = Cursor(addresses.WINDOW, "")
    ids = _conversations(binding, place.after)
    found += [_resource(Address(kind, name)) for name in ids for kind in addresses.CONVERSATION_KINDS]
    return found, _written(Cursor(place.kind, ids[-1])) if len(ids) == LISTED_COUNT_MAX else None


def _fixed(binding: Binding) -> list[types.Resource]:
    found = [_resource(Address(addresses.PROFILE))]
    return found + [_resource(Address(addresses.NOTES, day)) for day in days(binding)]


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


def content(binding: Binding, address: Address) -> str:
    """Return what a resource holds, as JSON.

    Raises ``NotFound`` for a conversation or a project that is not there, or that this server is not bound to, and
    ``InvalidInput`` for what is no day.
    """
    return msgspec.json.encode(_CONTENTS[address.kind](binding, address)).decode()


def check_served(binding: Binding, address: Address) -> None:
    """Raise ``NotFound`` for an address of what this server is not bound to, ``InvalidInput`` for what is no day."""
    if address.kind in addresses.CONVERSATION_KINDS and binding.conversation not in (None, address.id):
        _not_there(address, f"this server is bound to the conversation {binding.conversation!r}")
    if address.kind == addresses.MEMORIES and binding.project not in (None, address.id):
        _not_there(address, f"this server is bound to the project {binding.project!r}")
    if address.kind == addresses.NOTES:
        binding.memory.journal(binding.journal).day(address.id)


def is_project(memory: "Memory", name: str) -> bool:
    """Return whether a project of that name holds something."""
    return next(iter(memory.project(name).events()), None) is not None


def _not_there(address: Address, why: str) -> None:
    message = f"no resource has the address {checks.shown(address.uri)}: {why}; resources/list shows those that it has"
    raise NotFound(message)


def _chat(binding: Binding, address: Address) -> "Conversation":
    check_served(binding, address)
    chat = binding.chat(address.id)
    if not chat.version and binding.conversation is None:
        _not_there(address, f"there is no conversation {checks.shown(address.id)}")
    return chat


def _scratchpad(binding: Binding, address: Address) -> Any:
    return _chat(binding, address).scratchpad()


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
    lines = (described(binding.memory, recorded) for recorded in found)
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
    addresses.SCRATCHPAD: _scratchpad,
    addresses.WINDOW: _window,
    addresses.EVENTS: _events,
    addresses.PROFILE: _profile,
    addresses.NOTES: _notes,
    addresses.MEMORIES: _memories,
}
