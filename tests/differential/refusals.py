"""What a memory refuses: each row is the error and the call that raises it, whatever the state is."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from refold import (
    Conversation,
    InvalidInput,
    LimitExceeded,
    Memory,
    NotFound,
    RefoldError,
    Snapshot,
)
from refold.limits import JSON_DEPTH_MAX, KEY_BYTES_MAX, MESSAGE_TOKENS_MAX, NAME_BYTES_MAX, WINDOW_TOKENS_MAX

Refusal = tuple[type[RefoldError], Callable[[Memory, Conversation], Any]]

WRONG = cast("Any", object())
SURROGATE = "\ud800"
NAIVE = datetime(2026, 11, 21)  # noqa: DTZ001 - a time zone is what it must lack


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


MESSAGES: tuple[Refusal, ...] = (
    (InvalidInput, lambda _, chat: chat.append("robot", "x")),
    (InvalidInput, lambda _, chat: chat.append("user", cast("Any", 5))),
    (InvalidInput, lambda _, chat: chat.append("user", SURROGATE)),
    (InvalidInput, lambda _, chat: chat.append("user", [cast("Any", "x")])),
    (InvalidInput, lambda _, chat: chat.append("user", "x", tokens=-1)),
    (InvalidInput, lambda _, chat: chat.append("user", "x", tokens=True)),
    (LimitExceeded, lambda _, chat: chat.append("user", "x", tokens=MESSAGE_TOKENS_MAX + 1)),
    (InvalidInput, lambda _, chat: chat.append("user", "x", name=WRONG)),
    (InvalidInput, lambda _, chat: chat.append("user", "x", tool_calls=[{"id": "c1"}])),
    (InvalidInput, lambda _, chat: chat.append("user", "x", tool_call_id="c1")),
    (InvalidInput, lambda _, chat: chat.append("user", "x", metadata=cast("Any", []))),
    (InvalidInput, lambda _, chat: chat.append("user", "x", metadata={"x": float("nan")})),
    (LimitExceeded, lambda _, chat: chat.append("user", "x", metadata={"x": _nested(JSON_DEPTH_MAX + 1)})),
    (InvalidInput, lambda _, chat: chat.append("user", "x", pinned=cast("Any", 1))),
    (InvalidInput, lambda _, chat: chat.append("user", "x", occurred=NAIVE)),
    (InvalidInput, lambda _, chat: chat.append("user", "x", expected=-1)),
    (InvalidInput, lambda _, chat: chat.append("user", "x", expected="now")),
    (InvalidInput, lambda _, chat: chat.append("user", "x", request_id="")),
    (InvalidInput, lambda memory, chat: chat.append("user", "x", sources=[memory.head + 1])),
    (InvalidInput, lambda _, chat: chat.append("user", "x", sources=[0])),
    (InvalidInput, lambda _, chat: chat.append("user", "x", sources=cast("Any", "12"))),
    (InvalidInput, lambda _, chat: chat.set_window_tokens(0)),
    (InvalidInput, lambda _, chat: chat.set_window_tokens(cast("Any", 1.5))),
    (LimitExceeded, lambda _, chat: chat.set_window_tokens(WINDOW_TOKENS_MAX + 1)),
    (InvalidInput, lambda _, chat: chat.set_embed(cast("Any", 1))),
)

KEYS: tuple[Refusal, ...] = (
    (InvalidInput, lambda _, chat: chat.scratchpad.set("", "x")),
    (InvalidInput, lambda _, chat: chat.scratchpad.set("k", cast("Any", 5))),
    (InvalidInput, lambda _, chat: chat.scratchpad.set("k", SURROGATE)),
    (LimitExceeded, lambda _, chat: chat.scratchpad.set("k" * (KEY_BYTES_MAX + 1), "x")),
    (InvalidInput, lambda _, chat: chat.scratchpad.get("")),
    (InvalidInput, lambda _, chat: chat.scratchpad.delete(WRONG)),
    (InvalidInput, lambda _, chat: chat.scratchpad.note(WRONG)),
    (InvalidInput, lambda _, chat: chat.state.set("k", WRONG)),
    (InvalidInput, lambda _, chat: chat.state.set("session:", 1)),
    (InvalidInput, lambda _, chat: chat.state.set("session:temp:k", 1)),
    (InvalidInput, lambda _, chat: chat.state.set("k", {1: 2})),
    (InvalidInput, lambda memory, _: memory.conversation("no project").state.set("project:k", 1)),
    (InvalidInput, lambda memory, _: memory.profile().set("", "x")),
    (InvalidInput, lambda memory, _: memory.profile().set("k", WRONG)),
    (InvalidInput, lambda memory, _: memory.journal().append(WRONG)),
    (InvalidInput, lambda memory, _: memory.journal().append("x", day="yesterday")),
    (InvalidInput, lambda memory, _: memory.journal().append("x", day=NAIVE)),
    (InvalidInput, lambda memory, _: memory.journal().recent(-1)),
)

TRAVELS: tuple[Refusal, ...] = (
    (InvalidInput, lambda _, chat: chat.window(last=-1)),
    (InvalidInput, lambda _, chat: chat.messages(cast("Any", "xml"))),
    (InvalidInput, lambda _, chat: chat.at(-1)),
    (InvalidInput, lambda memory, chat: chat.at(memory.head + 1)),
    (InvalidInput, lambda _, chat: chat.at(NAIVE)),
    (InvalidInput, lambda memory, _: memory.at(memory.head + 1)),
    (InvalidInput, lambda memory, _: memory.state_hash(at=memory.head + 1)),
    (InvalidInput, lambda memory, _: memory.diff(0, memory.head + 1)),
    (InvalidInput, lambda _, chat: chat.events(after=-1)),
    (InvalidInput, lambda _, chat: chat.replay(after=-1)),
    (InvalidInput, lambda _, chat: chat.restore(WRONG)),
    (InvalidInput, lambda _, chat: chat.restore(Snapshot("conversation/a", 1))),
    (NotFound, lambda _, chat: chat.restore("never named")),
    (InvalidInput, lambda _, chat: chat.snapshot("")),
    (InvalidInput, lambda _, chat: chat.fork("")),
    (LimitExceeded, lambda _, chat: chat.fork("x" * (NAME_BYTES_MAX + 1))),
    (InvalidInput, lambda memory, chat: chat.fork("new", at=memory.head + 1)),
    (InvalidInput, lambda _, chat: chat.close(drop=cast("Any", 1))),
    (InvalidInput, lambda _, __: Snapshot.from_bytes(b"no snapshot")),
    (InvalidInput, lambda memory, _: memory.conversation("")),
    (InvalidInput, lambda memory, _: memory.conversation(SURROGATE)),
    (LimitExceeded, lambda memory, _: memory.conversation("x" * (NAME_BYTES_MAX + 1))),
    (InvalidInput, lambda memory, _: memory.profile("")),
    (InvalidInput, lambda memory, _: memory.journal(WRONG)),
    (InvalidInput, lambda memory, _: memory.conversations(limit=-1)),
    (InvalidInput, lambda memory, _: memory.export("")),
    (InvalidInput, lambda memory, _: memory.forks(limit=-1)),
    (InvalidInput, lambda memory, _: memory.fork("")),
    (InvalidInput, lambda memory, _: memory.fork("new", at=memory.head + 1)),
    (LimitExceeded, lambda memory, _: memory.fork("x" * (NAME_BYTES_MAX + 1))),
    (InvalidInput, lambda memory, _: memory.snapshot("")),
    (InvalidInput, lambda memory, chat: memory.restore(cast("Any", chat))),
)

REFUSALS = (*MESSAGES, *KEYS, *TRAVELS)

CHAT_MUTATIONS: tuple[Callable[[Conversation], Any], ...] = (
    lambda chat: chat.append("user", "x"),
    lambda chat: chat.set_window_tokens(5),
    lambda chat: chat.set_embed(embed=True),
    lambda chat: chat.clear_window(),
    lambda chat: chat.pop(),
    lambda chat: chat.replace("none", "x"),
    lambda chat: chat.scratchpad.set("k", "x"),
    lambda chat: chat.scratchpad.delete("k"),
    lambda chat: chat.scratchpad.note("x"),
    lambda chat: chat.scratchpad.clear(),
    lambda chat: chat.state.set("k", 1),
    lambda chat: chat.state.delete("k"),
    lambda chat: chat.end_round(),
    lambda chat: chat.end(),
    lambda chat: chat.snapshot("frozen"),
    lambda chat: chat.restore(chat.snapshot()),
    lambda chat: chat.fork("frozen"),
    lambda chat: chat.close(drop=True),
    lambda chat: chat.drop(),
)

MEMORY_MUTATIONS: tuple[Callable[[Memory], Any], ...] = (
    lambda memory: memory.profile().set("k", "x"),
    lambda memory: memory.profile().delete("k"),
    lambda memory: memory.journal().append("x"),
    lambda memory: memory.files().create("/memories/x", "x"),
    lambda memory: memory.batch().__enter__(),
    lambda memory: memory.snapshot("k"),
    lambda memory: memory.restore(memory.snapshot()),
    lambda memory: memory.fork("never forked"),
)
