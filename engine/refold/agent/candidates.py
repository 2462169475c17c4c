"""Candidates for a context (memories, earlier messages, window messages), the choice of those that fit, and state."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain, groupby, islice, zip_longest
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from refold.agent import parts
from refold.agent.parts import Room
from refold.entry import Entry, MemoryUnmerged, VectorRenewed
from refold.event import unpack_json
from refold.limits import EARLIER_EVENTS_COUNT, EPISODES_RECENT_COUNT
from refold.memory.conversation import Conversation
from refold.memory.core import Core, core_of
from refold.memory.earlier import (
    Earlier,
    EarlierMessages,
    EarlierQuery,
    meaning_of,
)
from refold.memory.options import day_at
from refold.memory.questioner import questions_of
from refold.memory.turns import fit_messages, is_question, shown_seqs
from refold.message import Message, MessageAppended, text_of
from refold.text import is_unspaced
from refold.views.episodes import EPISODES, Episode
from refold.views.state import STATE, TEMP

# Memories: the most relevant ones, and those that keep their place, each with the day from which on it holds.


OTHER_FACTS_COUNT: Final = 40  # Facts that share no word with the query; for how it was chosen, see the benchmarks.


class MemoryCandidates(NamedTuple):
    """Memories by relevance, the ids of those in the previous context, in its order, and how many were left out."""

    entries: Sequence[Entry]
    previous_ids: Sequence[str]
    left_out: int = 0


def bound_others(entries: Sequence[Entry], kept: AbstractSet[str], count: int) -> list[Entry]:
    """Return all entries but facts, facts with the ``kept`` ids, and the first ``count`` others."""
    others = [entry.id for entry in entries if entry.category == "fact" and entry.id not in kept]
    left_out = set(others[max(count, 0) :])
    return [entry for entry in entries if entry.id not in left_out]


def dated_memories(
    core: Core, entries: Sequence[Entry], timezone: str, asker: str | None = None
) -> list[tuple[str, str]]:
    """Render memories as pairs of day and line."""
    return [(_day_of(learned_ns(core, entry), timezone), parts.memory_line(entry, asker)) for entry in entries]


def _day_of(time_ns: int, timezone: str) -> str:
    return parts.day_text(day_at(time_ns, timezone))


def learned_ns(core: Core, entry: Entry) -> int:
    """Return when the content of a memory was learned or happened, 0 for content written in an open batch.

    Other changes of the memory do not count.
    """
    if entry.updated_ns == entry.created_ns:
        return entry.occurred_ns or 0
    event, stamp = core.event(entry.vector_seq or entry.body_seq)  # Content that changes gets another vector.
    while isinstance(event, VectorRenewed):
        event, stamp = core.event(event.prior or entry.body_seq)
    # A memory that came back from a merge is as it was before.
    return entry.updated_ns or 0 if isinstance(event, MemoryUnmerged) else stamp.occurred_ns


# Earlier messages that answer the query.

_MORE_WORDS: Final = 4  # A message with at most this many other words adds nothing to a memory.
_FACT_CHARS: Final = 300  # A longer memory is not a single fact.


def earlier_messages(
    core: Core,
    chat: Conversation,
    messages: Sequence[Message],
    project: str,
    query: str | None,
    top_k: int | None,
    asker: str | None = None,
    kept_tokens: int | None = None,
) -> tuple[list[Earlier], int]:
    """Find earlier messages, most relevant first, without those of ``messages`` that the context keeps.

    Return also how many more of what users said there are.
    """
    questions = questions_of(query, messages)
    if not top_k or not questions[-1].text.strip():
        return [], 0
    lines = {parts.line_of(question.text) for question in questions}
    fresh: list[Earlier] = []
    searched = [
        core.part(EarlierMessages).search(
            EarlierQuery(
                core.branch,
                core_of(chat)[1],
                chat.place[0],
                project,
                question.text,
                meaning=meaning_of(core, question.text) if chat.embed else None,
                shown=shown_seqs(messages, kept_tokens),
                top_k=top_k,
                asker=asker,
                opens=question.opens,
            )
        )
        for question in questions
    ]
    for earlier in chain.from_iterable(zip_longest(*(found for found, _ in searched))):
        line = "" if earlier is None else parts.line_of(text_of(earlier.message))
        if earlier is not None and line and line not in lines:
            lines.add(line)
            fresh.append(earlier)
    most = max(top_k, *(len(found) for found, _ in searched))  # A search can bring all that users said.
    unfit = searched[0][1] - {(each.message.seq, each.place) for each in fresh}
    return fresh[:most], len(unfit) + len(fresh[most:])


def without_repeats(earlier: Sequence[Earlier], entries: Sequence[Entry], previous_ids: Sequence[str]) -> list[Earlier]:
    """Leave out messages that add nothing to a preference, or to a memory that is shown again and keeps its place."""
    contents = [
        parts.line_of(entry.content) for entry in entries if entry.id in previous_ids or entry.category == "preference"
    ]

    def is_repeat(line: str) -> bool:
        return any(line in content or (content in line and _adds_little(line, content)) for content in contents)

    return [each for each in earlier if not is_repeat(parts.line_of(text_of(each.message)))]


def _adds_little(line: str, content: str) -> bool:
    """Return whether a message contains next to nothing beyond the text it repeats."""
    return len(line.replace(content, " ").split()) <= _MORE_WORDS


def dated_messages(
    earlier: Sequence[Earlier], marks: Sequence[parts.LineMark], timezone: str, asker: str | None = None
) -> list[tuple[str, str]]:
    """Render messages, each with its mark, as pairs of day and line."""
    dated = list[tuple[str, str]]()
    for (message, *_), mark in zip(earlier, marks, strict=True):
        line = parts.message_line(message, asker, is_end=parts.LineMark.END in mark)
        dated.append((_day_of(message.occurred_ns, timezone), parts.mark_line(line, mark)))
    return dated


def marks_of(earlier: Sequence[Earlier], timezone: str) -> list[parts.LineMark]:
    """Return the marks of the lines of messages, given as they are shown, without which they could be misread.

    What a model said must not read as an answer to what a user said in another conversation, and a question whose
    answer is not shown must not read as open.
    """
    shown_openings = {each.opening for each in earlier if each.message.role == "assistant"}
    marks = list[parts.LineMark]()
    day, above = "", None  # The last message of a user on this day, below which there was no gap.
    for each in earlier:
        mark = parts.LineMark(0)
        own_day = day_at(each.message.occurred_ns, timezone)
        if own_day != day:
            day, above = own_day, None
        if each.message.role == "user":
            above = each.message.seq, each.place
            if each.is_answered and above not in shown_openings:
                mark |= parts.LineMark.ANSWERED
        elif above not in (None, each.opening):
            above, mark = None, parts.LineMark.GAP
        marks.append(mark | parts.LineMark.END if each.is_end else mark)
    return marks


# The memories and earlier messages that fit, chosen from one list by value per token.

# The chance that a candidate answers the query falls with its rank, independent of the scale of an embedder's scores,
# and faster for messages. For how the powers were chosen, see benchmarks/README.md.
RANK_POWERS: Final = {parts.MEMORIES: 1.1, parts.MESSAGES: 1.5}
_ROUNDS_COUNT: Final = 2  # Lines take fewer tokens together than one by one; the second round fills the difference.
_SPARE_TOKENS: Final = 2  # Roughly how many more tokens the last line takes when counted alone.
_UNBOUNDED: Final = 2**40
# The text of a part besides its lines: a heading, and usually a note about the number left out.
_FRAMES: Final = {
    part: f"{heading}\n(000 less relevant {part} left out)" for part, heading in parts.RANKED_HEADINGS.items()
}


class _Candidate(NamedTuple):
    """A memory or an earlier message as shown, with its rank and the key that sorts the lines of its part.

    `day` is shown above it, once for all lines of the day. A message also has the ranks of the memories that are pieces
    of it.
    """

    part: str
    rank: int
    order: tuple[int, ...]
    item: Any
    text: str
    tokens: int
    day: str
    day_tokens: int
    pieces: AbstractSet[int] = frozenset()

    @property
    def value(self) -> float:
        """The value of the line per token; most memories share their day with others."""
        tokens = self.tokens if self.part == parts.MEMORIES else self.tokens + self.day_tokens
        return 1 / math.pow(self.rank + 1, RANK_POWERS[self.part]) / tokens


_Taken: TypeAlias = dict[tuple[str, int], _Candidate]  # Keyed by part and rank, the latest last.


class Chosen(NamedTuple):
    """The memories and earlier messages that fit, in the order in which they are shown, and how many did not fit."""

    memories: list[Entry]
    memories_left_out: int
    messages: list[Earlier]
    messages_left_out: int
    pieces: tuple[str, ...]
    """The ids of the memories that are left out because a message says them."""


class Choice:
    """The candidates of a context: memories and earlier messages, each most relevant first.

    A memory that is a piece of a shown message is left out if it is the user's own words or is long: showing it twice
    would cost more than other facts that would fit instead. Previously shown memories keep their place, others follow,
    oldest first. Preferences stay, because a preference is a rule for the model and a message is not. Messages stand
    oldest first, but what a model said stands below the message of the user that it answers.
    """

    def __init__(
        self,
        core: Core,
        candidates: MemoryCandidates,
        earlier: Sequence[Earlier],
        chars: Mapping[str, int],
        timezone: str,
        asker: str | None = None,
        *,
        left_out: int = 0,
    ) -> None:
        """Take the candidates; ``left_out`` messages are none of them, and count as left out, too."""
        self._count = core.counter.count
        self._left_out = {parts.MEMORIES: candidates.left_out, parts.MESSAGES: left_out}
        self._chars = chars
        self._timezone = timezone
        memories, messages = list[_Candidate](), list[_Candidate]()
        places = {entry_id: place for place, entry_id in enumerate(candidates.previous_ids)}
        contents = list[tuple[int, str]]()  # Ranks and contents of the memories that may be left out as pieces.
        for rank, entry in enumerate(candidates.entries):
            learned = learned_ns(core, entry)
            order: tuple[int, ...] = (places.get(entry.id, len(places)), learned, entry.body_seq)
            line = self._candidate(parts.MEMORIES, rank, order, entry, parts.memory_line(entry, asker), learned)
            memories.append(line)
            if earlier and entry.id not in places and entry.category != "preference":
                contents.append((rank, parts.line_of(entry.content)))
        orders = _orders_of(earlier)
        for rank, each in enumerate(earlier):
            message, order = each.message, orders[each.message.seq, each.place]
            text = parts.message_line(message, asker, is_end=each.is_end)
            line = self._candidate(parts.MESSAGES, rank, order, each, text, message.occurred_ns)
            pieces = frozenset(() if each.is_end else _find_pieces(message, contents))
            messages.append(line._replace(pieces=pieces))
        self._lines = {parts.MEMORIES: memories, parts.MESSAGES: messages}
        self._best = sorted([*memories, *messages], key=lambda line: -line.value)
        self.counts: Final = {part: len(lines) for part, lines in self._lines.items()}

    def _candidate(
        self, part: str, rank: int, order: tuple[int, ...], item: Any, text: str, time_ns: int
    ) -> _Candidate:
        day = _day_of(time_ns, self._timezone)
        return _Candidate(part, rank, order, item, text, self._count(text) + 1, day, self._count(f"{day}:") + 1)

    def count_tokens(self, part: str, count: int) -> int:
        """Count the tokens of the `count` most relevant entries of a part, within its character limit."""
        taken: _Taken = {}
        self._fill(taken, self._lines[part][:count], _UNBOUNDED)
        return self._count(self._text(part, taken)) + _SPARE_TOKENS if taken else 0

    def choose(self, tokens: int) -> Chosen:
        """Choose the memories and messages that fit."""
        taken: _Taken = {}
        self._fill(taken, self._best, _UNBOUNDED)
        if not self._fits(taken, tokens):
            taken.clear()
            for _ in range(_ROUNDS_COUNT):
                self._fill(taken, self._best, tokens)
            while taken and not self._fits(taken, tokens):
                taken.popitem()
            self._drop_bare_answers(taken)
        memories, memories_left_out = self._sort_lines(parts.MEMORIES, taken)
        messages, messages_left_out = self._sort_lines(parts.MESSAGES, taken)
        return Chosen(
            [line.item for line in memories],
            memories_left_out,
            [line.item for line in messages],
            messages_left_out,
            tuple(self._lines[parts.MEMORIES][rank].item.id for rank in sorted(_pieces_in(taken))),
        )

    def _drop_bare_answers(self, taken: _Taken) -> None:
        """Leave out short answers of users whose question does not fit."""
        lines = self._lines[parts.MESSAGES]
        unfit = {(line.item.message.seq, line.item.place) for line in lines if (line.part, line.rank) not in taken}
        for key, line in list(taken.items()):
            if line.part == parts.MESSAGES and line.item.message.role == "user" and line.item.opening in unfit:
                del taken[key]

    def _fill(self, taken: _Taken, lines: Sequence[_Candidate], tokens: int) -> None:
        """Take more lines while they fit."""
        texts = {part: self._text(part, taken) or _FRAMES[part] for part in {line.part for line in lines}}
        tokens -= sum(map(self._count, texts.values()))
        chars = {part: self._chars[part] - len(text) for part, text in texts.items()}
        days, pieces = {(line.part, line.day) for line in taken.values()}, _pieces_in(taken)
        for line in lines:
            if (line.part, line.rank) in taken or (line.part == parts.MEMORIES and line.rank in pieces):
                continue
            size, cost = len(line.text) + 1, line.tokens
            if (line.part, line.day) not in days:
                size, cost = size + len(line.day) + 2, cost + line.day_tokens
            if size > chars[line.part] or cost > tokens:
                continue
            taken[line.part, line.rank] = line
            days.add((line.part, line.day))
            chars[line.part] -= size
            tokens -= cost
            pieces |= line.pieces
            for rank in line.pieces:
                if piece := taken.pop((parts.MEMORIES, rank), None):
                    chars[piece.part] += len(piece.text) + 1
                    tokens += piece.tokens

    def _sort_lines(self, part: str, taken: _Taken) -> tuple[list[_Candidate], int]:
        """Return the lines of a part in display order, and the number left out."""
        lines = sorted((line for line in taken.values() if line.part == part), key=lambda line: line.order)
        hidden = len(_pieces_in(taken)) if part == parts.MEMORIES else 0
        return lines, self.counts[part] + self._left_out[part] - len(lines) - hidden

    def _text(self, part: str, taken: _Taken) -> str:
        lines, left_out = self._sort_lines(part, taken)
        marks = marks_of([line.item for line in lines], self._timezone) if part == parts.MESSAGES else ()
        texts = [parts.mark_line(line.text, mark) for line, mark in zip(lines, marks, strict=False)]
        texts += [line.text for line in lines[len(texts) :]]
        days = (line.day for line in lines)
        return parts.ranked_part(part, zip(days, texts, strict=True), left_out).text

    def _fits(self, taken: _Taken, tokens: int) -> bool:
        texts = {part: self._text(part, taken) for part in self._lines}
        is_short = all(len(text) <= self._chars[part] for part, text in texts.items())
        return is_short and sum(self._count(text) for text in texts.values() if text) <= tokens


def _orders_of(earlier: Sequence[Earlier]) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return the keys that sort messages by time, but each below what it answers.

    So it stands in front of what was said in other conversations meanwhile.
    """
    own = {(each.message.seq, each.place): each for each in earlier}
    roots = dict[tuple[int, int], tuple[Earlier, int]]()  # The first of those that answer each other, and the steps.
    for key, each in own.items():
        passed, opening = [key], each.opening
        while opening in own and passed[-1] not in roots:
            passed.append(opening)
            opening = own[opening].opening
        root, steps = roots.get(passed[-1], (own[passed[-1]], 0))
        roots |= {place: (root, steps + count) for count, place in enumerate(reversed(passed))}
    orders = dict[tuple[int, int], tuple[int, ...]]()
    for key, each in own.items():
        root, steps = roots[key]
        orders[key] = (*_order_of(root), steps, *_order_of(each))
    return orders


