"""What the contract says of conversations, and of the keys and notes of profiles, journals, settings and snapshots."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from refold import InvalidInput, LimitExceeded, NotFound
from tests.differential.log import (
    STORE,
    Change,
    Effect,
    Log,
    Options,
    Row,
    drop,
    duplicate,
    naming_snapshot,
    nothing,
    put,
)

Values = dict[str, tuple[Any, int]]
"""Values by key, each with the seq that set it."""


@dataclass(frozen=True)
class Line:
    """One message; ``leader`` is the id of the first member of its group."""

    id: str
    role: str
    content: Any
    tokens: int
    pinned: bool | None = False
    name: str | None = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    metadata: Any = None
    calls: tuple[str, ...] = ()
    answers: str | None = None
    leader: str = ""
    seq: int = 0
    time_ns: int = 0
    occurred_ns: int = 0
    erased: bool = False

    def blanked(self, row: Row) -> "Line":
        """The same message without its text."""
        now = replace(self, content=None, name=None, tool_calls=None, metadata=None, erased=True)
        called, answers = row.id_of(self.tool_call_id), row.id_of(self.answers)
        return replace(now, calls=tuple(map(row.id_of, self.calls)), answers=answers, tool_call_id=called)


def line_of(message_id: str, role: str, content: Any, given: dict[str, Any]) -> Line:
    """The message that ``append`` makes of what it is given."""
    made, blocks = given.get("tool_calls") or (), content if isinstance(content, list) else []
    answers = [given.get("tool_call_id"), *(block.get("tool_use_id") for block in blocks)]
    counted, tokens = len(content) if isinstance(content, str) else 0, given.get("tokens")
    rest: dict[str, Any] = {
        name: given.get(name) for name in ("pinned", "name", "tool_calls", "tool_call_id", "metadata")
    }
    return Line(
        id=message_id,
        role=role,
        content=content,
        tokens=counted if tokens is None else tokens,
        calls=tuple(call["id"] for call in [*made, *blocks] if "id" in call),
        answers=next((call_id for call_id in answers if call_id is not None), None),
        **rest,
    )


class State:
    """What the states of all kinds of streams answer unless they know better."""

    def hashed(self) -> Any:
        """What a state hash tells apart."""
        return vars(self)

    def plain(self) -> Any:
        """What a diff tells apart."""
        return self.hashed()

    def returned(self, mine: Any) -> Effect:  # noqa: ARG002 - what a conversation needs
        """The effect of restoring this state, beside its being the base."""
        return nothing


@dataclass
class Chat(State):
    """The state of one conversation."""

    opened: bool = False
    project: str | None = None
    depth: int = 0
    budget: int = 0
    embed: bool = False
    lines: list[Line] = field(default_factory=list)
    became: dict[str, tuple[int, Line]] = field(default_factory=dict, compare=False)
    """Of messages that were replaced, here or not any more: when, and what they say since then."""
    entries: Values = field(default_factory=dict)
    notes: list[tuple[int, str]] = field(default_factory=list)
    values: Values = field(default_factory=dict)
    task: tuple[str, int] = ("", 0)
    files: Values = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    extracted: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of the messages in the window."""
        return sum(line.tokens for line in self.lines)

    def carried(self) -> Any:
        """What travels to another store as bytes."""
        lines = [replace(line, seq=0) for line in self.lines]
        pairs = [[(key, value) for key, (value, _) in held.items()] for held in (self.entries, self.values)]
        return self.opened, self.budget, lines, [text for _, text in self.notes], *pairs

    def hashed(self) -> Any:
        state = replace(self, depth=0)
        return state if self.opened else replace(state, project=None, budget=0, embed=False)

    def plain(self) -> Any:
        lines = [replace(line, time_ns=0, occurred_ns=0) for line in self.lines]
        held = (self.entries, self.values, self.files)
        keys = [{key: repr(value) for key, (value, _) in values.items()} for values in held]
        work = (self.task[0], [*self.findings], self.calls, self.extracted)
        known = (self.project, self.budget, self.embed) if self.opened else None
        return known, lines, keys, [text for _, text in self.notes], work

    def returned(self, mine: "Chat") -> Effect:
        return moved(mine.depth, self.project)

    # Groups: a call and its answers enter, are pinned and leave together.

    def entering(self, line: Line) -> Line | None:
        """The message with its group; ``None`` if it answers a call that is not in the window."""
        if line.answers is None:
            return replace(line, leader=line.id)
        makers = [live.id for live in self.lines if line.answers in live.calls]
        return replace(line, leader=makers[-1]) if makers else None

    def evict(self) -> None:
        """Take groups from the front while the sum exceeds the budget; pinned groups stay."""
        while self.tokens > self.budget:
            pinned = {line.leader for line in self.lines if line.pinned}
            loose = [line.leader for line in self.lines if line.leader not in pinned]
            if not loose:
                return
            self.lines = [line for line in self.lines if line.leader != loose[0]]

    def enter_all(self, lines: list[Line]) -> None:
        """Hold exactly these messages, but for answers to calls that none of them makes."""
        self.lines = []
        for line in lines:
            entered = self.entering(line)
            if entered is not None:
                self.lines.append(entered)

    def live(self, message_id: str) -> Line | None:
        """The message of an id, if it is in the window."""
        return next((line for line in self.lines if line.id == message_id), None)


