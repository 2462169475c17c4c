"""Every public read of a memory, compared with what the model says."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

from refold import Board, Conversation, Hits, Journal, Memory, Message, Project, Snapshot
from refold.evaluation.retrieval import BASELINES
from refold.memory import Files, SessionMemory, Table
from refold.memory.wires import NO_RESULT
from refold.skills import SkillLibrary
from tests.differential.boards import Both, Whose
from tests.differential.chats import SETTINGS, Chat, Line, day_of
from tests.differential.log import STORE, Row
from tests.differential.model import Model
from tests.differential.operations import BOARDS
from tests.differential.projects import Shared, scores
from tests.differential.shelves import Shelf, Tree
from tests.differential.tables import Drawer, begins

FIELDS = ("id", "role", "content", "tokens", "pinned", "name", "tool_calls", "tool_call_id", "metadata", "erased")
STAMPED = ("seq", "time_ns", "occurred_ns")
FACT = ("id", "content", "category", "importance", "status", "access_count", "metadata", "source")
TIMED = ("created_ns", "updated_ns", "accessed_ns", "decayed_ns", "occurred_ns")
QUERY = "which one is long?"


class Known:
    """The states of streams that were compared already, so that a step compares what it may have changed."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[Any, ...]] = {}

    def has(self, stream: str, *states: Any) -> bool:
        """Whether the stream was compared with these very states; from now on it was."""
        known = self._states.get(stream, ())
        self._states[stream] = states
        return len(known) == len(states) and all(one is other for one, other in zip(known, states, strict=True))


def check_memory(memory: Memory, model: Model, at: int | None = None, known: Known | None = None) -> None:
    """Read everything, as of a seq where one is given, and compare; leave out what was compared before."""
    known = known or Known()
    seen_at = model.committed if at is None else at
    assert memory.head == seen_at
    assert memory.conversations() == model.conversations(seen_at)
    assert memory.conversations(dropped=True) == model.conversations(seen_at, dropped=True)
    assert memory.conversations(after="a", limit=2) == [each for each in model.conversations(seen_at) if each > "a"][:2]
    assert memory.projects() == model.names("project", seen_at)
    assert memory.profiles() == model.names("profile", seen_at)
    assert memory.journals() == model.names("journal", seen_at)
    assert memory.tables() == model.names("table", seen_at)
    assert memory.forks() == model.forks(seen_at)
    _check_rows([(*place, memory) for place in memory.events()], model, model.seen(seen_at))
    last = list(memory.events(after=max(seen_at - 1, 0)))  # None where a fork wrote last.
    assert [memory.event(recorded.stamp.seq) for recorded in last] == last
    store = model.state(STORE, seen_at)
    snapshots = sorted((found.seq, found.stream, found.name) for found in memory.snapshots())
    assert snapshots == sorted((seq, stream, name) for (stream, name), seq in store.names.items())
    settings = model.state(STORE, at)
    assert {name: memory.settings.get(name) for name in SETTINGS} == SETTINGS | settings.settings
    assert dict(memory.settings.items()) | SETTINGS | settings.settings == dict(memory.settings.items())
    assert memory.health().ok
    stats = memory.stats()
    assert (stats.events, stats.conversations) == (seen_at, len(memory.conversations()))
    for name in model.names("conversation"):
        state = model.state(f"conversation/{name}", at)
        if not known.has(f"conversation/{name}", state, model.state(f"project/{state.project or ''}", at)):
            _check_chat(memory.conversation(name), model, at)
    check_found(memory.search_messages(QUERY, top_k=10_000), said(model, at))
    for name in model.names("profile"):
        values = {key: value for key, (value, _) in model.state(f"profile/{name}", at).values.items()}
        profile = memory.profile(name)
        assert profile.items() == list(values.items())
        assert {key: profile.get(key) for key in values} == values
        assert profile.get("never set", "default") == "default"
    now_ns = model.now_ns() if at is None else model.rows[at - 1].clock_ns if at else 0
    assert memory.search("tea milk", now=now_ns) == memory.project().search("tea milk", now=now_ns)
    for name in model.names("project"):
        if not known.has(f"project/{name}", model.state(f"project/{name}", at)):
            _check_project(memory.project(name), model, now_ns, at)
    for name in model.names("table"):
        _check_table(memory.table(name), model, now_ns, at)
    for name in model.names("journal"):
        _check_journal(memory.journal(name), model, now_ns, at)
    boards = {f"board/{name}" for name in model.names("board", seen_at) if not name.startswith("erased-")}
    assert {board.place[0] for board in memory.boards()} == boards
    for whose in BOARDS:
        both = Both(model, whose, at)
        if not known.has(f"{whose}", both.own, both.beneath):
            _check_board(memory.board(**whose.options), model, both, at)
    for name in model.names("files"):
        _check_files(memory.files(name), model.state(f"files/{name}", at))
    _check_library(memory.skills.library, model.state("skills/default", at), model.committed)