def _order_of(earlier: Earlier) -> tuple[int, ...]:
    return earlier.message.occurred_ns, earlier.message.seq, earlier.place


def _find_pieces(message: Message, contents: Sequence[tuple[int, str]]) -> Iterator[int]:
    """Yield the ranks of the memories, given with their contents, that are pieces of a message."""
    line = parts.line_of(text_of(message))
    for rank, content in contents:
        if content in line:
            is_whole = message.role == "user" and (line == content or not _adds_little(line, content))
            if is_whole or len(content) > _FACT_CHARS:
                yield rank


def _pieces_in(taken: _Taken) -> set[int]:
    return set[int]().union(*(line.pieces for line in taken.values()))


# What leaves a context that is too long, in turn.

_FEW_MEMORIES_COUNT: Final = 10  # Memories beyond this number are dropped before any skill.
_FEWEST_MEMORIES_COUNT: Final = 5
_TRIMMED_SKILL_SCORE_MIN: Final = 1.0


class Trim(NamedTuple):
    """The numbers of skills and of memories that a context can keep."""

    skills: int
    memories: int


def trims(scores: list[float], memories: int) -> list[Trim]:
    """List the reductions to try in turn, until everything fits."""
    best = 1 if scores and scores[0] >= _TRIMMED_SKILL_SCORE_MIN else 0
    few, fewest = min(memories, _FEW_MEMORIES_COUNT), min(memories, _FEWEST_MEMORIES_COUNT)
    steps = Trim(len(scores), memories), Trim(len(scores), few), Trim(best, few), Trim(best, fewest)
    return list(dict.fromkeys(steps))


