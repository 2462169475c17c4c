"""The data of a memory for pages and REST, as plain values: sessions at a seq, tracks of events, searches, notices."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from refold import Conversation, Memory, Message, Recorded
from refold.engine.streams import session_board
from refold.errors import NotFound
from refold.event import Stamp, unpack_json
from refold.importers.values import entry_json, event_json, event_name, message_json
from refold.memory.core import core_of
from refold.message import text_of
from refold.results import Hits
from refold.views.board import BOARD
from refold.views.scratchpad import SCRATCH
from refold.views.session import CONTEXTS, ContextShown, MemoriesExtracted
from refold.views.skills import SkillLearned

# Kinds of events by their class, which is also the class and the shape of their marks on a track.
_CLASSES: Final = {
    "message": ("message_appended", "message_removed", "message_pinned", "window_cleared", "window_resized"),
    "work": ("tool_executed", "task_described", "file_read", "finding_noted"),
    "note": ("scratchpad_set", "scratchpad_deleted", "note_added", "scratchpad_cleared"),
    "state": ("state_set", "state_deleted", "round_ended"),
    "context": ("context_shown",),
    "recall": ("memories_recalled", "memories_extracted", "skills_selected"),
    "branch": ("forked", "restored", "state_imported", "conversation_opened", "conversation_ended", "erased"),
}
CLASS_OF: Final = {kind: name for name, kinds in _CLASSES.items() for kind in kinds}
TRACK_CLASSES: Final = (*_CLASSES, "other")


def find_session(memory: Memory, session: str) -> Conversation:
    """Look up a conversation; raises `NotFound` if this memory has none with that id."""
    chat = memory.conversation(session)
    if not chat.version:
        raise NotFound(f"there is no session {session!r} as of seq {memory.head}")
    return chat


def check_session(memory: Memory, session: str) -> None:
    """Raise `NotFound` if this memory has neither a conversation nor a board of that id."""
    if not memory.board(session=session).version:
        find_session(memory, session)


def session_row(memory: Memory, session: str) -> dict[str, Any]:
    """Return the row of a session in a list."""
    chat = memory.conversation(session)
    window = chat.window(last=1)
    return {
        "id": session,
        "project": chat.project,
        "events": chat.version,
        "tokens": chat.token_count(),
        "window_tokens": chat.window_tokens,
        "last": None if not window else message_json(window[-1]),
        "task": chat.session.task(),
    }


def sessions_page(memory: Memory, after: str | None, count: int) -> dict[str, Any]:
    """Return a page of sessions by id, and the id after which the next page begins."""
    ids = memory.conversations(after=after, limit=count)
    rows = [session_row(memory, session) for session in ids]
    return {"sessions": rows, "next": ids[-1] if len(ids) == count else None}


def projects_page(memory: Memory, after: str | None, count: int) -> dict[str, Any]:
    """Return a page of projects by name with their numbers of memories, and the name after which the next begins."""
    names = memory.projects(after=after, limit=count)
    rows = [{"id": name, "memories": memory.project(name).count()} for name in names]
    return {"projects": rows, "next": names[-1] if len(names) == count else None}


def session_json(memory: Memory, session: str) -> dict[str, Any]:
    """Return everything about a session except its window's messages."""
    chat = find_session(memory, session)
    return session_row(memory, session) | {
        "at": memory.head,
        "scratchpad": chat.scratchpad.to_dict(),
        "state": dict(chat.state.items()),
        "board": board_json(memory, session),
        "context": last_context(chat),
    }


def board_json(memory: Memory, session: str) -> dict[str, Any] | None:
    """Return the board of a session, or `None` if it has none or an empty one."""
    core, at = core_of(memory)
    stream = session_board(session)
    if not core.version(stream) or core.read(stream, lambda state: state.part(BOARD).is_empty, at):
        return None
    return memory.board(session=session).to_dict()


def notes_of(chat: Conversation) -> list[tuple[int, str]]:
    """Return the notes of a session with the seqs of the events that added them."""
    core, at = core_of(chat)
    return core.read(chat.place[0], lambda state: list(state.part(SCRATCH).notes), at)


def last_context(chat: Conversation) -> int:
    """Return the seq of the context that was shown last, or 0 if there is none."""
    core, at = core_of(chat)
    return core.read(chat.place[0], lambda state: state.part(CONTEXTS).last_seq or 0, at)


def window_json(memory: Memory, session: str) -> dict[str, Any]:
    """Return the window of a session."""
    chat = find_session(memory, session)
    counts = {"session": session, "at": memory.head, "tokens": chat.token_count(), "window_tokens": chat.window_tokens}
    return counts | {"messages": [message_json(message) for message in chat.window()]}


NO_STEP: Final[dict[str, Any]] = {"seq": 0, "event": None, "entered": [], "left": [], "changes": []}


