"""The built-in tools of every memory, in the order shown to models, and the file-like memory tool."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Final

from refold import checks
from refold.agent.candidates import learned_ns
from refold.agent.tools import FunctionTool, ToolContext, ToolFailed, ToolRefused, ToolRegistry
from refold.entry import said_by
from refold.errors import InvalidInput, LimitExceeded, NotFound
from refold.fold import State
from refold.limits import (
    EXTRACTED_CHARS_MAX,
    MEMORIES_CHARS_DEFAULT,
    NOTES_CHARS_DEFAULT,
    PROFILE_CHARS_DEFAULT,
    SCRATCHPAD_CHARS_DEFAULT,
)
from refold.memory.blocks import TextPart, ToolUse, parts_of
from refold.memory.conversation import Conversation
from refold.memory.core import core_of
from refold.memory.files import Files
from refold.memory.handles import Profile, today_of
from refold.memory.memory import Memory
from refold.memory.options import day_at, days_before
from refold.message import Message
from refold.results import Hit, Hits
from refold.text import countable_texts
from refold.views.board import PARTS
from refold.views.profile import JOURNAL, Note
from refold.views.scratchpad import SCRATCH
from refold.views.window import WINDOW

# `memory_write` and `memory_read`: a model's access to the scratchpad of a conversation.
#
# The order of checks, the texts and the shapes of results match what models and their prompts already know.

# The fields that each action requires.
_KEY_CHARS_MAX: Final = 200
_ECHO_CHARS: Final = 200  # Of a value in the reply to the call that wrote it: the model has it already.
_ACTIONS: Final = {"set": ("key", "value"), "note": ("value",), "delete": ("key",), "clear": ()}


def _write_scratchpad(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    action = _text_argument(arguments, "action")
    if action is None:
        checks.invalid("missing required field: action")
    chat = _conversation(context)
    if action not in _ACTIONS:
        checks.invalid(f"unknown action: '{checks.brief(action)[1:-1]}'. Valid actions: {', '.join(_ACTIONS)}")
    for field in _ACTIONS[action]:
        if _text_argument(arguments, field) is None:
            given = arguments.get(field)
            need = "" if given is None else f" as a string, not {checks.brief(given)}"
            checks.invalid(f"{action} requires '{field}'{need}")
        if action != "delete":
            _check_length(arguments[field], field, _KEY_CHARS_MAX if field == "key" else SCRATCHPAD_CHARS_DEFAULT)
    key, value, sources = arguments.get("key", ""), arguments.get("value", ""), context.sources(opens=False)
    result: dict[str, Any] = {"status": "ok", "action": action}
    match action:
        case "set":
            chat.scratchpad.set(key, value, sources=sources)
            result |= {"key": key, "value": _cut(value, _ECHO_CHARS)}
        case "note":
            chat.scratchpad.note(value, sources=sources)
        case "delete":
            result |= {"key": key, "existed": chat.scratchpad.delete(key, sources=sources)}
        case _:
            chat.scratchpad.clear(sources=sources)
    return result


def _read_scratchpad(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    chat = _conversation(context)
    key = _text_argument(arguments, "key")

    def entry_seqs(state: State) -> list[int]:
        scratch = state.part(SCRATCH)
        if key is not None:
            return [scratch.entries.seqs[key]] if key in scratch.entries.seqs else []
        return [*scratch.entries.seqs.values(), *(seq for seq, _ in scratch.notes)]

    core, at = core_of(chat)
    context.cite(core.read(chat.place[0], entry_seqs, at))
    if key is None:
        read = chat.scratchpad.to_dict()
        entries = {each: _cut(value, EXTRACTED_CHARS_MAX) for each, value in read["entries"].items()}
        return read | {"entries": entries, "notes": [_cut(note, EXTRACTED_CHARS_MAX) for note in read["notes"]]}
    value = chat.scratchpad.get(key) if key else None
    if value is None:
        return {"key": key, "value": None, "message": "not found"}
    return {"key": key, "value": _cut(value, SCRATCHPAD_CHARS_DEFAULT)}


def _cut(text: str, chars: int) -> str:
    """Return a text, or its beginning and how much was cut."""
    return text if len(text) <= chars else f"{text[:chars]}... ({len(text) - chars:,} more characters)"


def _read_board(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    chat, part = _conversation(context), arguments.get("part")
    board = context.memory.board(session=chat.id)
    board = board if core_of(chat)[1] is None else board.at(chat.place[1])
    context.cite(board.seqs_shown(part))
    return board.to_dict() if part is None else {part: board.get(part)}


def _conversation(context: ToolContext) -> Conversation:
    if context.conversation is None:
        raise ToolFailed("missing conversation context")
    return context.conversation


_CONTENT_CHARS: Final = 2_000  # Per message found: a longer one would crowd out the others.


def _search_conversation(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    chat, top_k = _conversation(context), arguments.get("top_k")
    hits = _find_said(chat, arguments["query"], _HITS_COUNT_DEFAULT if top_k is None else top_k)
    core, at = core_of(chat)
    contents = core.read(chat.place[0], lambda state: state.part(WINDOW).replaced.copy(), at)
    replaced = [contents[hit.entry.id] for hit in hits if hit.entry.id in contents]
    context.cite([*(hit.entry for hit in hits), *replaced])
    live = {message.id for message in chat.window()}
    rows: list[dict[str, Any]] = []
    for hit in hits:
        message: Message = hit.entry
        text = "\n".join(countable_texts(message.content, message.tool_calls))
        content = text if len(text) <= _CONTENT_CHARS else f"{text[: _CONTENT_CHARS - 3]}..."
        row = {"seq": message.seq, "role": message.role, "content": content, "in_window": message.id in live}
        rows.append(row if message.name is None else row | {"name": message.name})
    return {"messages": rows}


def _find_said(chat: Conversation, query: str, top_k: int) -> list[Hit]:
    """Search a conversation, leaving out earlier searches: their calls have its words best and say nothing."""
    count = 2 * top_k
    while True:
        hits = chat.search(query, top_k=count)
        said = [hit for hit in hits if not _is_of_search(hit.entry)][:top_k]
        if len(said) == top_k or len(hits) < count:
            return said
        count *= 4


def _is_of_search(message: Message) -> bool:
    """Return whether a message only calls tools that search, or is the result of a search of the conversation."""
    if message.role == "tool":
        return message.name == "conversation_search"
    values = [part.value for part in parts_of(message)]
    values = [value for value in values if not isinstance(value, TextPart) or value.text.strip()]
    return bool(values) and all(isinstance(value, ToolUse) and value.name in _SEARCHES for value in values)


_SEARCHES: Final = ("conversation_search", "memory_search")


def _text_argument(arguments: dict[str, Any], field: str) -> str | None:
    value = arguments.get(field)
    return value if isinstance(value, str) else None


# The profile, a project's memories, and the journal.

_HITS_COUNT_DEFAULT: Final = 10
_SCORE_DIGITS: Final = 4
_NOTES_DAYS: Final = 7  # The days before the last one whose notes are read by default.
_CHANGEABLE: Final = ("content", "category", "importance", "keywords")


def _set_fact(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    profile, value = context.memory.profile(context.profile_name), arguments["value"]
    _check_length(value, "value", PROFILE_CHARS_DEFAULT)
    key = _fact_key(profile, _content(arguments, "key", _KEY_CHARS_MAX))
    profile.set(key, value, sources=context.sources())
    return {"status": "ok", "key": key, "value": _cut(value, _ECHO_CHARS)}


def _fact_key(profile: Profile, key: str) -> str:
    """Return the key of the profile that differs at most in case and spaces, if there is one: a model writes either."""
    keys, plain = [existing for existing, _ in profile.items()], _plain_key(key)
    alike = (existing for existing in keys if _plain_key(existing) == plain)
    return key if key in keys else next(alike, key.strip())


def _plain_key(key: str) -> str:
    return " ".join(key.split()).casefold()


def _delete_fact(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    profile = context.memory.profile(context.profile_name)
    key = _fact_key(profile, arguments["key"])
    return {"status": "ok", "key": key, "existed": profile.delete(key, sources=context.sources())}


def _add_memory(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    importance = arguments.get("importance")
    entry = context.project.add(
        _content(arguments, "content", EXTRACTED_CHARS_MAX),
        category=arguments.get("category") or "fact",
        keywords=arguments.get("keywords"),
        importance=0.5 if importance is None else importance,
        metadata=said_by(context.user_name),
        source=None if context.conversation is None else context.conversation.id,
        sources=context.sources(opens=False),
    )
    return {"status": "ok", "id": entry.id, "message": "Memory saved successfully"}


def _search_memories(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    core, at = core_of(context.project)
    if at is not None or not core.engine.reader.is_writable:
        return look_up(arguments, context)
    return _rows(context, context.project.recall(**_search_options(arguments), conversation=context.conversation))


def look_up(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """Search the project's memories without recording the search, for a memory that can only be read."""
    return _rows(context, context.project.search(**_search_options(arguments)))