# Earlier sessions that resemble the query.

EPISODES_CHARS: Final = 1_200
_SHARED_MIN: Final = 2.0  # A session resembles a query if it shares at least this many words with it
_SHARED_PART: Final = 3  # and at least one third of the query's words.
_EPISODES_SHARE: Final = 24  # Sessions take at most 1/24 of a budget: most of it is for answers.
_QUOTED_CHARS: Final = 100  # An outcome has at least so many of the messages that it quotes.
_PAIR: Final = 2  # Characters of a term in a script without spaces.
_PAIR_WEIGHT: Final = 0.5  # Two pairs count as one word.
# In addition to the words of everyday talk. Messages keep both: a month can be all that a question is about.
_EVERYDAY: Final = frozenset(("about", "may"))
# Hiragana, and characters of the commonest Chinese and Japanese words of grammar: pairs of them say nothing.
_GRAMMAR: Final = re.compile(
    "[\u3041-\u309f\u6211\u4f60\u60a8\u4ed6\u5979\u5b83\u4eec\u5011\u7684\u662f\u4ec0\u751a\u4e48\u9ebc\u65f6\u6642\u5019"
    "\u5417\u55ce\u5462\u4e86\u5728\u6709\u548c\u5c31\u90fd\u4e5f\u4e0d\u8fd9\u9019\u90a3\u4e2a\u500b\u54ea\u591a\u5c11\u600e"
    "\u6837\u6a23\u5f88\u8981\u4f1a\u6703\u53ef\u4ee5\u80fd\u8bf7\u8acb\u95ee\u554f\u4e3a\u70ba\u4f55\u8ab0]{2}"
)