def _check_rows(seen: Sequence[Any], model: Model, rows: list[Row]) -> None:
    told = [(s.seq, s.stream, s.version, event.sources, s.time_ns, s.occurred_ns, s.erased) for event, s, _ in seen]
    assert told == [
        (row.seq, row.stream, row.version, row.sources, row.time_ns, row.occurred_ns, row.erased) for row in rows
    ]
    signed = {row.seq: model.origin(row) for row in rows if row.actor is not None}
    assert {s.seq: (s.cause, s.actor) for _, s, _ in seen if s.seq in signed} == signed


def said(model: Model, at: int | None) -> list[Line]:
    """The messages that are not erased, each with what it said last in its conversation.

    Those of a dropped conversation are only those that another one goes on from.
    """
    streams = [f"conversation/{name}" for name in model.names("conversation", at)]
    kept = {row.seq for stream in streams for row in model.past(stream, at)}
    rows = [row for row in model.seen(at) if row.stream in streams and row.about]
    past = {(row.stream, row.about[2].id, row.about[1]) for row in rows if row.about[0] == "became"}
    rows = [row for row in rows if row.seq in kept]
    last = {(row.stream, row.about[2].id): row for row in rows if row.about[0] == "became"}
    found = [
        line
        for row in rows
        if row.about[0] == "said" and not row.erased
        for line in row.about[1:]
        if (row.stream, line.id, row.seq) not in past and not line.erased
    ]
    return found + [row.about[2] for row in last.values() if not row.erased]


def check_found(hits: Hits, held: list[Line]) -> None:
    """The messages that are found are those that have one of the words, the best first."""
    found = {line.id for line in held if isinstance(line.content, str) and re.search("one|long", line.content)}
    assert {hit.entry.id for hit in hits} == found
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


# Conversations.


def check_window(chat: Conversation, model: Model, at: int | None = None) -> None:
    """Compare the window of a conversation, in every form."""
    state: Chat = model.state(f"conversation/{chat.id}", at)
    lines = [_told(line, model.committed) for line in state.lines]
    assert [_shown(message) for message in chat.window()] == lines
    assert [message.id for message in chat.window(last=2)] == [line["id"] for line in lines[-2:]]
    assert chat.window(last=0) == []
    assert chat.token_count() == state.tokens
    assert chat.window_tokens == (state.budget if state.opened else model.budget)
    assert chat.eviction == "fifo"
    assert chat.messages() == request_of(lines)


def _shown(message: Message) -> dict[str, Any]:
    return {field: getattr(message, field) for field in (*FIELDS, *STAMPED)}


def _told(line: Line, committed: int) -> dict[str, Any]:
    told = {field: getattr(line, field) for field in (*FIELDS, *STAMPED)}
    return told if line.seq <= committed else told | dict.fromkeys(STAMPED)


_MISPLACED = {"type": "text", "text": "(a block of type 'tool_use', which no provider takes here)"}