def pinned_tokens(lines: list[Line]) -> int:
    """The tokens of the groups with a pinned member."""
    leaders = {line.leader for line in lines if line.pinned}
    return sum(line.tokens for line in lines if line.leader in leaders)


def checked(tokens: int, budget: int) -> None:
    """What is pinned has to fit the budget."""
    if tokens > budget:
        raise LimitExceeded(tokens)


def moved(depth: int, project: str | None) -> Effect:
    """The effect of going on from another state: neither the depth nor the project comes along."""

    def effect(chat: Chat, row: Row) -> None:
        chat.depth, chat.project = depth, None if row.erased else project

    return effect


@dataclass
class Keys(State):
    """Values by key, in the order in which they were set first."""

    values: Values = field(default_factory=dict)

    def hashed(self) -> Any:
        return list(self.values.items())

    def plain(self) -> Any:
        return {key: repr(value) for key, (value, _) in self.values.items()}


@dataclass
class Book(State):
    """The notes of a journal: (seq, day, text, time)."""

    notes: list[tuple[int, str, str, int]] = field(default_factory=list)

    def plain(self) -> Any:
        return {day: [text for _, other, text, _ in self.notes if other == day] for _, day, _, _ in self.notes}


@dataclass
class Store(State):
    """The named snapshots by (stream, name), the settings, and the totals of what was counted."""

    names: dict[tuple[str, str], int] = field(default_factory=dict)
    cuts: dict[tuple[str, str], int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)


PADS = {"scratchpad": ("entries", "notes"), "state": ("values",)}
SETTINGS = {"memory_enabled": True, "memory_max_injected": 200}
"""The settings that are driven, with their defaults."""


