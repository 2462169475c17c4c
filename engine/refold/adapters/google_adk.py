"""Services for Google's ADK: sessions and events in a table, shown as conversations, and memories in projects."""

# Type checking runs without ADK installed: only its names are unknown there.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownParameterType=false, reportUnknownVariableType=false

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from refold import Conversation, Memory, Message, Receipt
from refold.adapters.erasure import erase
from refold.adapters.extras import import_extra
from refold.adapters.keys import part, text
from refold.adapters.windows import call_ids, opening
from refold.index.ranking import Ranking
from refold.memory import Table, TableItem

with import_extra("google-adk"):
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.platform import time as adk_time
    from google.adk.platform import uuid as adk_uuid
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State

T = TypeVar("T")
Names = tuple[str, ...]

_ACTOR: Final = "google-adk"
_NANOSECONDS: Final = 1_000_000_000
_EVENT_ID: Final = "event"
"""The metadata key that names the event of a message."""

_EVENT: Final = "event"
_FRAME: Final = "frame"
"""The two items of an event, in this order: the whole event, and what remains once its texts are erased."""

_ERASED: Final = "(erased)"
_STALE: Final = "The session has been modified in storage since it was loaded. Reload it before you append to it."


class RefoldSessionService(BaseSessionService):
    """ADK's ``BaseSessionService`` in a memory: pass it to ``Runner(session_service=...)``.

    Sessions, events and states are items of the table ``name``. The messages of a session are also the window of the
    conversation ``NAME/APP/USER/SESSION``, in which a ``/`` within a name is written ``%2F``, so that ``why``,
    ``search``, budgets, ``erase`` and ``refold web`` work on them. Each call is one commit. An append to a session that
    another writer has changed since it was read is refused, as in ADK's ``DatabaseSessionService``. A rewind takes the
    conversation back to where the session goes on. Erasing a message erases its event, and the session's state that
    the event set; an erased event comes back as ``(erased)``, with its function calls. ``erase_session`` and
    ``erase_user`` erase all of them.

    >>> import asyncio
    >>> memory = Memory()
    >>> service = RefoldSessionService(memory)
    >>> session = asyncio.run(service.create_session(app_name="trips", user_id="ann", session_id="rome"))
    >>> event = Event(author="user", message="Hello!")
    >>> _ = asyncio.run(service.append_event(session, event))
    >>> memory.conversation("google-adk/trips/ann/rome").window()[0].content
    'Hello!'
    """

    def __init__(self, memory: Memory, *, name: str = "google-adk") -> None:
        self.memory, self.name = memory, name
        self._table: Table = memory.table(name)
        self._locks: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    # Reading.

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with the events that the config asks for, or ``None`` if there is none."""
        return await asyncio.to_thread(self._session, (app_name, user_id, session_id.strip()), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of an app, or of one of its users, without events, the most recently updated last."""
        names = (app_name,) if user_id is None else (app_name, user_id)
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._sessions, names))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, with keys without their prefix."""
        return await asyncio.to_thread(self._state, "user", (app_name, user_id))

    def _session(self, names: Names, config: GetSessionConfig | None) -> Session | None:
        row = self._table.item(_key("session", names))
        while row is not None:
            state, events = self._merge_state(names), self._events(names, row, config)
            before, row = row, self._table.item(_key("session", names))
            if row is not None and row.seq == before.seq:  # Otherwise a write happened during the read.
                return _session(names, row, state, events)
        return None

    def _events(self, names: Names, row: TableItem, config: GetSessionConfig | None) -> list[Event]:
        count = None if config is None else config.num_recent_events
        if count == 0:
            return []
        first = max(row.value["count"] - count, 0) if count else 0
        items = self._table.scan(_key("event", names), after=_key("event", (*names, _number(first), _FRAME)))
        events = _parse_events(items)
        since = None if config is None else config.after_timestamp
        return [event for event in events if since is None or event.timestamp >= since]

    def _sessions(self, names: Names) -> list[Session]:
        sessions: list[Session] = []
        for row in self._table.scan(_key("session", names)):
            own = tuple(map(text, row.key[1:]))
            sessions.append(_session(own, row, self._merge_state(own), []))
        return sorted(sessions, key=_age)

    def _state(self, scope: str, names: Names) -> dict[str, Any]:
        return {text(item.key[-1]): item.value for item in self._table.scan(_key(scope, names))}

    def _merge_state(self, names: Names) -> dict[str, Any]:
        """Return the state of a session, merged with that of its user and of its app."""
        app, user = self._state("app", names[:1]), self._state("user", names[:2])
        return {
            **self._state("state", names),
            **{State.APP_PREFIX + key: value for key, value in app.items()},
            **{State.USER_PREFIX + key: value for key, value in user.items()},
        }

    # Writing.

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session and return it; raises ``AlreadyExistsError`` if its id is taken."""
        names = (app_name, user_id, (session_id or "").strip() or adk_uuid.new_uuid())
        row = _row(adk_time.get_time(), 0, None)

        async def change() -> None:
            if self._table.item(_key("session", names)) is not None:
                raise AlreadyExistsError(f"Session with id {names[2]} already exists.")
            self._table.put(_key("session", names), row)
            self._put_state(names, EventActions(state_delta=state or {}))

        await _transact(self.memory, change)
        session = await asyncio.to_thread(self._session, names, None)
        # If it was deleted at once, return it as it was created.
        return session or Session(id=names[2], app_name=app_name, user_id=user_id, last_update_time=row["updated"])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with its events and its own state; the log keeps them until ``erase_session``."""
        names = (app_name, user_id, session_id.strip())

        async def change() -> None:
            if self._table.delete(_key("session", names)):
                self._table.delete_prefix(_key("event", names))
                self._table.delete_prefix(_key("state", names))
                self._chat(names).clear_window()

        await _transact(self.memory, change)

    async def erase_session(
        self, *, app_name: str, user_id: str, session_id: str, forks: str = "refuse"
    ) -> list[Receipt]:
        """Erase the bytes of a session, deleted or not: its events, its own state, its conversation with its name.

        Memories made from its events are erased too; the states of its user and its app stay. ``forks`` is that of
        ``chat.erase``.
        """
        names = (app_name, user_id, session_id.strip())
        keys = [_key(kind, names) for kind in ("session", "event", "state")]
        chats = [_path(self.name, names)]
        return await asyncio.to_thread(erase, self.memory, _ACTOR, chats=chats, forks=forks, table=self.name, keys=keys)

    async def erase_user(self, *, app_name: str, user_id: str, forks: str = "refuse") -> list[Receipt]:
        """Erase the bytes of all sessions of a user, deleted or not, as ``erase_session`` does, and the user's state.

        The memory service has an ``erase_user`` of its own.
        """
        names = (app_name, user_id)
        keys = [_key(kind, names) for kind in ("session", "event", "state", "user")]
        prefix = _path(self.name, names) + "/"
        chats = self.memory.conversations(prefix=prefix) + self.memory.conversations(prefix=prefix, dropped=True)
        return await asyncio.to_thread(erase, self.memory, _ACTOR, chats=chats, forks=forks, table=self.name, keys=keys)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to a session, here and in the memory; ``StaleSessionError`` if another writer was first."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        names = (session.app_name, session.user_id, session.id)

        async def change() -> dict[str, Any]:
            item = self._table.item(_key("session", names))
            if item is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if not _is_newest(session, item.value):
                raise StaleSessionError(_STALE)
            row = _row(event.timestamp, item.value["count"] + 1, event.id)
            messages = self._put_event((*names, _number(row["count"])), event)
            self._put_state(names, event.actions, messages)
            self._table.put(_key("session", names), row)
            return row

        # Tasks that share a session take turns, so that each sees its predecessor's revision.
        lock = self._locks.setdefault((asyncio.get_running_loop(), names), asyncio.Lock())
        async with lock:
            row = await _transact(self.memory, change)
            session.last_update_time = row["updated"]
            session._storage_update_marker = row["revision"]  # noqa: SLF001 - where ADK keeps it
        return self._commit_event_to_session(session, event)

    def _put_event(self, place: Names, event: Event) -> list[Message]:
        """Put an event, and show it; return its messages, which it cites, so that erasing one of them erases it."""
        dumped: dict[str, Any] = event.model_dump(mode="json", exclude_defaults=True)
        chat = self._chat(place[:3])
        if event.actions.rewind_before_invocation_id:
            self._rewind(chat, place[:3], event.actions.rewind_before_invocation_id)
        known = call_ids(chat.window()) if _has_calls(dumped) else set[str]()
        options: dict[str, Any] = {"metadata": {_EVENT_ID: event.id}, "occurred": _nanoseconds(event.timestamp)}
        messages = [chat.append(**fields, **options) for fields in _messages(dumped, known)]
        self._table.put(_key("event", (*place, _EVENT)), dumped, sources=messages)
        self._table.put(_key("event", (*place, _FRAME)), _frame(dumped))
        return messages

    def _rewind(self, chat: Conversation, names: Names, invocation_id: str) -> None:
        """Take the window back to before the first event of an invocation, from where ADK goes on."""
        before: TableItem | None = None
        for item in self._table.scan(_key("event", names)):
            if item.value.get("invocation_id") == invocation_id:
                break
            before = item
        else:
            return
        if before is None:
            chat.clear_window()
        else:
            chat.restore(chat.at(before.seq).snapshot(), views=("window",), keep_budget=True)

    def _put_state(self, names: Names, actions: EventActions, messages: Sequence[Message] = ()) -> None:
        """Put the changes of state; the session's own ones cite the messages of the event that made them."""
        scopes = {State.APP_PREFIX: ("app", names[:1]), State.USER_PREFIX: ("user", names[:2])}
        delta: dict[str, Any] = actions.model_dump(mode="json")["state_delta"]
        for key, value in delta.items():
            prefix = next((prefix for prefix in (*scopes, State.TEMP_PREFIX) if key.startswith(prefix)), "")
            if prefix != State.TEMP_PREFIX:
                scope, own = scopes.get(prefix, ("state", names))
                sources = messages if scope == "state" else ()
                self._table.put(_key(scope, (*own, key.removeprefix(prefix))), value, sources=sources)

    def _chat(self, names: Names) -> Conversation:
        conversation_id = _path(self.name, names)
        return self.memory.conversation(conversation_id, **opening(self.memory, conversation_id))


