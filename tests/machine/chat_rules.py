"""The rules of the state machine for the verbs that change one conversation."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from refold import Message, NotFound
from refold.memory.aio import AsyncConversation
from tests.machine.driver import (
    CONFIGURED,
    Drawn,
    Driver,
    drawn_options,
    keys,
    line_of,
    messages,
    moments,
    names,
    texts,
    values,
)

state_keys = st.one_of(keys, st.just("session:k"))
projects = st.sampled_from([name for name, (project, _) in CONFIGURED.items() if project is not None])

places = st.integers(0, 30)
"""Which message of a window: counted from its front, and round again."""

looped = st.sampled_from([False, False, False, True])

GIVEN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "append": {"name": names, "fields": messages(), "occurred": moments, "drawn": drawn_options, "looped": looped},
    "talk": {"name": names, "lines": st.lists(messages(), min_size=4, max_size=12)},
    "set_window_tokens": {"name": names, "window_tokens": st.sampled_from([1, 30, 60, 150]), "drawn": drawn_options},
    "clear_window": {"name": names, "drawn": drawn_options},
    "remove": {"name": names, "place": places, "drawn": drawn_options},
    "pin": {"name": names, "place": places, "pinned": st.booleans(), "drawn": drawn_options},
    "set": {"name": names, "key": keys, "value": texts, "drawn": drawn_options},
    "delete": {"name": names, "key": keys, "drawn": drawn_options},
    "note": {"name": names, "text": texts, "drawn": drawn_options},
    "clear": {"name": names, "drawn": drawn_options},
    "set_state": {"name": names, "key": state_keys, "value": values, "drawn": drawn_options},
    "set_project_state": {"name": projects, "key": keys, "value": values, "drawn": drawn_options},
    "delete_state": {"name": names, "key": state_keys, "drawn": drawn_options},
    "delete_project_state": {"name": projects, "key": keys, "drawn": drawn_options},
    "end_round": {"name": names, "drawn": drawn_options},
    "end": {"name": names, "drawn": drawn_options},
}
"""What each rule draws, so that a burst of several can draw it too."""


def drawn_rule(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule that draws what ``GIVEN`` says."""
    given: Any = GIVEN[verb]
    decorate: Callable[[Callable[..., None]], Callable[..., None]] = rule(**given)
    return decorate


def on_a_loop(chat: AsyncConversation, **options: Any) -> Message:
    """Append on an event loop of its own."""

    async def work() -> Message:
        return await chat.append(**options)

    return asyncio.run(work())


