"""Everything that can be asked of a store, by name; each answer is plain, so that two stores can be compared."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from refold import Memory, RefoldError

SHARES = (None, 3, 6)
"""As of the head, and of so many eighths of it."""


class Refused(NamedTuple):
    """An answer that is an error of refold's."""

    error: str


Questions = Iterator[tuple[str, Callable[[], Any]]]


def answers(memory: Memory, head: int, directory: Path) -> dict[str, Any]:
    """Ask everything; refold's errors are answers too, other errors are not caught."""
    given: dict[str, Any] = {}
    for name, ask in questions(memory, head, directory):
        try:
            given[name] = repr(ask())
        except RefoldError as error:
            given[name] = Refused(type(error).__name__)
    return given


def questions(memory: Memory, head: int, directory: Path) -> Questions:
    """Return what to ask of a store whose head was known before anything happened to it."""
    yield "head", lambda: memory.head
    yield "conversations", memory.conversations
    yield "projects", memory.projects
    yield "snapshots", memory.snapshots
    yield "forks", memory.forks
    yield "stats", lambda: msgspec.structs.astuple(memory.stats())[:6]
    yield "state hash", memory.state_hash
    for share in SHARES:
        at = None if share is None else head * share // 8
        yield from _of_memory(memory if at is None else memory.at(at), f"at {at}: ")
        yield f"hash at {at}", partial(memory.state_hash, at)
    for name in ("other", "deeper branch"):
        yield from _of_branch(memory, name)
    yield "replay hash", memory.replay_hash
    yield "events", lambda: [(repr(event), repr(stamp)) for event, stamp in memory.events()]
    yield "steps", lambda: [repr(step.changes) for step in memory.conversation("tools").replay()]
    yield "snapshot bytes", lambda: memory.conversation("tools").snapshot().to_bytes()[41 + 20 :]
    yield "diff", lambda: [repr(change) for change in memory.diff(head // 2, head)]
    yield "export", lambda: _exported(memory, directory / "export.jsonl")


def _of_branch(memory: Memory, name: str) -> Questions:
    def ask() -> list[Any]:
        with memory.fork(name) as branch:
            return [branch.state_hash(), *(question() for _, question in _of_memory(branch, ""))]

    yield f"branch {name}", ask


def _of_memory(memory: Memory, when: str) -> Questions:
    for chat_id in ("long", "tools", "fork", "deeper", "imported", "ended"):
        yield f"{when}chat {chat_id}", partial(_of_chat, memory, chat_id)
    yield f"{when}project", partial(_of_project, memory)
    yield f"{when}profile", lambda: memory.profile().items()
    yield f"{when}journal", lambda: [msgspec.structs.astuple(note) for note in memory.journal().recent(days=9_999)]


def _of_project(memory: Memory) -> Mapping[str, Any]:
    project = memory.project("project")
    found = project.search("fact", vector=[1.0] + [0.1] * 15, top_k=5, now=2 * 10**18)
    return {
        "entries": [repr(entry) for entry in project.list()],
        "found": [(hit.entry.id, hit.score, hit.parts) for hit in found],
        "stats": repr(project.stats()),
    }


def _of_chat(memory: Memory, chat_id: str) -> Mapping[str, Any]:
    chat = memory.conversation(chat_id)
    return {
        "window": [repr((message.event, message.stamp)) for message in chat.window()],
        "shown": [repr((message.content, message.tool_calls, message.metadata)) for message in chat.window()],
        "tokens": chat.token_count(),
        "scratchpad": chat.scratchpad.to_json(),
        "state": dict(chat.state),
        "events": [(repr(event), repr(stamp)) for event, stamp in chat.events()],
        "version": chat.version,
    }


def _exported(memory: Memory, path: Path) -> list[bytes]:
    """Return the lines of an export but for the id of the store, which no check covers, and the digest with it."""
    memory.export(path, overwrite=True)
    *lines, _ = path.read_bytes().splitlines()
    head = msgspec.json.decode(lines[0])
    del head["store"]
    return [msgspec.json.encode(head), *lines[1:]]