class RefoldMemoryService(BaseMemoryService):
    """ADK's ``BaseMemoryService`` in a memory: pass it to ``Runner(memory_service=...)``.

    The texts of events are memories of the project ``NAME/APP/USER`` and found by its search: the ``top_k`` best by the
    ``ranking``; ``"lexical"`` finds only those that share a word with the query. An event is added once, and not again
    if its memory was deleted. The table ``name`` holds the contents of the events. Erasing a message of a session in
    the memory erases the memory made from it, if both services have the same ``name``.

    >>> import asyncio
    >>> service = RefoldMemoryService(Memory())
    >>> event = Event(author="user", message="The port is 5432.")
    >>> asyncio.run(service.add_events_to_memory(app_name="trips", user_id="ann", events=[event]))
    >>> found = asyncio.run(service.search_memory(app_name="trips", user_id="ann", query="Which port?"))
    >>> found.memories[0].content.parts[0].text
    'The port is 5432.'
    """

    def __init__(
        self, memory: Memory, *, name: str = "google-adk", top_k: int = 10, ranking: "str | Ranking" = "hybrid"
    ) -> None:
        self.memory, self.name, self.top_k, self.ranking = memory, name, top_k, ranking
        self._table: Table = memory.table(name)

    async def add_session_to_memory(self, session: Session) -> None:
        """Add the events of a session that were not added before."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,  # noqa: ARG002 - ADK lets a service ignore it
    ) -> None:
        """Add the events that were not added before, in one commit."""
        names = (app_name, user_id)
        project = self.memory.aio.project(_path(self.name, names))
        keys = {event.id: _key("remembered", (*names, event.id)) for event in events}
        known = dict(zip(keys, self._table.seqs(keys.values()), strict=True))
        new = [event for event in events if not known[event.id]]
        messages = await asyncio.to_thread(self._messages, (*names, session_id), new) if session_id and new else {}

        async def change() -> None:
            for event in new:
                dumped: dict[str, Any] = event.model_dump(mode="json", exclude_defaults=True)
                content = _text(dumped)
                if content.strip() in ("", _ERASED) or self._table.item(keys[event.id]) is not None:
                    continue
                moment, metadata = _nanoseconds(event.timestamp), {"author": event.author, "session": session_id}
                sources = messages.get(event.id, [])
                entry = await project.add(content, metadata=metadata, occurred=moment, sources=sources)
                held = {"content": dumped["content"], "author": event.author, "timestamp": event.timestamp}
                self._table.put(keys[event.id], entry.id)
                self._table.put(_key("memory", (*names, entry.id, event.id)), held, sources=[entry, *sources])

        await _transact(self.memory, change)

    def _messages(self, names: Names, events: Sequence[Event]) -> dict[str, list[Message]]:
        """Return the messages that show events of a session, by the ids of the events."""
        chat, missing = self.memory.conversation(_path(self.name, names)), {event.id for event in events}
        for held in (chat.window(), chat.history()):
            found: dict[str, list[Message]] = {}
            for message in held:
                found.setdefault((message.metadata or {}).get(_EVENT_ID, ""), []).append(message)
            if missing <= found.keys():
                break
        return found

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return the events whose texts answer a query best."""
        if not query.strip():
            return SearchMemoryResponse(memories=[])
        names, table = (app_name, user_id), self.memory.aio.table(self.name)
        hits = await self.memory.aio.project(_path(self.name, names)).search(
            query, top_k=self.top_k, ranking=self.ranking
        )
        best = [hit.entry.id for hit in hits if hit.score > hits.floor]
        items = [item for entry_id in best for item in await table.scan(_key("memory", (*names, entry_id)))]
        return SearchMemoryResponse(memories=[_memory_entry(item) for item in items[: self.top_k]])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete the memory of an event, given the event's id; it is not added again."""
        names = (app_name, user_id)
        known = _key("remembered", (*names, memory_id or ""))
        project = self.memory.aio.project(_path(self.name, names))

        async def change() -> None:
            entry_id = self._table.get(known)
            if entry_id is not None:
                self._table.put(known, None)
                self._table.delete(_key("memory", (*names, entry_id, memory_id or "")))
                # Events with the same text share one memory.
                if not self._table.keys(_key("memory", (*names, entry_id)), limit=1):
                    await project.delete(entry_id)

        await _transact(self.memory, change)

    async def erase_user(self, *, app_name: str, user_id: str) -> list[Receipt]:
        """Erase the bytes of all memories of a user, deleted or not, and the name of their project."""
        names = (app_name, user_id)
        keys = [_key(kind, names) for kind in ("remembered", "memory")]
        projects = [_path(self.name, names)]
        return await asyncio.to_thread(erase, self.memory, _ACTOR, table=self.name, keys=keys, projects=projects)


