"""Candidates for a context: memories, earlier messages, messages of the window, each chosen by its room; and state."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from refold.agent import parts
from refold.agent.parts import Room
from refold.entry import Entry
from refold.event import unpack_json
from refold.memory.conversation import Conversation
from refold.memory.earlier import Earlier
from refold.memory.options import Core, core_of, day_at
from refold.message import Message, text_of
from refold.views.state import STATE, TEMP

# Memories: the most relevant ones, and those that keep their place.


class Selected(NamedTuple):
    """Memories by relevance, and the ids of those that were shown before, in their order."""

    entries: Sequence[Entry]
    before: Sequence[str]


def placed_in(core: Core, selected: Selected, room: Room) -> tuple[list[Entry], int]:
    """Choose the memories that fit, the most relevant first; those that were shown before keep their order."""
    count, chars, tokens = core.counter.count, room.chars, room.tokens
    note = "(00 less relevant memories left out)\n"
    chars, tokens = chars - len(parts.MEMORIES_HEADING) - 1, tokens - count(parts.MEMORIES_HEADING) - 1
    chosen: dict[str, Entry] = {}
    for entry in selected.entries:
        line = parts.memory_line(entry)
        size, taken = len(line) + 1, count(line) + 1
        if size <= chars and taken <= tokens:
            chosen[entry.id] = entry
            chars, tokens = chars - size, tokens - taken
    left_out = len(selected.entries) - len(chosen)
    while left_out and chosen and (chars < len(note) or tokens < count(note)):
        dropped = parts.memory_line(chosen.popitem()[1])
        chars, tokens, left_out = chars + len(dropped) + 1, tokens + count(dropped) + 1, left_out + 1
    kept = {entry_id: chosen[entry_id] for entry_id in selected.before if entry_id in chosen}
    return list((kept | chosen).values()), left_out


# Earlier messages: those that answer the query.

_MORE_WORDS: Final = 4  # A message with at most so many other words adds nothing to a memory.
_FACT_CHARS: Final = 300  # A longer memory is no single fact.


def earlier_messages(
    core: Core, chat: Conversation, project: str, query: str | None, top_k: int | None
) -> list[Earlier]:
    """Find earlier messages, the most relevant first, without secrets and what the window has already."""
    messages = chat.window()
    if query is None:
        query = next((text_of(message) for message in reversed(messages) if message.role == "user"), "")
    if not top_k or not query.strip():
        return []
    found = core.earlier_messages.search(
        core.engine.reader,
        core.branch,
        core_of(chat)[1],
        chat.place[0],
        project,
        query,
        shown={message.seq for message in messages},
        top_k=top_k,
    )
    if not found:
        return []
    from refold.agent.secrets import secret_in  # noqa: PLC0415 - loaded only where something was found

    lines = {parts.line_of(query)}
    fresh: list[Earlier] = []
    for each in found:
        text = text_of(each.message)
        line = parts.line_of(text)
        if line and line not in lines and secret_in(text) is None:
            lines.add(line)
            fresh.append(each)
    return fresh


def without_pieces(selected: Selected, earlier: Sequence[Earlier]) -> Selected:
    """Leave out memories that are pieces of a shown message: the user's very words, or long.

    Shown twice, they would cost more than other facts that there is room for. What was shown before keeps its place,
    and a preference stays: it is a rule for the model, and a message is not.
    """
    lines = [(each.message.role, parts.line_of(text_of(each.message))) for each in earlier]

    def is_piece(entry: Entry) -> bool:
        if entry.id in selected.before or entry.category == "preference":
            return False
        content = parts.line_of(entry.content)
        is_long = len(content) > _FACT_CHARS
        return any(
            content in line and (is_long or (role == "user" and (line == content or not _adds_little(line, content))))
            for role, line in lines
        )

    return selected._replace(entries=[entry for entry in selected.entries if not is_piece(entry)])


def without_repeats(earlier: Sequence[Earlier], entries: Sequence[Entry], before: Sequence[str]) -> list[Earlier]:
    """Leave out messages that say nothing besides a memory that is shown again, and keeps its place."""
    known = [parts.line_of(entry.content) for entry in entries if entry.id in before]

    def is_repeat(line: str) -> bool:
        return any(line in content or (content in line and _adds_little(line, content)) for content in known)

    return [each for each in earlier if not is_repeat(parts.line_of(text_of(each.message)))]


def _adds_little(line: str, content: str) -> bool:
    """Return whether a message has next to nothing besides what it repeats."""
    return len(line.replace(content, " ").split()) <= _MORE_WORDS


def fitting_messages(core: Core, found: Sequence[Earlier], room: Room) -> tuple[list[Earlier], int]:
    """Choose the messages that fit, the most relevant first; return them with the oldest first."""
    count, chosen = core.counter.count, list[Earlier]()
    heading = parts.MESSAGES_HEADING
    chars, tokens = room.chars - len(heading) - 1, room.tokens - count(heading) - 1
    days = set[str]()
    for each in found:
        day = _day(each.message)
        line = parts.message_line(each.message) + ("" if day in days else f"\n{day}:")
        size, taken = len(line) + 1, count(line) + 1
        if size <= chars and taken <= tokens:
            chosen.append(each)
            days.add(day)
            chars, tokens = chars - size, tokens - taken
    while chosen:
        earlier = sorted(chosen, key=lambda each: (each.message.occurred_ns, each.message.seq, each.place))
        text = earlier_text(earlier, len(found) - len(chosen))
        if len(text) <= room.chars and count(text) <= room.tokens:
            return earlier, len(found) - len(chosen)
        chosen.pop()
    return [], len(found)


def earlier_text(earlier: Sequence[Earlier], left_out: int) -> str:
    """Render earlier messages, and how many did not fit."""
    return parts.messages_text(((_day(each.message), parts.message_line(each.message)) for each in earlier), left_out)


def _day(message: Message) -> str:
    return day_at(message.occurred_ns, "UTC")  # The zone of a memory may be another one when this is built again.


# The messages that fit: whole groups of calls and answers, the oldest left out first.

Group: TypeAlias = list[tuple[Message, int]]  # Messages with their places.


def groups_of(messages: Sequence[Message]) -> Iterator[Group]:
    """Yield the groups of messages that no provider takes apart."""
    makers: dict[str, Group] = {}
    groups: list[Group] = []
    for place, message in enumerate(messages):
        answers = message.event.answers
        group: Group = [] if answers is None else makers.get(answers, [])
        if not group:
            groups.append(group)
        group.append((message, place))
        makers.update(dict.fromkeys(message.event.call_ids, group))
    yield from groups


def needed_of(groups: Sequence[Group]) -> Iterator[tuple[Message, int]]:
    """Yield the messages that are never left out: what is pinned, the user's last words, and what came last."""
    newest = next((group for group in reversed(groups) if group[0][0].role == "user"), None)
    for group in groups:
        if group is groups[-1] or group is newest or any(message.pinned for message, _ in group):
            yield from group


def fitting(messages: Sequence[Message], tokens: int) -> list[Message]:
    """Choose the newest messages that fit, besides those that are never left out."""
    if sum(message.tokens for message in messages) <= tokens:
        return list(messages)
    groups = list(groups_of(messages))
    kept = {place: message for message, place in needed_of(groups)}
    left = tokens - sum(message.tokens for message in kept.values())
    for group in reversed(groups):
        if group[0][1] not in kept:
            left -= sum(message.tokens for message, _ in group)
            if left < 0:
                break
            kept |= {place: message for message, place in group}
    return [kept[place] for place in sorted(kept)]


def state_in(chat: Conversation, stream: str) -> dict[str, Any]:
    """Read the state of a conversation, or of a project, as a chat sees it; none that is temporary."""
    core, at = core_of(chat)
    packed = core.read(stream, lambda state: dict(state.part(STATE).entries.values), at)
    return {key: unpack_json(packed[key]) for key in sorted(packed) if not key.startswith(TEMP)}