def step_at(memory: Memory, session: str, seq: int) -> dict[str, Any]:
    """Return the event of a session at a seq, or the last one before it, with its changes."""
    chat = find_session(memory.at(seq), session)
    stamp = _last_stamp(chat, seq)
    if stamp is None:
        return NO_STEP
    step = next(memory.conversation(session).replay(after=stamp.seq - 1, until=stamp.seq))
    before = {message.seq for message in step.before.window()}
    after = step.after.window()
    live = {message.seq for message in after}
    left = [message for message in step.before.window() if message.seq not in live]
    changes = [
        {"view": change.view, "path": list(change.path), "before": change.before, "after": change.after}
        for change in step.changes
        if change.view != "window"
    ]
    return {
        "seq": stamp.seq,
        "event": event_json(memory, Recorded(step.event, step.stamp)),
        "entered": [message.seq for message in after if message.seq not in before],
        "left": left,
        "changes": changes,
    }


_BACK: Final = (64, 1_024, 16_384)


def last_seq(chat: Conversation) -> int:
    """Return the seq of the last event of a session."""
    core, _ = core_of(chat)
    stamp = _last_stamp(chat, core.engine.reader.current_head())
    return 0 if stamp is None else stamp.seq


def _last_stamp(chat: Conversation, seq: int) -> Stamp | None:
    """Return the stamp of the last event of a session up to a seq; searches longer and longer tails of the log."""
    for back in (*_BACK, seq):
        stamps = [recorded.stamp for recorded in chat.events(max(seq - back, 0))]
        if stamps:
            return stamps[-1]
    return None


def track(memory: Memory, session: str, after: int, count: int) -> dict[str, Any]:
    """Return a page of a session's events as columns: their seqs, and the indexes of their classes."""
    chat = find_session(memory, session)
    seqs: list[int] = []
    classes: list[int] = []
    for recorded in islice(chat.events(after), count):
        seqs.append(recorded.stamp.seq)
        classes.append(TRACK_CLASSES.index(CLASS_OF.get(event_name(recorded), "other")))
    following = seqs[-1] if seqs and len(seqs) == count else None
    return {"classes": TRACK_CLASSES, "seqs": seqs, "kinds": classes, "next": following, "version": chat.version}


def events_page(memory: Memory, events: Iterator[Recorded], count: int) -> tuple[list[dict[str, Any]], int | None]:
    """Return a page of events as plain values, and the seq after which the next page begins."""
    rows = [event_json(memory, recorded) for recorded in islice(events, count)]
    return rows, rows[-1]["seq"] if len(rows) == count else None


def context_json(memory: Memory, seq: int) -> dict[str, Any]:
    """Rebuild the context that was shown at a seq, and report whether it is the same, byte for byte.

    ``matches`` is null if its hashes were erased.
    """
    rebuilt = memory.rebuild(seq)
    context = rebuilt.context
    parts = [
        {
            **{name: getattr(part, name) for name in ("name", "tier", "text", "tokens", "left_out", "digest")},
            "differs": part.name in rebuilt.differing,
        }
        for part in context.parts
    ]
    return {
        "seq": seq,
        "built_at": context.seq,
        "session": context.conversation,
        "matches": rebuilt.matches,
        "differing": list(rebuilt.differing),
        "tokens": context.tokens,
        "parts": parts,
        "messages": [message_json(message) for message in context.window],
        "left_out": context.left_out,
    }


def context_skills(event: ContextShown) -> list[tuple[str, str, float]]:
    """Return the skills offered in a context that was shown, each with its name, text and score."""
    return [(str(name), str(body), float(score)) for name, body, score in unpack_json(event.skills)]


def diff_json(memory: Memory, session: str, a: int, b: int) -> list[dict[str, Any]]:
    """Compare a session at two seqs."""
    chat = memory.conversation(session)
    changes = memory.diff(chat.at(a), chat.at(b))
    return [{name: getattr(change, name) for name in ("view", "path", "before", "after")} for change in changes]


def hits_json(hits: Hits) -> dict[str, Any]:
    """Return the hits of a search with the signals of their scores."""
    return {
        "query": hits.query,
        "ranking": hits.ranking,
        "exact": hits.exact,
        "floor": hits.floor,
        "hits": [{"score": hit.score, "parts": hit.parts, "entry": _hit_entry(hit.entry)} for hit in hits],
    }


def _hit_entry(entry: Any) -> dict[str, Any]:
    if isinstance(entry, Message):
        session = entry.stamp.stream.partition("/")[2]
        return {"kind": "message", "session": session, **message_json(entry), "text": text_of(entry)}
    return {"kind": "memory", **entry_json(entry)}


def notice_line(recorded: Recorded) -> bytes:
    """Format an event as a server-sent event."""
    stamp, notice = recorded.stamp, notice_of(recorded)
    line: dict[str, Any] = {"seq": stamp.seq, "stream": stamp.stream, "kind": event_name(recorded)}
    if notice is not None:
        line |= {"notice": notice[0], **notice[1]}
    return f"id: {stamp.seq}\nevent: event\ndata: {msgspec.json.encode(line).decode()}\n\n".encode()


def notice_of(recorded: Recorded) -> tuple[str, dict[str, Any]] | None:
    """Return the notice for an event, or `None`: its name, and the values that fill its text."""
    event = recorded.event
    if isinstance(event, MemoriesExtracted) and event.ids:
        return "learned", {"count": len(event.ids)}
    if isinstance(event, SkillLearned):
        return "generated", {"name": event.name}
    return None
