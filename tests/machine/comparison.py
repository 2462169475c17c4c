"""Every public read, compared with what the plain model says."""

import json
import re
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from refold import Conversation, Hits, Journal, Memory, Message, Profile, Project, Snapshot
from refold.evaluation.retrieval import BASELINES
from tests.machine.file_rules import check_files
from tests.machine.model import STORE, Model, day_of
from tests.machine.model_boards import BOARDS, check_board
from tests.machine.model_facts import Shared, scores, touches
from tests.machine.model_states import Chat, Line, Opening

FIELDS = ("id", "role", "content", "tokens", "pinned", "name", "tool_calls", "tool_call_id", "metadata", "erased")
STAMPED = ("seq", "time_ns", "occurred_ns")


def shown(message: Message) -> dict[str, Any]:
    """A message as a dict."""
    return {field: getattr(message, field) for field in (*FIELDS, *STAMPED)}


def said(line: Line, committed: int) -> dict[str, Any]:
    """What the model says of a message; in an open batch it has no stamp yet."""
    told = {field: getattr(line, field) for field in (*FIELDS, *STAMPED)}
    return told if line.seq <= committed else told | dict.fromkeys(STAMPED)


def check_chat(chat: Conversation, model: Model, opening: Opening, at: int | None = None) -> None:
    """Reads a conversation in every way and compares; ``at`` is where the model looks."""
    stream = f"conversation/{chat.id}"
    state: Chat = model.state(stream, at)
    _check_window(chat, model, state, opening)
    check_found(chat.search(QUERY, top_k=TOP_COUNT), model.held(stream, at))
    _check_scratchpad(chat, state)
    project = (state.project or opening.project) if not state.opened else state.project
    assert chat.project == project
    _check_state(chat, state, {} if project is None else model.state(f"project/{project}", at).values)
    _check_events(chat, model, stream, at)
    assert chat.place == (stream, model.committed if at is None else at)
    if model.batch is None:
        _check_snapshot(chat.snapshot(), state, (stream, model.last_seq(stream, at), None))


def _check_snapshot(snapshot: Snapshot, state: Chat, pointer: tuple[str, int, None]) -> None:
    assert (snapshot.stream, snapshot.seq, snapshot.name) == pointer
    ids = [line.id for line in state.lines]
    assert ([message.id for message in snapshot.messages], snapshot.tokens) == (ids, state.tokens)
    if state.opened:
        content = json.loads(snapshot.to_json())
        assert (len(content["messages"]), content["tokens"]) == (len(ids), state.tokens)


QUERY, TOP_COUNT = "which one is long?", 10_000


def check_found(hits: Hits, held: dict[str, Line]) -> None:
    """The messages that are found are those that have one of the words."""
    said = {line.id for line in held.values() if isinstance(line.content, str) and re.search("one|long", line.content)}
    assert {hit.entry.id for hit in hits} == said
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def _check_window(chat: Conversation, model: Model, state: Chat, opening: Opening) -> None:
    lines = [said(line, model.committed) for line in state.lines]
    assert [shown(message) for message in chat.window()] == lines
    assert [message.id for message in chat.window(last=2)] == [line["id"] for line in lines[-2:]]
    assert chat.window(last=0) == []
    assert chat.token_count() == state.tokens
    assert chat.window_tokens == (state.budget if state.opened else opening.budget)
    wanted = ("role", "content", "name", "tool_calls", "tool_call_id")
    given = [{field: line[field] for field in wanted if line[field] is not None} for line in lines]
    assert chat.messages() == [{"content": None} | fields for fields in given]


def _check_scratchpad(chat: Conversation, state: Chat) -> None:
    entries = {key: value for key, (value, _) in state.entries.items()}
    assert chat.scratchpad.keys() == sorted(entries)
    assert {key: chat.scratchpad.get(key) for key in entries} == entries
    assert chat.scratchpad.get("never set", "default") == "default"
    assert chat.scratchpad.notes() == [text for _, text in state.notes]
    assert chat.scratchpad.to_dict() == {"entries": entries, "notes": chat.scratchpad.notes()}
    assert json.loads(chat.scratchpad.to_json()) == chat.scratchpad.to_dict()
    assert chat.scratchpad.items() == sorted(entries.items())