def _search_options(arguments: dict[str, Any]) -> dict[str, Any]:
    category, top_k = arguments.get("category"), arguments.get("top_k")
    return {
        "query": arguments["query"],
        "top_k": _HITS_COUNT_DEFAULT if top_k is None else top_k,
        "categories": None if category is None else [category],
    }


def _rows(context: ToolContext, hits: Hits) -> dict[str, Any]:
    contents = fitting_texts(hit.entry.content for hit in hits)
    shown, left_out = list(hits)[: len(contents)], len(hits) - len(contents)
    context.cite([hit.entry for hit in shown])
    core, _ = core_of(context.project)
    rows = [
        {
            "id": hit.entry.id,
            "category": hit.entry.category,
            "content": content,
            **({} if hit.entry.speaker in (None, context.user_name) else said_by(hit.entry.speaker) or {}),
            "learned": day_at(learned_ns(core, hit.entry) or core.engine.reader.now_ns(), core.timezone),
            "importance": round(hit.entry.importance, _SCORE_DIGITS),
            "score": round(hit.score, _SCORE_DIGITS),
        }
        for hit, content in zip(shown, contents, strict=True)
    ]
    return {"memories": rows} | ({"left_out": left_out} if left_out else {})


def fitting_texts(texts: Iterable[str]) -> list[str]:
    """Return as many of the first texts as a model is shown of a search, each of them cut if it is long."""
    cut = [_cut(text, EXTRACTED_CHARS_MAX) for text in texts]
    return cut[: bisect_right(list(accumulate(map(len, cut))), MEMORIES_CHARS_DEFAULT)]