async def _transact(memory: Memory, change: Callable[[], Awaitable[T]]) -> T:
    """Apply a change in one commit, retrying it if a concurrent write changed what it read; return its result."""
    with memory.acting(_ACTOR):
        return await memory.aio.transact(change)


def _key(kind: str, names: Iterable[str]) -> Names:
    return (kind, *map(part, names))


def _path(name: str, names: Names) -> str:
    return "/".join((name, *(each.replace("%", "%25").replace("/", "%2F") for each in names)))


def _number(number: int) -> str:
    return f"{number:012}"


def _nanoseconds(timestamp: float) -> int:
    return max(0, int(timestamp * _NANOSECONDS))


# Sessions and events.


def _row(updated: float, count: int, last_id: str | None) -> dict[str, Any]:
    """Return the stored row of a session: its update time, event count, last event's id, and a new revision."""
    return {"updated": updated, "count": count, "last": last_id, "revision": adk_uuid.new_uuid()}


def _session(names: Names, row: TableItem, state: dict[str, Any], events: list[Event]) -> Session:
    app_name, user_id, session_id = names
    session = Session(
        id=session_id,
        app_name=app_name,
        user_id=user_id,
        state=state,
        events=events,
        last_update_time=row.value["updated"],
    )
    session._storage_update_marker = row.value["revision"]  # noqa: SLF001 - where ADK keeps it
    return session