def day_of(time_ns: int) -> str:
    """The day of a moment in UTC."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).date().isoformat()


@dataclass(frozen=True)
class Opening:
    """What the first mutation of a conversation records."""

    budget: int
    project: str | None = None


class Chats(Log):
    """The verbs of conversations, their scratchpads and states, of profiles, journals, settings and snapshots.

    A conversation is given as its name, its project and its budget; the latter two count until it is open.
    """

    EMPTY: ClassVar = {"conversation": Chat, "profile": Keys, "journal": Book, "store": Store}

    def open(self, stream: str, opening: Opening, occurred: int | None) -> list[Row]:
        def effect(chat: Chat, row: Row) -> None:
            chat.opened, chat.budget, chat.embed = True, opening.budget, False
            chat.project = (None if row.erased else opening.project) or chat.project

        return [] if self.state(stream).opened else [self.append(stream, Change(effect), (), occurred)]

    def _chat(self, where: Any, asked: Any, decide: Any, options: Any, occurred: int | None = None) -> Row | None:
        name, project, budget = where
        opening = Opening(budget or self.budget, project)
        stream, given = f"conversation/{name}", Options(**options)
        return self.note(stream, asked, decide, given, opening=opening, occurred=occurred)

    # The window.

    def conversation_append(
        self, where: Any, role: str, content: Any, *, occurred: int | None = None, fields: Any, **options: Any
    ) -> Any:
        """Append a message; groups that are pinned have to fit the budget."""
        line = line_of(self.new_ids[0] if self.new_ids else "", role, content, fields)
        budget_of_new = where[2] or self.budget

        def decide(chat: Chat) -> Change:
            budget = chat.budget if chat.opened else budget_of_new
            said = replace(line, pinned=bool(line.pinned))
            entered = chat.entering(said)
            if line.pinned is None and {each.role for each in (*chat.lines, line)} <= {"system", "developer"}:
                kept = replace(said, pinned=True)
                if pinned_tokens([*chat.lines, chat.entering(kept) or kept]) <= budget:
                    said = kept
            elif entered is not None and (said.pinned or said.answers is not None):
                checked(pinned_tokens([*chat.lines, entered]), budget)

            def effect(state: Chat, row: Row) -> None:
                new = state.entering(said_in(row, said))
                if new is not None:
                    state.lines.append(new)
                    state.evict()

            return Change(effect, ("said", said))

        asked = ("append", role, repr(content), repr(fields), occurred)
        row = self._chat(where, asked, decide, options, occurred)
        assert row is not None
        said = said_in(row, row.about[1])
        return {"id": said.id, "content": said.content, "tokens": said.tokens, "seq": self.settled(row.seq)}

    def settled(self, seq: int) -> int | None:
        """A seq, or ``None`` while its batch is open."""
        return seq if seq <= self.committed else None

    def conversation_set_window_tokens(self, where: Any, budget: int, **options: Any) -> None:
        """Change the budget; what is pinned has to fit it."""

        def decide(chat: Chat) -> Change | None:
            if chat.opened and chat.budget == budget:
                return None
            checked(pinned_tokens(chat.lines), budget)

            def effect(state: Chat, _: Row) -> None:
                state.budget = budget
                state.evict()

            return Change(effect)

        self._chat(where, ("resize", budget), decide, options)

    def conversation_set_embed(self, where: Any, embed: bool, **options: Any) -> None:
        def decide(chat: Chat) -> Change | None:
            def effect(state: Chat, _: Row) -> None:
                state.embed = embed

            return None if (chat.opened and chat.embed) is embed else Change(effect)

        self._chat(where, ("embed", embed), decide, options)

    def conversation_clear_window(self, where: Any, **options: Any) -> None:
        def effect(chat: Chat, _: Row) -> None:
            chat.lines = []

        self._chat(where, ("clear_window",), lambda chat: Change(effect) if chat.lines else None, options)

    def conversation_remove(self, where: Any, message_id: str, **options: Any) -> bool:
        """Take a message and its group from the window; return whether it was there."""

        def effect(chat: Chat, _: Row) -> None:
            line = chat.live(message_id)
            chat.lines = [each for each in chat.lines if line is None or each.leader != line.leader]

        def decide(chat: Chat) -> Change | None:
            return Change(effect) if chat.live(message_id) else None

        return self._chat(where, ("remove", message_id), decide, options) is not None

    def conversation_pop(self, where: Any, **options: Any) -> Any:
        """Take the newest message and its group from the window; return it."""

        def decide(chat: Chat) -> Change | None:
            if not chat.lines:
                return None
            newest = chat.lines[-1]

            def effect(state: Chat, _: Row) -> None:
                state.lines = [line for line in state.lines if line.leader != newest.leader]

            return Change(effect, ("popped", newest.id))

        row = self._chat(where, ("pop",), decide, options)
        return {"id": row.about[1]} if row else None

    def conversation_replace(
        self, where: Any, message_id: str, content: Any, *, fields: dict[str, Any], **options: Any
    ) -> Any:
        """Give a message another content, with what else is given; it keeps what it answers, its pin and its name."""

        def decide(chat: Chat) -> Change | None:
            live = chat.live(message_id)
            if live is None:
                raise NotFound(message_id)
            new = line_of(message_id, live.role, content, fields)
            new = replace(new, name=live.name if new.name is None else new.name)
            is_tool = live.role in ("tool", "function")
            answers = live.answers if is_tool and new.answers is None else new.answers
            if (None if live.role == "assistant" else answers) != live.answers:
                raise InvalidInput(answers)
            new = replace(
                new,
                answers=live.answers,
                tool_call_id=live.answers if is_tool else None,
                calls=new.calls if live.role == "assistant" else (),
            )
            if repr(changed(live, new)) == repr(live):
                return None

            def effect(state: Chat, row: Row) -> None:
                now = new.blanked(row) if row.erased else new
                state.became = {**state.became, message_id: (row.seq, now)}
                state.enter_all([changed(line, now) if line.id == message_id else line for line in state.lines])
                if row.seq:
                    state.evict()

            then = replace(chat, lines=list(chat.lines))
            effect(then, Row(0, 0, "", 0, Change(effect), (), 0, 0))
            checked(pinned_tokens(then.lines), chat.budget)
            return Change(effect, ("became", live.seq, new), sources=(live.seq,))

        asked = ("replace", message_id, repr(content), repr(fields))
        row = self._chat(where, asked, decide, options)
        if row is None:
            return ...
        _, seq, new = row.about
        said = None if row.erased else new.content
        return {"id": message_id, "content": said, "tokens": new.tokens, "seq": self.settled(seq)}

    def conversation_pin(self, where: Any, message_id: str, *, pinned: bool = True, **options: Any) -> bool:
        """Pin a message of the window; return whether it was not."""

        def effect(chat: Chat, _: Row) -> None:
            chat.lines = [replace(line, pinned=pinned) if line.id == message_id else line for line in chat.lines]

        def decide(chat: Chat) -> Change | None:
            line = chat.live(message_id)
            if line is None:
                raise NotFound(message_id)
            return None if line.pinned is pinned else Change(effect)

        return self._chat(where, ("pin" if pinned else "unpin", message_id), decide, options) is not None

    def conversation_unpin(self, where: Any, message_id: str, **options: Any) -> bool:
        """Unpin a message of the window; return whether it was pinned."""
        return self.conversation_pin(where, message_id, pinned=False, **options)

    # Scratchpad and state.

    def scratchpad_set(self, where: Any, key: str, value: str, **options: Any) -> None:
        self._chat(where, ("set", key, value), setting("entries", key, value), options)

    def scratchpad_delete(self, where: Any, key: str, **options: Any) -> bool:
        """Delete a key; return whether it was there."""
        return self._chat(where, ("scratchpad.delete", key), deleting("entries", key), options) is not None

    def scratchpad_note(self, where: Any, text: str, **options: Any) -> None:
        def effect(chat: Chat, row: Row) -> None:
            if not row.erased:
                chat.notes.append((row.seq, text))

        self._chat(where, ("note", text), lambda _: Change(effect), options)

    def scratchpad_clear(self, where: Any, **options: Any) -> None:
        def decide(chat: Chat) -> Change | None:
            return Change(cleared) if chat.entries or chat.notes else None

        self._chat(where, ("clear",), decide, options)

    def _scope(self, where: Any, key: str, asked: tuple[str, ...], decide: Any, options: Any) -> Row | None:
        """Write a key of a conversation, or of its project."""
        if not key.startswith("project:"):
            return self._chat(where, asked, decide, options)
        chat = self.state(f"conversation/{where[0]}")
        project = chat.project if chat.opened else chat.project or where[1]
        if project is None:
            raise InvalidInput(key)
        return self.note(f"project/{project}", asked, decide, Options(**options))

    def scopedstate_set(self, where: Any, key: str, value: Any, **options: Any) -> None:
        own = key.removeprefix("session:").removeprefix("project:")
        self._scope(where, key, ("state.set", own, repr(value)), setting("values", own, value), options)

    def scopedstate_delete(self, where: Any, key: str, **options: Any) -> bool:
        """Delete a key; return whether it was there."""
        own = key.removeprefix("session:").removeprefix("project:")
        return self._scope(where, key, ("state.delete", own), deleting("values", own), options) is not None

    def conversation_end_round(self, where: Any, **options: Any) -> None:
        self._chat(where, ("end_round",), lambda chat: Change(rounded) if temporary(chat) else None, options)

    def conversation_end(self, where: Any, **options: Any) -> None:
        def effect(chat: Chat, row: Row) -> None:
            cleared(chat, row)
            rounded(chat, row)

        def decide(chat: Chat) -> Change | None:
            return Change(effect) if temporary(chat) or chat.entries or chat.notes else None

        self._chat(where, ("end",), decide, options)

    # The work of a session.

    def sessionmemory_describe_task(self, where: Any, text: str, **options: Any) -> None:
        def effect(chat: Chat, row: Row) -> None:
            chat.task = chat.task if row.erased else (text, row.seq)

        self._chat(
            where, ("describe_task", text), lambda chat: None if chat.task[0] == text else Change(effect), options
        )

    def sessionmemory_note_file(self, where: Any, path: str, *, lines: int, **options: Any) -> None:
        def effect(chat: Chat, row: Row) -> None:
            if not row.erased:
                chat.files.pop(path, None)
                chat.files[path] = (lines, row.seq)

        def decide(chat: Chat) -> Change | None:
            return None if chat.files.get(path, (None,))[0] == lines else Change(effect)

        self._chat(where, ("note_file", path, lines), decide, options)

    def sessionmemory_note_finding(self, where: Any, text: str, **options: Any) -> None:
        def effect(chat: Chat, row: Row) -> None:
            if not row.erased:
                chat.findings.setdefault(text, row.seq)

        self._chat(
            where, ("note_finding", text), lambda chat: None if text in chat.findings else Change(effect), options
        )

    def sessionmemory_record_call(self, where: Any, name: str, given: Any, result: Any, **options: Any) -> Any:
        def effect(chat: Chat, row: Row) -> None:
            if not row.erased:
                chat.calls[name] = chat.calls.get(name, 0) + 1

        self._chat(where, ("record_call", name, repr(given), repr(result)), lambda _: Change(effect), options)
        return ...

    def sessionmemory_record_extraction(self, where: Any, *given: Any, seq: int, **options: Any) -> None:
        def effect(chat: Chat, _: Row) -> None:
            chat.extracted = max(chat.extracted, seq)

        self._chat(where, ("record_extraction", given, seq), lambda _: Change(effect), options)

    # Snapshots, restores, forks.

    def conversation_snapshot(self, where: Any, name: str) -> None:
        self.refuse_in_batch()
        stream = f"conversation/{where[0]}"
        if not self.stream_rows(stream):
            raise NotFound(stream)
        seq, known = self.last_seq(stream), self.state(STORE).names.get((stream, name))
        if known is None:
            self.append(STORE, Change(naming_snapshot(stream, name, seq)))
        elif known != seq:
            raise InvalidInput(name)

    def conversation_restore(
        self, where: Any, target: Any, *, views: Any = None, keep_budget: bool = False, **options: Any
    ) -> None:
        """Go on from a state: that of a name, or one that was kept as a pointer or as bytes."""
        if not keep_budget and views is None:
            self._restore(where, target, (), options)
            return
        if self._known(options.get("request_id")) is not None:
            self._restore(where, target, ("keep_budget",) * keep_budget + tuple(views or ()), options, views)
            return
        chat, alone = self.state(f"conversation/{where[0]}"), self.batch is None
        budget = chat.budget if chat.opened else where[2] or self.budget
        held = duplicate(chat)
        if alone:
            self.begin()
        try:
            then = self._restore(where, target, ("keep_budget",) * keep_budget + tuple(views or ()), options, views)
            if keep_budget and (views is None or "window" in views):
                self.conversation_set_window_tokens(where, budget, sources=options.get("sources", ()))
            if views is not None:
                self._lead(where, then if "scratchpad" in views else held, then if "state" in views else held, options)
        except Exception:
            if alone:
                self.discard()
            raise
        if alone:
            self.commit()

    def _lead(self, where: Any, pad: Chat, scope: Chat, options: Any) -> None:
        """Lead scratchpad and state to what others held, each with the row that wrote it as a source."""
        given = options.get("sources", ())

        def cited(seq: int) -> dict[str, Any]:
            return {"sources": (*given, seq) if seq and seq not in given else given}

        now = self.state(f"conversation/{where[0]}")
        texts, kept = [text for _, text in pad.notes], len(now.notes)
        if [text for _, text in now.notes] != texts[:kept]:
            kept = 0
            self.scratchpad_clear(where, sources=given)
        for key in sorted(now.entries.keys() - pad.entries.keys()):
            self.scratchpad_delete(where, key, sources=given)
        for key, (value, seq) in sorted(pad.entries.items()):
            self.scratchpad_set(where, key, value, **cited(seq))
        for seq, text in pad.notes[kept:]:
            self.scratchpad_note(where, text, **cited(seq))
        for key in sorted(now.values.keys() - scope.values.keys()):
            self._chat(where, (), deleting("values", key), {"sources": given})
        for key in sorted(scope.values):
            value, seq = scope.values[key]
            self._chat(where, (), setting("values", key, value), cited(seq))

    def _restore(self, where: Any, target: Any, kept: tuple[str, ...], options: Any, views: Any = None) -> Chat:
        """Go on from a state, unless none of the views changes; return it, with no rows of another store."""
        stream = f"conversation/{where[0]}"
        if isinstance(target, str):
            base = (self.branch, stream, self.named(stream, target))
            asked: tuple[Any, ...] = ("restore", target, *kept)
        else:
            carried = target.carried
            base = (self.branch if carried else target.branch, target.stream, target.seq)
            asked = ("restore", target.stream, target.seq, 0 if carried else target.branch, *kept)
            if self.is_foreign(target):
                return self._import(where, asked, carried[1], options, views)
        then = self.state_in(*base) if base[2] else Chat()

        def decide(chat: Chat) -> Change | None:
            there = replace(then, project=chat.project, depth=chat.depth)
            left = [name for view in PADS if views and view not in views for name in PADS[view]]
            is_same = replace(there, **{name: getattr(chat, name) for name in left}) == chat
            if is_same or (views and "window" not in views):
                return None
            project = chat.project if chat.opened else chat.project or where[1]
            return Change(moved(chat.depth, project), base=base if base[2] else (base[0], stream, 0))

        self._chat(where, asked, decide, options)
        return then

    def is_foreign(self, kept: Any) -> bool:
        """Whether bytes hold what is no state of this store as it is now, so that no pointer does."""
        state = self.state(kept.stream, kept.seq)
        return bool(kept.carried) and (kept.foreign or (state.project, state.carried()) != kept.carried)

    def _import(self, where: Any, asked: Any, carried: Any, options: Any, views: Any) -> Chat:
        """Take over a state from elsewhere, unless none of the views changes; return it with no rows of its own."""
        opened, budget, lines, notes, entries, values = carried
        then = Chat(opened=opened, budget=budget, notes=[(0, text) for text in notes])
        then.entries, then.values = ({key: (value, 0) for key, value in held} for held in (entries, values))
        parts = {"window": slice(0, 3), "scratchpad": slice(3, 5), "state": slice(5, 6)}

        def decide(mine: Chat) -> Change | None:
            project = mine.project if mine.opened else mine.project or where[1]

            def effect(chat: Chat, row: Row) -> None:
                vars(chat).update(vars(Chat(depth=chat.depth, embed=chat.embed, became=chat.became)))
                chat.opened, chat.budget = opened, budget
                chat.project = None if row.erased else project
                chat.lines = [replace(line.blanked(row) if row.erased else line, seq=row.seq) for line in lines]
                chat.notes = [] if row.erased else [(row.seq, text) for text in notes]
                chat.entries = {} if row.erased else {key: (value, row.seq) for key, value in entries}
                chat.values = {} if row.erased else {key: (value, row.seq) for key, value in values}

            compared = [parts[view] for view in views or parts]
            is_same = all(mine.carried()[part] == carried[part] for part in compared)
            return None if is_same or "window" not in (views or parts) else Change(effect, ("said", *lines))

        self._chat(where, asked, decide, options)
        return then

    def conversation_fork(self, where: Any, twin: str, *, at: int | None = None, **options: Any) -> None:
        self.refuse_in_batch()
        self.fork_of(where, twin, at, options)

    def fork_of(self, where: Any, twin: str, at: int | None, options: Any) -> None:
        """Begin a conversation from the state of another one."""
        stream = f"conversation/{where[0]}"

        def decide(_: Chat) -> Change:
            base, live = self.state(stream, at), self.state(stream)
            if self.stream_rows(f"conversation/{twin}"):
                raise InvalidInput(twin)
            if at is not None and not self.last_seq(stream, at):
                raise InvalidInput(at)
            project = live.project if live.opened else live.project or where[1]
            start = (self.branch, stream, self.last_seq(stream, at))
            return Change(moved(base.depth + 1, project), base=start)

        self.note(f"conversation/{twin}", ("fork", stream, at), decide, Options(**options))

    def conversation_close(self, where: Any, *, drop: bool = False, **options: Any) -> None:
        def decide(chat: Chat) -> Change:
            if not chat.depth:
                raise InvalidInput(where)
            return DROP

        if drop:
            self._chat(where, ("close",), decide, options)

    def conversation_drop(self, where: Any, **options: Any) -> None:
        self._chat(where, ("drop",), lambda chat: DROP if chat.opened or chat.depth else None, options)

    def conversations(self, at: int | None = None, *, dropped: bool = False) -> list[str]:
        """The sorted names of those that were not dropped, or of those that were."""
        last = {row.stream: row.about == DROPPED for row in self.seen(at) if row.stream.startswith("conversation/")}
        return sorted(stream.partition("/")[2] for stream, is_dropped in last.items() if is_dropped is dropped)

    def held(self, stream: str, at: int | None = None) -> list[Line]:
        """The messages that a conversation held by a seq, those of what it went on from too, as they are now."""
        became = self.state(stream, at).became
        found: list[Line] = []
        for row, line in self._held(stream, at):
            since, now = became.get(line.id, (0, line))
            current = changed(line, now) if since > row.seq else line.blanked(row) if row.erased else line
            found += [] if current.erased else [current]
        return found

    def _held(self, stream: str, at: int | None) -> Iterator[tuple[Row, Line]]:
        for row in self.past(stream, at):
            if row.about and row.about[0] == "said":
                yield from ((row, line) for line in row.about[1:])

    def past(self, stream: str, at: int | None = None, branch: int | None = None) -> Iterator[Row]:
        """The rows of a conversation since its last drop, each behind those of what it goes on from."""
        rows = self.stream_rows(stream, at, branch)
        ends = [place for place, row in enumerate(rows, 1) if row.about == DROPPED]
        for row in rows[ends[-1] if ends else 0 :]:
            if row.change.base:
                yield from self.past(row.change.base[1], row.change.base[2], row.change.base[0])
            yield row

    # Profiles, journals, settings.

    def profile_set(self, where: str, key: str, value: str, **options: Any) -> None:
        self.note(f"profile/{where}", ("set", key, value), setting("values", key, value), Options(**options))

    def profile_delete(self, where: str, key: str, **options: Any) -> bool:
        """Delete a key; return whether it was there."""
        decide = deleting("values", key)
        return self.note(f"profile/{where}", ("delete", key), decide, Options(**options)) is not None

    def journal_append(
        self, where: str, text: str, *, day: str | None = None, occurred: int | None = None, **options: Any
    ) -> Any:
        """Add a note to a day: one that is given, or that of when it happened."""
        written = day or day_of(self.now_ns() if occurred is None else occurred)

        def effect(book: Book, row: Row) -> None:
            if not row.erased:
                book.notes.append((row.seq, written, text, row.time_ns))

        asked = ("append", day, text, occurred)
        change = Change(effect, (written, text))
        row = self.note(f"journal/{where}", asked, lambda _: change, Options(**options), occurred=occurred)
        assert row is not None
        return ... if row.erased else row.about

    def settings_set(self, _: None, name: str, value: Any, **options: Any) -> None:
        def effect(store: Store, row: Row) -> None:
            if not row.erased:
                store.settings[name] = value

        def decide(store: Store) -> Change | None:
            known = store.settings.get(name, SETTINGS[name])
            return None if json.dumps(known) == json.dumps(value) else Change(effect)

        self.note(STORE, ("settings.set", name, value), decide, Options(**options))

    def settings_count_usage(self, _: None, kind: str, count: int, **options: Any) -> None:
        def effect(store: Store, _: Row) -> None:
            store.usage[kind] = store.usage.get(kind, 0) + count

        change = Change(effect) if count else None
        self.note(STORE, ("settings.count_usage", kind, count), lambda _: change, Options(**options))


def said_in(row: Row, line: Line) -> Line:
    """A message with the stamp of its row, and without its text where that is erased."""
    stamped = replace(line, seq=row.seq, time_ns=row.time_ns, occurred_ns=row.occurred_ns)
    return stamped.blanked(row) if row.erased else stamped


def _empty(chat: Chat, _: Row) -> None:
    vars(chat).update(vars(Chat()))


DROPPED = ("dropped",)
DROP = Change(_empty, DROPPED)
"""What becomes of a conversation that is dropped."""


def changed(line: Line, now: Line) -> Line:
    """A message with what it says now, in its place."""
    fields = ("content", "tokens", "name", "tool_calls", "tool_call_id", "metadata", "calls", "answers", "erased")
    return replace(line, **{name: getattr(now, name) for name in fields})


def setting(part: str, key: str, value: Any) -> Any:
    """Decide to set a key, unless it has the value; the text of values tells 1 from True."""

    def decide(state: Any) -> Change | None:
        held, prior = getattr(state, part).get(key, (None, 0))
        if prior and repr(held) == repr(value):
            return None
        return Change(lambda now, row: put(getattr(now, part), row, key, value, prior), "replaced" if prior else None)

    return decide


def deleting(part: str, key: str) -> Any:
    """Decide to delete a key that is there."""

    def decide(state: Any) -> Change | None:
        if key not in getattr(state, part):
            return None
        prior = getattr(state, part)[key][1]
        return Change(lambda now, row: drop(getattr(now, part), row, key, prior), "replaced")

    return decide


def temporary(chat: Chat) -> bool:
    """Whether there is anything that lasts a round."""
    return any(key.startswith("temp:") for key in chat.values)


def cleared(chat: Chat, _: Row) -> None:
    """Empty a scratchpad."""
    chat.entries, chat.notes = {}, []


def rounded(chat: Chat, _: Row) -> None:
    """Delete what lasts a round."""
    chat.values = {key: held for key, held in chat.values.items() if not key.startswith("temp:")}