def _update_memory(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    fields = {field: arguments[field] for field in _CHANGEABLE if arguments.get(field) is not None}
    if not fields:
        checks.invalid(f"nothing to change; give one of {', '.join(_CHANGEABLE)}")
    if "content" in fields:
        _content(arguments, "content", EXTRACTED_CHARS_MAX)
    memory_id = _memory_id(arguments, context)
    context.project.update(memory_id, **fields, sources=context.sources())
    return {"status": "ok", "id": memory_id}


def _forget_memory(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    memory_id = _memory_id(arguments, context)
    context.project.delete(memory_id, sources=context.sources(opens=False))
    return {"status": "ok", "id": memory_id}


def _append_note(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    text = _content(arguments, "text", NOTES_CHARS_DEFAULT)
    note = context.memory.journal(context.journal_name).append(text, sources=context.sources())
    return {"status": "ok", "day": note.day}


def _read_notes(arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    core, at = core_of(context.memory)
    last = arguments.get("last")
    last = today_of(core, at) if last is None else checks.day(last, "last")
    first = arguments.get("first")
    first = days_before(last, _NOTES_DAYS) if first is None else checks.day(first, "first")
    if first > last:
        checks.invalid(f"first is {first}, after last, {last}; give the earlier day as first")

    def query(state: State) -> list[tuple[int, Note]]:
        days = state.part(JOURNAL).days
        return [row for day in sorted(days, reverse=True) if first <= day <= last for row in reversed(days[day])]

    # The newest come first here, because the oldest are left out where there are too many.
    notes = core.read(f"journal/{context.journal_name}", query, at)
    ends = accumulate(len(note.text) for _, note in notes)
    count = max(bisect_right(list(ends), NOTES_CHARS_DEFAULT), 1)
    shown, left_out = notes[:count][::-1], len(notes[count:])
    context.cite([seq for seq, _ in shown])
    rows = [{"day": note.day, "text": note.text} for _, note in shown]
    return {"first": first, "last": last, "notes": rows} | ({"left_out": left_out} if left_out else {})


def _content(arguments: dict[str, Any], field: str, chars_max: int | None = None) -> str:
    value: str = arguments[field]
    if not value.strip():
        checks.invalid(f"{field} must not be empty")
    if chars_max is not None:
        _check_length(value, field, chars_max)
    return value


def _check_length(value: str, field: str, chars_max: int) -> None:
    if len(value) > chars_max:
        checks.invalid(f"{field} is {len(value):,} characters, over {chars_max:,}; give what matters of it, concisely")


def _memory_id(arguments: dict[str, Any], context: ToolContext) -> str:
    memory_id: str = arguments["id"]
    entry = context.project.get(memory_id) if memory_id else None
    if entry is None:
        raise NotFound(f"Memory not found: {checks.brief(memory_id)[1:-1]}")
    if context.user_name is not None and entry.speaker not in (None, context.user_name):
        checks.invalid(
            f"{checks.brief(entry.speaker)} said this, who is not the user; add what the user says with memory_add"
        )
    return memory_id


READS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
ADDS: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
_CHANGES: Final = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True, "openWorldHint": False}


_OPEN_NAMES: Final = ("memory_write", "memory_read")
"""The tools that take any arguments."""


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _tool(
    name: str,
    function: Callable[[dict[str, Any], ToolContext], Any],
    hints: dict[str, bool],
    required: str,
    description: str,
    **properties: dict[str, Any],
) -> FunctionTool:
    schema: dict[str, Any] = {"type": "object", "properties": properties} | (
        {"required": required.split()} if required else {}
    )
    # A dropped argument, such as the name of another project, would mislead the model about what was done.
    schema |= {} if name in _OPEN_NAMES else {"additionalProperties": False}
    return FunctionTool(name, description, schema, function, annotations=hints)


_CATEGORY: Final = {
    "type": "string",
    "enum": ["preference", "convention", "pattern", "correction", "fact"],
    "description": "What kind of memory it is",
}
_IMPORTANCE: Final = {"type": "number", "minimum": 0, "maximum": 1, "description": "How much it matters, from 0 to 1"}
_KEYWORDS: Final = {"type": "array", "items": {"type": "string"}, "description": "Words to find it by"}
_ABOUT: Final[dict[str, dict[str, Any]]] = {"category": _CATEGORY, "importance": _IMPORTANCE, "keywords": _KEYWORDS}

# They check their own arguments: the order of the checks and their texts are a contract, and so are the schemas.
SCRATCHPAD_TOOLS: Final = (
    _tool(
        "memory_write",
        _write_scratchpad,
        _CHANGES | {"idempotentHint": False},  # Adding the same note twice makes two notes.
        "action",
        "Write to your working memory for this conversation: set a key, add a note, delete a key, or clear everything.",
        action={"type": "string", "enum": ["set", "note", "delete", "clear"], "description": "The action to perform"},
        key=_text("Key name (required for set and delete)"),
        value=_text("Value to store (required for set and note)"),
    ),
    _tool(
        "memory_read",
        _read_scratchpad,
        READS,
        "",
        "Read your working memory for this conversation: one key, or everything that is stored.",
        key=_text("Key to look up (omit to return all stored data)"),
    ),
)

TOOLS: Final = (
    _tool(
        "memory_set",
        _set_fact,
        _CHANGES,
        "key value",
        "Remember a permanent fact or preference under a key, in every conversation from now on.",
        key=_text("Key name, such as user_name"),
        value=_text("Value to remember"),
    ),
    _tool(
        "memory_delete", _delete_fact, _CHANGES, "key", "Remove a permanent fact or preference.", key=_text("Key name")
    ),
    _tool(
        "memory_add",
        _add_memory,
        ADDS | {"idempotentHint": True},
        "content",
        "Remember something about this project for future sessions.",
        content=_text("One concise statement"),
        **_ABOUT,
    ),
    _tool(
        "memory_search",
        _search_memories,
        ADDS,
        "query",
        "Search what is remembered about this project.",
        query=_text("What to look for"),
        top_k={"type": "integer", "minimum": 1, "maximum": 50, "description": "How many results (default 10)"},
        category=_CATEGORY,
    ),
    _tool(
        "conversation_search",
        _search_conversation,
        READS,
        "query",
        "Find what was said earlier in this conversation, also what is no longer shown to you. Messages are found "
        "by the words they have, and by what they mean where the conversation is searched by meaning.",
        query=_text("What to find, best in the words that the messages have"),
        top_k={"type": "integer", "minimum": 1, "maximum": 50, "description": "How many results (default 10)"},
    ),
    _tool(
        "memory_update",
        _update_memory,
        _CHANGES,
        "id",
        "Change a memory of this project that memory_search or memory_add returned.",
        id=_text("Id of the memory"),
        content=_text("New statement"),
        **_ABOUT,
    ),
    _tool(
        "memory_forget",
        _forget_memory,
        _CHANGES,
        "id",
        "Forget a memory of this project.",
        id=_text("Id of the memory"),
    ),
    _tool(
        "working_memory_read",
        _read_board,
        READS,
        "",
        "Read the board of this session, which the host keeps: its project, node, contexts, history and messages.",
        part={"type": "string", "enum": list(PARTS), "description": "Part to read (omit for the whole board)"},
    ),
    _tool(
        "journal_append",
        _append_note,
        ADDS,
        "text",
        "Append a line to today's notes: what happened, what was decided.",
        text=_text("The note"),
    ),
    _tool(
        "journal_read",
        _read_notes,
        READS,
        "",
        "Read the notes of earlier days, oldest first; without days, those of today and the seven days before.",
        first=_text("First day, as YYYY-MM-DD (default: seven days before the last)"),
        last=_text("Last day, as YYYY-MM-DD (default: today)"),
    ),
)

# The tools that change nothing but the memory, so a session that runs again can call them.
BUILT_IN_NAMES: Final = frozenset(tool.name for tool in (*SCRATCHPAD_TOOLS, *TOOLS))


def tools_of(memory: Memory) -> ToolRegistry:
    """Return a registry with the built-in tools."""
    registry = ToolRegistry(memory)
    for tool in SCRATCHPAD_TOOLS:
        registry.register(tool, checked=False)
    for tool in TOOLS:
        registry.register(tool)
    return registry


# The file-like memory tool: `memory`, with the commands and wording of Anthropic's `memory_20250818`.

# The verb of each command, its required fields and its optional fields.
_COMMANDS: Final[dict[str, tuple[Callable[..., str], tuple[str, ...], tuple[str, ...]]]] = {
    "view": (Files.view, ("path",), ("view_range",)),
    "create": (Files.create, ("path", "file_text"), ()),
    "str_replace": (Files.str_replace, ("path", "old_str", "new_str"), ()),
    "insert": (Files.insert, ("path", "insert_line", "insert_text"), ()),
    "delete": (Files.delete, ("path",), ()),
    "rename": (Files.rename, ("old_path", "new_path"), ()),
}

_DESCRIPTION: Final = (
    "Keep files that outlive this conversation, in the directory /memories. View /memories before you begin, to see "
    "what you have noted earlier; write down what you will want to know next time."
)


_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "enum": list(_COMMANDS),
            "description": "What to do: each command takes the fields that name it",
        },
        "path": _text("view, create, str_replace, insert, delete: the path, beginning with /memories"),
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "view: the first and the last line of a file to show, -1 for its end",
        },
        "file_text": _text("create: the whole text of the new file"),
        "old_str": _text("str_replace: the text to replace, which must occur in the file exactly once"),
        "new_str": _text("str_replace: what comes in its place"),
        "insert_line": {
            "type": "integer",
            "description": "insert: the line behind which to insert, 0 for the beginning",
        },
        "insert_text": _text("insert: the text to insert"),
        "old_path": _text("rename: the path to move"),
        "new_path": _text("rename: where to, a path where nothing is yet"),
    },
    "required": ["command"],
}