def _check_state(chat: Conversation, state: Chat, shared: dict[str, Any]) -> None:
    values = {key: state.values[key][0] for key in sorted(state.values)}
    values |= {f"project:{key}": shared[key][0] for key in sorted(shared)}
    assert chat.state.items() == list(values.items())
    assert chat.state.keys() == list(chat.state) == list(values)
    assert chat.state.values() == list(values.values())
    assert len(chat.state) == len(values)
    assert all(key in chat.state and chat.state.get(key) == value for key, value in values.items())
    assert chat.state.get("never set", "default") == "default"


def _check_events(chat: Conversation, model: Model, stream: str, at: int | None) -> None:
    entries = model.entries(stream, model.committed if at is None else at)
    assert chat.version == len(model.entries(stream, at))
    told = [(e.seq, e.version, e.sources, e.time_ns, e.occurred_ns, e.erased) for e in entries]
    seen = [
        (stamp.seq, stamp.version, event.sources, stamp.time_ns, stamp.occurred_ns, stamp.erased)
        for event, stamp in chat.events()
    ]
    assert seen == told
    if told:
        assert [stamp.seq for _, stamp in chat.events(after=told[0][0])] == [row[0] for row in told[1:]]


def check_profile(profile: Profile, model: Model, at: int | None = None) -> None:
    """Reads a profile in every way and compares."""
    values = {key: value for key, (value, _) in model.state(f"profile/{profile.name}", at).values.items()}
    assert profile.items() == list(values.items())
    assert {key: profile.get(key) for key in values} == values
    assert profile.get("never set", "default") == "default"


def check_journal(journal: Journal, model: Model, now_ns: int, at: int | None = None) -> None:
    """Reads a journal in every way and compares; ``now_ns`` is the time that it takes for today."""
    notes = model.state(f"journal/{journal.name}", at).notes
    days = sorted({day for _, day, _, _ in notes})
    for day in days:
        _check_notes(journal.day(day), [note for note in notes if note[1] == day], model.committed)
    today = day_of(now_ns)
    first = (date.fromisoformat(today) - timedelta(days=1)).isoformat()
    recent = [note for day in days if first <= day <= today for note in notes if note[1] == day]
    _check_notes(journal.recent(2), recent, model.committed)


def _check_notes(notes: Sequence[Any], told: Sequence[tuple[int, str, str, int]], committed: int) -> None:
    assert [(note.day, note.text) for note in notes] == [row[1:3] for row in told]
    for note, (seq, _, _, time_ns) in zip(notes, told, strict=True):
        assert seq > committed or note.time_ns == time_ns


FACT = ("id", "content", "category", "importance", "status", "access_count", "metadata")
TIMED = ("created_ns", "updated_ns", "accessed_ns", "decayed_ns", "occurred_ns")


def check_project(project: Project, model: Model, now_ns: int, at: int | None = None) -> None:
    """Reads a project in every way and compares; ``now_ns`` is what recency is counted from."""
    stream = f"project/{project.name}"
    state: Shared = model.state(stream, at)
    is_settled = model.batch is None or at is not None
    fields = (*FACT, *TIMED) if is_settled else FACT
    entries, told = project.list(), list(state.memories.values())
    assert [[getattr(e, name) for name in fields] for e in entries] == [
        [getattr(f, name) for name in fields] for f in told
    ]
    assert [(tuple(e.keywords), e.source) for e in entries] == [(f.keywords, f.origin or f.session) for f in told]
    assert not is_settled or [e.seq for e in entries] == [f.body for f in told]
    assert project.list(category="fact", offset=1, limit=2) == [e for e in entries if e.category == "fact"][1:3]
    assert project.count() == len(told)
    assert not is_settled or project.at(project.place[1]).count() == len(told)
    assert all(project.get(e.id) == e for e in entries)
    assert [found.erased for found in map(project.get, state.gone) if found] == [True] * len(state.gone)
    stats = project.stats()
    assert (stats.memories, stats.episodes) == (len(told), len(state.episodes))
    seen = model.entries(stream, model.committed if at is None else at)
    assert [stamp.seq for _, stamp in project.events()] == [entry.seq for entry in seen]
    assert project.place == (stream, model.committed if at is None else at)
    for entry in entries[:2]:
        touched = [e.seq for e in seen if touches(e, entry.id)]
        assert (
            not touched
            or [r.stamp.seq for r in project.history(entry.id) if r.event.__class__.__name__ != "MemoriesCleared"]
            == touched
        )
    _check_search(project, state, now_ns, has_recency=is_settled)
    tasks = {row[2] for row in state.episodes}
    assert {hit.entry.task for hit in project.search_episodes("tea", top_k=100, floor=0)} == tasks