def _age(session: Session) -> tuple[float, str, str]:
    return session.last_update_time, session.user_id, session.id


def _is_newest(session: Any, row: dict[str, Any]) -> bool:
    """Return whether nothing was appended since a session was read; one made by hand is compared by its events."""
    revision = session._storage_update_marker  # noqa: SLF001 - where ADK keeps it
    if revision is not None:
        return bool(revision == row["revision"])
    if row["updated"] <= session.last_update_time:
        return True
    return bool((session.events[-1].id if session.events else None) == row["last"])


def _parse_events(items: Iterable[TableItem]) -> Iterator[Event]:
    for _, parts in groupby(items, key=lambda item: item.key[-2]):
        held = {item.key[-1]: item.value for item in parts}
        yield Event.model_validate(held.get(_EVENT) or held[_FRAME])


def _parts(event: dict[str, Any]) -> list[dict[str, Any]]:
    return (event.get("content") or {}).get("parts") or []


def _text(event: dict[str, Any]) -> str:
    return "\n".join(each["text"] for each in _parts(event) if each.get("text"))


def _has_calls(event: dict[str, Any]) -> bool:
    return any(each.get("function_call") or each.get("function_response") for each in _parts(event))


def _frame(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without its texts, so that a model still accepts the calls and answers around it."""
    frame: dict[str, Any] = {
        key: event[key] for key in ("id", "timestamp", "author", "invocation_id", "branch") if key in event
    }
    if "content" in event:
        calls = [
            {kind: {key: each[kind][key] for key in ("id", "name") if key in each[kind]}}
            for each in _parts(event)
            for kind in ("function_call", "function_response")
            if each.get(kind)
        ]
        texts = [{"text": _ERASED}] if _text(event) or not calls else []
        frame["content"] = {"role": event["content"].get("role"), "parts": texts + calls}
    return frame


def _messages(event: dict[str, Any], known: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the messages that show an event: its texts and calls together, each answer separately.

    ``known`` contains the ids of the calls in the window: a call is shown as one only if its id is new, and an answer
    only if its id is known.
    """
    is_user, parts = event.get("author") == "user", _parts(event)
    calls = [_call(each["function_call"]) for each in parts if each.get("function_call")]
    is_new = not is_user and known.isdisjoint(call["id"] for call in calls)
    content, others = _text(event), [kind for each in parts for kind in each if kind in ("inline_data", "file_data")]
    lines = [*([content] if content else []), *(f"({kind})" for kind in others)]
    if lines or calls:
        fields: dict[str, Any] = {"role": "user" if is_user else "assistant", "content": "\n".join(lines) or None}
        if calls and is_new:
            fields["tool_calls"] = calls
        yield fields
    now_known = known | {call["id"] for call in calls} if is_new else known
    for each in parts:
        answer = each.get("function_response")
        if answer:
            shown = {"role": "tool", "content": json.dumps(answer.get("response"), ensure_ascii=False)}
            yield shown | ({"tool_call_id": answer["id"]} if answer.get("id") in now_known else {})


def _call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return {
        "id": call.get("id") or "",
        "type": "function",
        "function": {"name": call.get("name") or "", "arguments": arguments},
    }


# Memories.


def _memory_entry(item: TableItem) -> MemoryEntry:
    held = item.value
    moment = datetime.fromtimestamp(held["timestamp"], UTC).isoformat()
    return MemoryEntry(id=text(item.key[-1]), content=held["content"], author=held["author"], timestamp=moment)