def _run_command(arguments: dict[str, Any], context: ToolContext) -> str:
    verb, required, optional = _COMMANDS[arguments["command"]]
    fields = {field: arguments[field] for field in (*required, *optional) if arguments.get(field) is not None}
    for field in required:
        if field not in fields:
            checks.invalid(f"{arguments['command']} requires '{field}'")
    if verb is not Files.view:
        fields["sources"] = context.sources()
    files = context.memory.files(context.files_name)
    try:
        text = verb(files, **fields)
    except (InvalidInput, LimitExceeded, NotFound) as error:
        raise ToolRefused(str(error)) from error
    if verb in {Files.view, Files.str_replace}:
        context.cite(files.seqs_shown(fields["path"]))
    return text


_FILES_TOOL: Final = FunctionTool(
    "memory",
    _DESCRIPTION,
    _SCHEMA,
    _run_command,
    annotations=_CHANGES | {"idempotentHint": False},
    anthropic_type="memory_20250818",
)


def files_tool() -> FunctionTool:
    """Return the `memory` tool, to register next to the built-in tools: `memory.tools.register(files_tool())`.

    It stores files under `/memories` in the log, those of `memory.files()` unless the context names others. Anthropic
    models know the tool by its type; other models get a schema. A refused command has the outcome `invalid_input` and a
    message in the wording that Anthropic models were trained on.
    """
    return _FILES_TOOL