def request_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What OpenAI is sent: what has something to say, each with the results of its calls, the last of each.

    Calls are in the lines' fields or in blocks, and get ids of their own where two are the same, and a name where they
    have none. A call in a message of another role than the assistant, or in a result, is named.
    """
    turns: list[tuple[dict[str, Any], list[Any]]] = []  # Each with its calls: the id, the name, and the result.
    makers: dict[str, list[Any]] = {}
    last: list[Any] = []
    for line in lines:
        content, role = line["content"], line["role"]
        blocks = content if isinstance(content, list) else []
        results = [(block["tool_use_id"], block["content"], None) for block in blocks if "tool_use_id" in block]
        if role in {"tool", "function"} and not results:
            results = [(line["tool_call_id"], content, line["name"])]
        for call_id, said, name in results:
            one = next((call for call in last if call[2] is None and name in {None, call[1]}), None)
            for call in [call for call in makers.get(call_id, []) if call[0] == call_id] if call_id else [one]:
                if call is not None:
                    call[2] = (said, name)
        made = [[block["id"], ""] for block in blocks if block.get("type") == "tool_use"]
        misplaced = [_MISPLACED for _ in made] if role not in {"assistant", "tool", "function"} else []
        made += [[call["id"], call["function"]["name"]] for call in line["tool_calls"] or ()]
        calls = [[*call, None] for call in made if role == "assistant"]
        is_said = isinstance(content, str) and content.strip() and role not in {"tool", "function"}
        says = misplaced or (content if is_said else None)
        if calls or says:
            named = {} if line["name"] is None else {"name": line["name"]}
            turns.append(({"role": role, "content": says} | named, calls))
        if calls:
            makers |= {call[0]: calls for call in calls}
            last = calls
    return _messages_of(turns)


def _messages_of(turns: list[tuple[dict[str, Any], list[Any]]]) -> list[dict[str, Any]]:
    request: list[dict[str, Any]] = []
    counts = Counter[str]()
    for message, calls in turns:
        request.append(message)
        ids: list[str] = []
        for call_id, *_ in calls:
            counts[call_id] += 1
            ids.append(call_id if counts[call_id] == 1 else f"{call_id}_{counts[call_id]}")
        functions = [{"name": name or "unnamed", "arguments": "{}"} for _, name, _ in calls]
        made = [{"id": one, "type": "function", "function": two} for one, two in zip(ids, functions, strict=True)]
        message.update({"tool_calls": made} if made else {})
        for call_id, (_, _, result) in zip(ids, calls, strict=True):
            if result is None and message is turns[-1][0]:
                continue
            said, name = (NO_RESULT, None) if result is None else result
            blocks = [
                _MISPLACED if "id" in block else {"type": "text", "text": block["text"]}
                for block in (said if isinstance(said, list) else ())
            ]
            shown = blocks if isinstance(said, list) else said or ""
            named = {} if name is None else {"name": name}
            request.append({"role": "tool", "content": shown, "tool_call_id": call_id} | named)
    return request


def _check_chat(chat: Conversation, model: Model, at: int | None) -> None:
    stream = f"conversation/{chat.id}"
    state: Chat = model.state(stream, at)
    check_window(chat, model, at)
    hits, held = chat.search(QUERY, top_k=10_000), model.held(stream, at)
    check_found(hits, held)
    history = chat.history()
    kept = {(message.id, repr(message.content)) for message in history if not message.erased}
    assert kept == {(line.id, repr(line.content)) for line in held}
    seqs = [message.seq or model.committed + 1 for message in history]
    assert seqs == sorted(seqs)
    single = [chat.message(message.id) for message in history[-2:]]
    assert [message and message.id for message in single] == [message.id for message in history[-2:]]
    assert chat.embed is (state.opened and state.embed)
    assert chat.embed or not hits.pending
    _check_session(chat.session, state)
    entries, pad = {key: value for key, (value, _) in state.entries.items()}, chat.scratchpad
    assert (pad.keys(), pad.items()) == (sorted(entries), sorted(entries.items()))
    assert {key: pad.get(key) for key in entries} == entries
    assert pad.get("never set", "default") == "default"
    assert pad.notes() == [text for _, text in state.notes]
    assert json.loads(pad.to_json()) == pad.to_dict() == {"entries": entries, "notes": pad.notes()}
    assert chat.project == state.project
    shared = {} if state.project is None else model.state(f"project/{state.project}", at).values
    values = {key: state.values[key][0] for key in sorted(state.values)}
    values |= {f"project:{key}": shared[key][0] for key in sorted(shared)}
    assert [(key, repr(value)) for key, value in chat.state.items()] == [(k, repr(v)) for k, v in values.items()]
    assert chat.state.keys() == list(chat.state) == list(values)
    assert chat.state.values() == list(values.values())
    assert all(key in chat.state and chat.state.get(key) == value for key, value in values.items())
    assert (len(chat.state), chat.state.get("never set", "default")) == (len(values), "default")
    seen_at = model.committed if at is None else at
    rows = model.stream_rows(stream, seen_at)
    _check_rows([(*place, chat) for place in chat.events()], model, rows)
    if rows:
        assert [stamp.seq for _, stamp in chat.events(after=rows[0].seq)] == [row.seq for row in rows[1:]]
    assert (chat.version, chat.place) == (len(model.stream_rows(stream, at)), (stream, seen_at))
    if model.batch is None:
        _check_snapshot(chat.snapshot(), state, (stream, model.last_seq(stream, at), None))


def _check_snapshot(snapshot: Snapshot, state: Chat, pointer: tuple[str, int, None]) -> None:
    assert (snapshot.stream, snapshot.seq, snapshot.name) == pointer
    ids = [line.id for line in state.lines]
    assert ([message.id for message in snapshot.messages], snapshot.tokens) == (ids, state.tokens)
    if state.opened:
        content = json.loads(snapshot.to_json())
        assert (len(content["messages"]), content["tokens"]) == (len(ids), state.tokens)


def _check_session(session: SessionMemory, state: Chat) -> None:
    files = [(path, lines) for path, (lines, _) in state.files.items()]
    assert (session.task(), session.findings()) == (state.task[0], [*state.findings])
    assert [(file.path, file.lines) for file in session.files()] == files
    assert (session.calls(), session.extracted_seq()) == (state.calls, state.extracted)
    summary = session.summary()
    assert [(path, lines) for path, lines, _ in summary.files_read] == files
    assert (summary.key_findings, summary.tool_usage) == (tuple(state.findings), state.calls)
    assert all(text in session.to_text() for text in (state.task[0], *state.findings))


# Boards, files and skills.


def _check_board(board: Board, model: Model, both: Both, at: int | None) -> None:
    whose, seen_at = both.whose, model.committed if at is None else at
    shown = both.shown()
    assert board.to_dict() | {"messages_meta": board.get("messages_meta")} == shown
    assert json.loads(board.to_json()) == board.to_dict()
    assert board.get_settings() == shown["config"]
    assert board.bundle()["messages"] == shown["messages"]
    assert Whose(board.session, board.project, board.node) == whose
    _check_rows([(*place, board) for place in board.events()], model, model.stream_rows(whose.stream, seen_at))
    assert (board.version, board.place) == (len(model.stream_rows(whose.stream, at)), (whose.stream, seen_at))
    if model.batch is None or at is not None:
        assert board.at(seen_at).to_dict() == board.to_dict()


def _check_files(files: Files, tree: Tree) -> None:
    texts = {path: text for path, (_, text, _) in sorted(tree.nodes.items()) if text is not None}
    entries = files.list()
    assert [entry.path for entry in entries] == list(texts)
    assert {entry.path: files.read(entry.path) for entry in entries} == texts
    near = [path for path in tree.nodes if path.count("/") <= 3]
    assert len(files.view("/memories").split("\n")) == 2 + len(near)


def _check_library(library: SkillLibrary, shelf: Shelf, committed: int) -> None:
    fields = ("id", "name", "description", "body", "kind", "status")
    assert [[getattr(skill, name) for name in fields] for skill in library.list()] == [
        [getattr(lesson, name) for name in fields] for lesson in shelf.learned.values()
    ]
    for skill, lesson in zip(library.list(), shelf.learned.values(), strict=True):
        assert library.get(skill.id) == library.get(skill.name) == skill
        is_settled = lesson.seq <= committed
        assert not is_settled or (skill.seq, skill.created_ns) == (lesson.seq, lesson.created_ns)
    off = {name for name, (is_on, _) in shelf.switches.items() if not is_on}
    assert library.disabled_names() == off
    assert not any(map(library.is_enabled, off))
    assert library.notes() == {name: note for name, (note, _) in shelf.notes.items()}
    for name, counts in shelf.uses.items():
        usage = library.usage(name)
        assert (usage.count, usage.rated, usage.succeeded) == counts[:3]
    for conversation, (_, query) in shelf.selections.items():
        found = library.last_selection(conversation)
        assert found is not None
        assert found.query == query
    assert library.last_selection("never selected") is None


# Tables, journals and projects.


def _check_table(table: Table, model: Model, now_ns: int, at: int | None) -> None:
    drawer: Drawer = model.state(f"table/{table.name}", at)
    shown = drawer.shown(now_ns)
    assert table.keys() == shown
    assert table.count() == len(shown)
    items = table.scan()
    assert [(item.key, repr(item.value), item.expires_ns) for item in items] == [
        (key, repr(drawer.items[key][0]), drawer.ends.get(key, 0)) for key in shown
    ]
    assert all(item.seq == drawer.items[item.key][1] for item in items if item.seq > 0)
    assert table.scan(reverse=True, limit=2) == items[::-1][:2]
    if all(item.seq > 0 for item in items):
        assert table.scan(newest=True) == sorted(items, key=lambda item: -item.seq)
    assert table.get_many([*shown[::2], "never put"]) == items[::2]
    seqs = {item.key: item.seq for item in items}
    assert table.seqs(["never put", *drawer.items]) == [seqs.get(key, 0) for key in ("never put", *drawer.items)]
    assert table.get("never put", "default") == "default"
    for key in shown:
        assert table.item(key) == next(item for item in items if item.key == key)
        assert table.keys(after=key) == shown[shown.index(key) + 1 :]
        assert table.keys(before=key) == shown[: shown.index(key)]
        if model.batch is None or at is not None:  # What an open batch puts or brings along has no history yet.
            assert drawer.items[key][1] in [item.seq for item in table.history(key)]
    for prefix in ("k", ("k",), ("k", "a")):
        assert table.keys(prefix) == [key for key in shown if begins(key, prefix)]


def _check_journal(journal: Journal, model: Model, now_ns: int, at: int | None) -> None:
    notes = model.state(f"journal/{journal.name}", at).notes
    days, today = sorted({day for _, day, _, _ in notes}), day_of(now_ns)
    first = (date.fromisoformat(today) - timedelta(days=1)).isoformat()
    read = {day: journal.day(day) for day in days} | {"recent": journal.recent(2)}
    told = {day: [note for note in notes if note[1] == day] for day in days}
    told |= {"recent": [note for day in days if first <= day <= today for note in told[day]]}
    for day, found in read.items():
        assert [(note.day, note.text) for note in found] == [note[1:3] for note in told[day]]
        for note, (seq, _, _, time_ns) in zip(found, told[day], strict=True):
            assert seq > model.committed or note.time_ns == time_ns


def _check_project(project: Project, model: Model, now_ns: int, at: int | None) -> None:
    stream = f"project/{project.name}"
    state: Shared = model.state(stream, at)
    is_settled = model.batch is None or at is not None
    fields = (*FACT, *TIMED) if is_settled else FACT
    entries, facts = project.list(), list(state.memories.values())
    assert [[getattr(e, name) for name in fields] for e in entries] == [
        [getattr(f, name) for name in fields] for f in facts
    ]
    assert [tuple(e.keywords) for e in entries] == [f.keywords for f in facts]
    assert not is_settled or [e.seq for e in entries] == [f.body for f in facts]
    assert project.list(category="fact", offset=1, limit=2) == [e for e in entries if e.category == "fact"][1:3]
    assert (project.count(), project.place[0]) == (len(facts), stream)
    assert not is_settled or project.at(project.place[1]).count() == len(facts)
    assert all(project.get(e.id) == e for e in entries)
    assert [found.erased for found in map(project.get, state.gone) if found] == [True] * len(state.gone)
    stats = project.stats()
    assert (stats.memories, stats.episodes) == (len(facts), len(state.episodes))
    rows = model.stream_rows(stream, model.committed if at is None else at)
    _check_rows([(*place, project) for place in project.events()], model, rows)
    for entry in entries[:2]:
        touched = [row.seq for row in rows if entry.id in row.change.ids]
        if touched:
            history = [r.stamp.seq for r in project.history(entry.id) if type(r.event).__name__ != "MemoriesCleared"]
            assert history == touched
    _check_search(project, state, now_ns, has_recency=is_settled)
    found = project.search_episodes("tea", top_k=100, floor=0)
    assert {hit.entry.task for hit in found} == {row[2] for row in state.episodes}


def _check_search(project: Project, state: Shared, now_ns: int, *, has_recency: bool) -> None:
    """Compare the whole ranking of a query with the formula."""
    expected = scores(state, "tea milk", now_ns, has_recency=has_recency)
    ranking = "seed" if has_recency else BASELINES["seed-without-recency"]
    hits = project.search("tea milk", top_k=100, ranking=ranking)
    assert project.search_many(["tea milk"], top_k=100, ranking=ranking) == [hits]
    assert {hit.entry.id for hit in hits} == expected.keys()
    assert all(abs(hit.score - expected[hit.entry.id]) < 3e-6 for hit in hits)
    order = [(-hit.score, -hit.entry.importance) for hit in hits]
    assert order == sorted(order)