def similar_episodes(
    core: Core,
    chat: Conversation,
    messages: Sequence[Message],
    project: str,
    query: str,
    count: int,
    tokens: int,
    asker: str | None = None,
) -> list[int]:
    """Choose up to `count` recent sessions that share words with a query, and return their seqs.

    A question about the user or about earlier sessions brings the newest ones, if the user has a name without those of
    others. A session is left out if what it began or ended with was retracted, or if it was dropped or taken back and
    no fork goes on from it.
    """
    terms, brings_newest = _subject_terms((query,)), bool(questions_of(query, messages)[0].criteria.about)
    weight = sum(map(_weigh_term, terms))
    if not count or (weight < _SHARED_MIN and not brings_newest):
        return []

    def recent_episodes(state: Any) -> list[tuple[int, Episode]]:
        return list(islice(reversed(state.part(EPISODES).by_seq.items()), EPISODES_RECENT_COUNT))

    at = core_of(chat)[1]
    scored: list[tuple[float, int, Episode]] = []
    for seq, episode in core.read(f"project/{project}", recent_episodes, at):
        shared = 0.0 if brings_newest else sum(map(_weigh_term, terms & _subject_terms(episode.keywords)))
        is_like = brings_newest or (shared >= _SHARED_MIN and shared * _SHARED_PART >= weight)
        if is_like and episode.session != chat.id:
            scored.append((shared, seq, episode))
    scored.sort(key=itemgetter(0, 1), reverse=True)
    current = (row for row in scored if not _is_taken_back(core, chat, row[1], row[2]))
    chosen = dict[int, Episode]()
    if brings_newest and asker is not None:
        current = (row for row in current if not other_speakers(core, {row[1]: row[2]}, asker))
    for _, seq, episode in islice(current, count):
        listing = parts.episodes_listing(dated_episodes([*chosen.values(), episode], core.timezone))
        text = parts.render_listing(listing, Room(EPISODES_CHARS, EPISODES_CHARS), len).text
        if core.counter.count(text) * _EPISODES_SHARE <= tokens:
            chosen[seq] = episode
    return sorted(chosen)


