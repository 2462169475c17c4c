"""Candidates for a context: memories, earlier messages, messages of the window, each chosen by its room; and state."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from refold.agent import parts
from refold.agent.parts import Room
from refold.entry import Entry
from refold.event import unpack_json
from refold.limits import EPISODES_RECENT_COUNT
from refold.memory.conversation import Conversation
from refold.memory.earlier import Earlier
from refold.memory.options import Core, core_of, day_at
from refold.message import Message, text_of
from refold.text import keywords
from refold.views.episodes import EPISODES, Episode
from refold.views.state import STATE, TEMP

# Memories: the most relevant ones, and those that keep their place.


class Selected(NamedTuple):
    """Memories by relevance, and the ids of those that were shown before, in their order."""

    entries: Sequence[Entry]
    before: Sequence[str]


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


def without_repeats(earlier: Sequence[Earlier], entries: Sequence[Entry], before: Sequence[str]) -> list[Earlier]:
    """Leave out messages that say nothing besides a memory that is shown again, and keeps its place."""
    known = [parts.line_of(entry.content) for entry in entries if entry.id in before]

    def is_repeat(line: str) -> bool:
        return any(line in content or (content in line and _adds_little(line, content)) for content in known)

    return [each for each in earlier if not is_repeat(parts.line_of(text_of(each.message)))]


def _adds_little(line: str, content: str) -> bool:
    """Return whether a message has next to nothing besides what it repeats."""
    return len(line.replace(content, " ").split()) <= _MORE_WORDS


def earlier_text(earlier: Sequence[Earlier], left_out: int) -> str:
    """Render earlier messages, and how many did not fit."""
    return parts.messages_text(((_day(each.message), parts.message_line(each.message)) for each in earlier), left_out)


def _day(message: Message) -> str:
    return day_at(message.occurred_ns, "UTC")  # The zone of a memory may be another one when this is built again.


# Memories and earlier messages that fit, out of one list: those that are worth the most for their tokens.

# How likely one answers falls with its rank, in both lists alike, whatever the scores of an embedder mean. How that was
# chosen: benchmarks/README.md.
_RANK_POWER: Final = 1.5


class Chosen(NamedTuple):
    """Memories and earlier messages, the latter with the oldest first, and how many of each did not fit."""

    memories: Sequence[Entry]
    memories_left_out: int
    messages: Sequence[Earlier]
    messages_left_out: int

    @property
    def texts(self) -> dict[str, str]:
        """Both as the texts of their parts."""
        return {
            parts.MEMORIES: parts.memories_text(self.memories, self.memories_left_out),
            parts.MESSAGES: earlier_text(self.messages, self.messages_left_out),
        }


class _Candidate(NamedTuple):
    """A memory or an earlier message, its rank in its part, its room, and that of each title that stands above it."""

    part: str
    rank: int
    item: Any
    room: Room
    titles: Mapping[str, Room]
    value: float


class Choice:
    """The candidates of a context: memories and earlier messages, each with the most relevant first.

    Memories that are pieces of a shown message are left out: the user's very words, or long. Shown twice, they would
    cost more than other facts that there is room for. What was shown before keeps its place, and a preference stays: it
    is a rule for the model, and a message is not.
    """

    def __init__(self, core: Core, selected: Selected, found: Sequence[Earlier], chars: Mapping[str, int]) -> None:
        self.counts: Final = {parts.MEMORIES: len(selected.entries), parts.MESSAGES: len(found)}
        self._count = core.counter.count
        self._chars = chars
        self._before = selected.before
        self._contents = [
            (rank, parts.line_of(entry.content))
            for rank, entry in enumerate(selected.entries)
            if entry.id not in selected.before and entry.category != "preference"
        ]
        self._pieces: dict[int, set[int]] = {}  # By the ranks of messages and of memories.
        headings = {name: self._room(text) for name, text in _HEADINGS.items()}
        memories = [
            self._candidate(parts.MEMORIES, rank, entry, parts.memory_line(entry), headings)
            for rank, entry in enumerate(selected.entries)
        ]
        messages = [
            self._candidate(parts.MESSAGES, rank, each, parts.message_line(each.message), headings, _day(each.message))
            for rank, each in enumerate(found)
        ]
        self._candidates = sorted(memories + messages, key=lambda candidate: -candidate.value)

    def _candidate(
        self, part: str, rank: int, item: Any, line: str, headings: Mapping[str, Room], day: str = ""
    ) -> _Candidate:
        room, days = self._room(line), {day: self._room(f"{day}:")} if day else {}
        tokens = room.tokens + sum(above.tokens for above in days.values())
        return _Candidate(part, rank, item, room, {part: headings[part]} | days, (rank + 1) ** -_RANK_POWER / tokens)

    def _room(self, line: str) -> Room:
        return Room(len(line) + 1, self._count(line) + 1)

    def chosen(self, tokens: int, counts: Mapping[str, int] | None = None) -> Chosen:
        """Choose what fits in a number of tokens, of each part among so many of the most relevant ones."""
        counts = self.counts if counts is None else counts
        candidates = [each for each in self._candidates if each.rank < counts[each.part]]
        taken: list[_Candidate] = []
        shown, count = self._shown(taken, candidates), -1
        # Together lines take less than was counted for each, so there is room for more behind them.
        while len(taken) > count and (shown.memories_left_out or shown.messages_left_out):
            count = len(taken)
            self._fill(taken, shown, candidates, tokens)
            shown = self._shown(taken, candidates)
            while taken and not self._fits(shown, tokens):
                taken.pop()
                shown = self._shown(taken, candidates)
        return shown

    def _fill(self, taken: list[_Candidate], shown: Chosen, candidates: Sequence[_Candidate], tokens: int) -> None:
        """Take more of what is not taken, the most valuable first."""
        texts = shown.texts
        tokens -= self._tokens(texts)
        chars = {part: self._chars[part] - len(text) for part, text in texts.items()}
        known = {(each.part, each.rank) for each in taken}
        titles = {title for each in taken for title in each.titles}
        pieces = self._pieces_of(taken)
        for each in candidates:
            if (each.part, each.rank) in known or (each.part == parts.MEMORIES and each.rank in pieces):
                continue
            rooms = [each.room, *(room for title, room in each.titles.items() if title not in titles)]
            size, cost = sum(room.chars for room in rooms), sum(room.tokens for room in rooms)
            if size > chars[each.part] or cost > tokens:
                continue
            taken.append(each)
            titles.update(each.titles)
            chars[each.part] -= size
            tokens -= cost
            if each.part == parts.MESSAGES:
                pieces |= self._pieces_of([each])
                for piece in [other for other in taken if other.part == parts.MEMORIES and other.rank in pieces]:
                    taken.remove(piece)
                    chars[parts.MEMORIES] += piece.room.chars
                    tokens += piece.room.tokens

    def _pieces_of(self, taken: Sequence[_Candidate]) -> set[int]:
        """Return the ranks of the memories that are pieces of the messages among what was taken."""
        pieces = set[int]()
        for each in taken:
            if each.part == parts.MESSAGES:
                if each.rank not in self._pieces:
                    self._pieces[each.rank] = set(self._found_in(each.item.message))
                pieces |= self._pieces[each.rank]
        return pieces

    def _found_in(self, message: Message) -> Iterator[int]:
        line = parts.line_of(text_of(message))
        for rank, content in self._contents:
            if content in line:
                is_whole = message.role == "user" and (line == content or not _adds_little(line, content))
                if is_whole or len(content) > _FACT_CHARS:
                    yield rank

    def _shown(self, taken: Sequence[_Candidate], candidates: Sequence[_Candidate]) -> Chosen:
        pieces = self._pieces_of(taken)
        shown = {part: sorted((each for each in taken if each.part == part), key=_rank) for part in self.counts}
        memories: dict[str, Entry] = {each.item.id: each.item for each in shown[parts.MEMORIES]}
        kept = {entry_id: memories[entry_id] for entry_id in self._before if entry_id in memories}
        messages: list[Earlier] = [each.item for each in shown[parts.MESSAGES]]
        messages.sort(key=lambda each: (each.message.occurred_ns, each.message.seq, each.place))
        left_out = {part: sum(each.part == part for each in candidates) - len(shown[part]) for part in self.counts}
        hidden = sum(each.part == parts.MEMORIES and each.rank in pieces for each in candidates)
        return Chosen(
            list((kept | memories).values()),
            left_out[parts.MEMORIES] - hidden,
            messages,
            left_out[parts.MESSAGES],
        )

    def _fits(self, chosen: Chosen, tokens: int) -> bool:
        texts = chosen.texts
        return self._tokens(texts) <= tokens and all(len(text) <= self._chars[part] for part, text in texts.items())

    def _tokens(self, texts: Mapping[str, str]) -> int:
        return sum(self._count(text) for text in texts.values() if text)


_HEADINGS: Final = {parts.MEMORIES: parts.MEMORIES_HEADING, parts.MESSAGES: parts.MESSAGES_HEADING}


def _rank(candidate: _Candidate) -> int:
    return candidate.rank


# Earlier sessions that are like the query.

EPISODES_CHARS: Final = 1_200
_SHARED_COUNT_MIN: Final = 2  # A session is like a query that shares so many words with it,
_SHARED_PART: Final = 3  # and so large a part of the query's.
_EPISODES_SHARE: Final = 24  # Sessions take at most this share of a budget: most of it is for what answers.


def like_episodes(core: Core, chat: Conversation, project: str, query: str, count: int, tokens: int) -> list[int]:
    """Choose the seqs of earlier sessions that share words with a query, of those that were recorded last."""
    wanted = frozenset(keywords(query))
    if len(wanted) < _SHARED_COUNT_MIN or not count:
        return []

    def recent(state: Any) -> list[Episode]:
        return list(islice(reversed(state.part(EPISODES).by_seq.values()), EPISODES_RECENT_COUNT))

    scored: list[tuple[int, int, Episode]] = []
    for episode in core.read(f"project/{project}", recent, core_of(chat)[1]):
        shared = len(wanted.intersection(episode.keywords))
        is_like = shared >= _SHARED_COUNT_MIN and shared * _SHARED_PART >= len(wanted)
        if is_like and episode.session != chat.id and episode.seq is not None:
            scored.append((shared, episode.seq, episode))
    scored.sort(key=itemgetter(0, 1), reverse=True)
    chosen = dict[int, Episode]()
    for _, seq, episode in scored[:count]:
        listing = parts.episodes_listing([*chosen.values(), episode])
        text = parts.rendered(listing, Room(EPISODES_CHARS, EPISODES_CHARS), len).text
        if core.counter.count(text) * _EPISODES_SHARE <= tokens:
            chosen[seq] = episode
    return sorted(chosen)


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