class ChatRules(Driver):
    """Window, scratchpad and state of a conversation."""

    @drawn_rule("append")
    def append(
        self, name: str, fields: dict[str, Any], occurred: int | None, drawn: Drawn, *, looped: bool = False
    ) -> None:
        """An append through the plain handle, or awaited on an event loop."""
        stream, chat, opening = f"conversation/{name}", self.chat(name), self.opening(name)
        call = partial(on_a_loop, AsyncConversation(self.memory.aio.core, chat)) if looped else chat.append
        given = self.drive(
            stream,
            drawn,
            lambda **options: call(**fields, occurred=occurred, **options),
            lambda options, message: self.model.add_message(
                stream,
                line_of(fields, message.id if message else ""),
                ("append", repr(fields), occurred),
                options,
                opening=opening,
                occurred_ns=occurred,
            ),
        )
        if given is not None:
            message, entry = given
            assert message.seq == (entry.seq if entry.seq <= self.model.committed else None)
            assert (message.id, message.tokens) == (entry.data.id, entry.data.tokens)

    @drawn_rule("talk")
    def talk(self, name: str, lines: list[dict[str, Any]]) -> None:
        """A long stretch of one conversation, so that groups form and are evicted."""
        for fields in lines:
            self.append(name, fields, None, Drawn())

    @drawn_rule("set_window_tokens")
    def set_window_tokens(self, name: str, window_tokens: int, drawn: Drawn) -> None:
        stream, chat, opening = f"conversation/{name}", self.chat(name), self.opening(name)
        self.drive(
            stream,
            drawn,
            lambda **options: chat.set_window_tokens(window_tokens, **options),
            lambda options, _: self.model.resize(stream, window_tokens, options, opening),
        )

    @drawn_rule("clear_window")
    def clear_window(self, name: str, drawn: Drawn) -> None:
        self.mutate(name, drawn, "clear_window", (), lambda chat: ("cleared_window", None) if chat.lines else None)

    @drawn_rule("remove")
    def remove(self, name: str, place: int, drawn: Drawn) -> None:
        if lines := self.model.state(f"conversation/{name}").lines:
            line = lines[place % len(lines)]

            def decide(chat: Any) -> Any:
                return ("removed", line.id) if line.id in {live.id for live in chat.lines} else None

            given = self.mutate(name, drawn, "remove", (line.id,), decide)
            assert given is None or given[0] is (given[1] is not None)

    @drawn_rule("pin")
    def pin(self, name: str, place: int, drawn: Drawn, *, pinned: bool) -> None:
        if lines := self.model.state(f"conversation/{name}").lines:
            line = lines[place % len(lines)]

            def decide(chat: Any) -> Any:
                live = next((live for live in chat.lines if live.id == line.id), None)
                if live is None:
                    raise NotFound(line.id)
                return None if live.pinned is pinned else ("pinned", (line.id, pinned))

            given = self.mutate(name, drawn, "pin" if pinned else "unpin", (line.id,), decide)
            assert given is None or given[0] is (given[1] is not None)

    @drawn_rule("set")
    def set(self, name: str, key: str, value: str, drawn: Drawn) -> None:
        def decide(chat: Any) -> Any:
            held, prior = chat.entries.get(key, (None, 0))
            return None if held == value else ("set", (key, value, prior))

        self.mutate(name, drawn, "scratchpad.set", (key, value), decide)

    @drawn_rule("delete")
    def delete(self, name: str, key: str, drawn: Drawn) -> None:
        def decide(chat: Any) -> Any:
            return ("deleted", (key, None, chat.entries[key][1])) if key in chat.entries else None

        given = self.mutate(name, drawn, "scratchpad.delete", (key,), decide)
        assert given is None or given[0] is (given[1] is not None)

    @drawn_rule("note")
    def note(self, name: str, text: str, drawn: Drawn) -> None:
        self.mutate(name, drawn, "scratchpad.note", (text,), lambda _: ("noted", text))

    @drawn_rule("clear")
    def clear(self, name: str, drawn: Drawn) -> None:
        self.mutate(
            name, drawn, "scratchpad.clear", (), lambda chat: ("cleared", None) if chat.entries or chat.notes else None
        )

    @drawn_rule("set_state")
    def set_state(self, name: str, key: str, value: Any, drawn: Drawn) -> None:
        self._set_state(name, f"conversation/{name}", key, value, drawn)

    @drawn_rule("set_project_state")
    def set_project_state(self, name: str, key: str, value: Any, drawn: Drawn) -> None:
        project = self.chat(name).project
        if project is not None:
            self._set_state(name, f"project/{project}", f"project:{key}", value, drawn)

    def _set_state(self, name: str, stream: str, key: str, value: Any, drawn: Drawn) -> None:
        held_key = key.removeprefix("session:").removeprefix("project:")
        chat, opening = self.chat(name), None if stream.startswith("project/") else self.opening(name)

        def decide(state: Any) -> Any:
            held, prior = state.values.get(held_key, (None, 0))
            return None if prior and repr(held) == repr(value) else ("value_set", (held_key, value, prior))

        self.drive(
            stream,
            drawn,
            lambda **options: _set_in(chat.state, key, value, drawn, options),
            lambda options, _: self.model.note(
                stream, ("state.set", held_key, repr(value)), decide, options, opening=opening
            ),
        )

    @drawn_rule("delete_state")
    def delete_state(self, name: str, key: str, drawn: Drawn) -> None:
        self._delete_state(name, f"conversation/{name}", key, drawn)

    @drawn_rule("delete_project_state")
    def delete_project_state(self, name: str, key: str, drawn: Drawn) -> None:
        project = self.chat(name).project
        if project is not None:
            self._delete_state(name, f"project/{project}", f"project:{key}", drawn)

    def _delete_state(self, name: str, stream: str, key: str, drawn: Drawn) -> None:
        held_key = key.removeprefix("session:").removeprefix("project:")
        chat, opening = self.chat(name), None if stream.startswith("project/") else self.opening(name)

        def decide(state: Any) -> Any:
            return ("value_deleted", (held_key, None, state.values[held_key][1])) if held_key in state.values else None

        given = self.drive(
            stream,
            drawn,
            lambda **options: _delete_in(chat.state, key, drawn, options),
            lambda options, _: self.model.note(stream, ("state.delete", held_key), decide, options, opening=opening),
        )
        assert given is None or given[0] is (given[1] is not None)

    @drawn_rule("end_round")
    def end_round(self, name: str, drawn: Drawn) -> None:
        def decide(chat: Any) -> Any:
            return ("round_ended", None) if any(key.startswith("temp:") for key in chat.values) else None

        self.mutate(name, drawn, "end_round", (), decide)

    @drawn_rule("end")
    def end(self, name: str, drawn: Drawn) -> None:
        def decide(chat: Any) -> Any:
            has_temp = any(key.startswith("temp:") for key in chat.values)
            return ("ended", None) if has_temp or chat.entries or chat.notes else None

        self.mutate(name, drawn, "end", (), decide)


def _set_in(state: Any, key: str, value: Any, drawn: Drawn, options: dict[str, Any]) -> None:
    """Sets a key in the full form, or where no option asks for that, as one does with a mapping."""
    if drawn != Drawn():
        state.set(key, value, **options)
        return
    state.update({key: value})
    assert repr(state.setdefault(key, "another")) == repr(value)


def _delete_in(state: Any, key: str, drawn: Drawn, options: dict[str, Any]) -> bool:
    """Deletes a key in the full form, or as one does with a mapping; returns whether it was there."""
    if drawn != Drawn():
        deleted: bool = state.delete(key, **options)
        return deleted
    return state.pop(key, ...) is not ...