def other_speakers(core: Core, episodes: Mapping[int, Episode], asker: str | None) -> dict[int | None, str]:
    """Return the names of the users who began sessions, by the seqs of their episodes, without the one who asks."""
    named: dict[int | None, str] = {}
    for seq in episodes:
        task = next(iter(core.event(seq)[0].sources), 0)
        event = core.event(task)[0] if task else None
        if isinstance(event, MessageAppended) and event.name is not None and event.name != asker:
            named[seq] = event.name
    return named


def dated_episodes(episodes: Iterable[Episode], timezone: str) -> list[tuple[str, Episode]]:
    """Return sessions with the days on which they ended."""
    return [(_day_of(episode.occurred_ns or 0, timezone), episode) for episode in episodes]


def _weigh_term(term: str) -> float:
    return _PAIR_WEIGHT if is_unspaced(term) else 1.0


@lru_cache(4 * EPISODES_RECENT_COUNT)
def _subject_terms(texts: tuple[str, ...]) -> frozenset[str]:
    """Return the terms that say what texts are about: stems, or pairs of characters without spaces between words."""
    from refold.index.terms import strip_contractions, subject_of, terms_of  # noqa: PLC0415 - imported on first use

    terms = terms_of(subject_of(strip_contractions(" ".join(texts))), "porter")[0]
    return frozenset(term for term in terms if term not in _EVERYDAY and not _is_grammar(term))