def _check_search(project: Project, state: Shared, now_ns: int, *, has_recency: bool) -> None:
    """The whole ranking of a query, held against the formula."""
    expected = scores(state, "tea milk", now_ns, has_recency=has_recency)
    ranking = "seed" if has_recency else BASELINES["seed-without-recency"]
    hits = project.search("tea milk", top_k=100, ranking=ranking)
    assert project.search_many(["tea milk"], top_k=100, ranking=ranking) == [hits]
    assert {hit.entry.id for hit in hits} == expected.keys()
    assert all(abs(hit.score - expected[hit.entry.id]) < 3e-6 for hit in hits)
    order = [(-hit.score, -hit.entry.importance) for hit in hits]
    assert order == sorted(order)


def check_memory(memory: Memory, model: Model, openings: dict[str, Opening], at: int | None = None) -> None:
    """Reads everything and compares; ``openings`` says what a conversation that is not open would record."""
    seen_at = model.committed if at is None else at
    assert memory.head == seen_at
    assert memory.conversations() == model.names("conversation", seen_at)
    assert memory.projects() == model.names("project", seen_at)
    assert memory.tools is memory.tools
    assert memory.skills.library.list() == []
    assert memory.settings.get("memory_enabled") is True
    named = model.state(STORE, seen_at).names
    told = sorted((seq, stream, name) for (stream, name), seq in named.items())
    assert sorted((found.seq, found.stream, found.name) for found in memory.snapshots()) == told
    seen = [(stamp.seq, stamp.stream, stamp.version) for _, stamp in memory.events()]
    assert seen == [(entry.seq, entry.stream, entry.version) for entry in model.seen(seen_at)]
    signed = {entry.seq: model.origin(entry) for entry in model.seen(seen_at) if entry.actor is not None}
    assert {s.seq: (s.cause, s.actor) for _, s in memory.events() if s.seq in signed} == signed
    assert memory.forks() == model.fork_names(seen_at)
    stats = memory.stats()
    assert (stats.events, stats.conversations) == (seen_at, len(memory.conversations()))
    for name in model.names("conversation"):
        check_chat(memory.conversation(name), model, openings[name], at)
    every = [entry for entry in model.seen(at) if entry.stream.startswith("conversation/")]
    own = [line for entry in every for line in model.said(entry)]
    check_found(memory.search_messages(QUERY, top_k=TOP_COUNT), {line.id: line for line in own})
    for name in model.names("profile"):
        check_profile(memory.profile(name), model, at)
    now_ns = model.now_ns() if at is None else model.log[at - 1].time_ns if at else 0
    assert memory.search("tea milk", now=now_ns) == memory.project().search("tea milk", now=now_ns)
    for name in model.names("project"):
        check_project(memory.project(name), model, now_ns, at)
    for whose in BOARDS:
        check_board(memory.board(**whose.options), model, whose, at)
    for name in model.names("files"):
        check_files(memory.files(name), model.state(f"files/{name}", at))
    for name in model.names("journal"):
        check_journal(memory.journal(name), model, now_ns, at)