def _is_grammar(term: str) -> bool:
    return is_unspaced(term) and (len(term) < _PAIR or _GRAMMAR.fullmatch(term) is not None)


def _is_taken_back(core: Core, chat: Conversation, seq: int, episode: Episode) -> bool:
    """Return whether a session is no longer the past of any, or what it began or ended with was retracted.

    A session that is too old for that to be known counts as well.
    """
    at, sources = core_of(chat)[1], core.event(seq)[0].sources
    if sources and sources[0] <= (core.engine.reader.current_head() if at is None else at) - EARLIER_EVENTS_COUNT:
        return True
    messages, home = core.part(EarlierMessages), f"conversation/{episode.session}"
    last = max(sources, default=seq)
    if episode.session is not None and not messages.past_seqs(core.branch, at, chat.place[0], home, [last]):
        return True
    outcome, retracted = parts.one_line(episode.outcome), messages.find_retracted(core.branch, at, sources)
    begins = [parts.one_line(text_of(message))[:_QUOTED_CHARS] for message in retracted if message.seq != sources[0]]
    return len(begins) < len(retracted) or any(begin and begin in outcome for begin in begins)


def new_episodes(
    episodes: Mapping[int, Episode], entries: Sequence[Entry], earlier: Sequence[Earlier]
) -> tuple[int, ...]:
    """Return the seqs of sessions, without successful ones that repeat a memory or an earlier message in a context."""
    texts = [*(entry.content for entry in entries), *(text_of(each.message) for each in earlier)] if episodes else []
    lines = [_subject_terms((text,)) for text in texts]

    def is_known(text: str) -> bool:
        terms = _subject_terms((text,))
        return not terms or any(terms <= line for line in lines)

    return tuple(
        seq
        for seq, episode in episodes.items()
        if episode.kind != "success" or not (is_known(episode.task) and is_known(episode.outcome))
    )


# The messages that fit, with their days.


class DayMark(Struct, frozen=True):
    """The day of a message of the user, by its id, as shown in front of the user's words, and its tokens."""

    message: str
    text: str
    tokens: int


def day_marks(messages: Iterable[Message], today: str, timezone: str, count: parts.Count) -> tuple[DayMark, ...]:
    """Mark the user's first message of each day, if any is of another day than today.

    Only the user's messages are marked: a model would write like a message of its own. While all are of today, the
    date of today says it; once that changes, so do all bytes after it.
    """
    said = [(message, day_at(message.occurred_ns, timezone)) for message in messages if _is_said(message)]
    if all(day == today for _, day in said):
        return ()
    firsts = (next(group) for _, group in groupby(said, itemgetter(1)))
    texts = ((message.id, f"[{parts.day_text(day)}]") for message, day in firsts)
    return tuple(DayMark(message_id, text, count(text) + 1) for message_id, text in texts)


def _is_said(message: Message) -> bool:
    return is_question(message) and (isinstance(message.content, list) or bool(text_of(message).strip()))


def tokens_of(items: Iterable[Message | DayMark]) -> int:
    """Sum the tokens of messages and marks."""
    return sum(item.tokens for item in items)


def fit_window(
    messages: Sequence[Message], tokens: int, days_of: Callable[[Sequence[Message]], tuple[DayMark, ...]]
) -> tuple[list[Message], tuple[DayMark, ...]]:
    """Choose the newest messages that fit with their days, or without any if only that fits."""
    window = fit_messages(messages, tokens)
    days = days_of(window)
    while (excess := tokens_of([*window, *days]) - tokens) > 0:
        # Step by step, because the days of the messages that leave make room, too.
        shorter = fit_messages(messages, tokens_of(window) - max(excess // 4, 1))
        if len(shorter) == len(window):
            return window, ()
        window, days = shorter, days_of(shorter)
    return window, days


def state_in(chat: Conversation, stream: str) -> dict[str, Any]:
    """Return the state of a conversation or of a project as a chat sees it, without temporary state."""
    core, at = core_of(chat)
    packed = core.read(stream, lambda state: dict(state.part(STATE).entries.values), at)
    return {key: unpack_json(packed[key]) for key in sorted(packed) if not key.startswith(TEMP)}
