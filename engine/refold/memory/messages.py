"""All messages that a conversation ever held: in order, one by one, and searched by words and by meaning."""

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Any, Final, cast

from refold import checks
from refold.engine import batch as batches
from refold.engine.observer import SEARCH, measure
from refold.engine.scan import EventFilter, Start, starts_of
from refold.engine.streams import name_of, split_key
from refold.engine.transaction import place_of
from refold.errors import LimitExceeded, StoreBusy
from refold.event import Event, ForkDropped, Forked, Recorded, Restored
from refold.fold import State
from refold.index import messages as index
from refold.index.messages import MessageIndex, MessageMatch, MessageView
from refold.limits import REDO_COUNT_MAX
from refold.memory import turns
from refold.memory.core import Core
from refold.memory.earlier import EarlierMessages
from refold.memory.message_indexes import (
    ROLE_NUMBERS,
    MessageIndexes,
    MessageReplacement,
    branch_key,
    replacements_of,
    rows_of,
)
from refold.memory.message_vectors import MessageVectors, model_of, vector_of
from refold.memory.options import Options
from refold.memory.snapshot import is_embedded
from refold.message import ROLES, Message, MessageAppended, MessageReplaced, messages_of, replace_content
from refold.results import Hit, Hits
from refold.views.window import WINDOW, MessagesRecalled, Window, WindowSummarized, summary_message

_TOP_COUNT_MAX: Final = 1_000_000
_PENDING: Final = 2**62
"""Added to the places of an open batch's events, so that they sort after all events that have a seq."""


def search(
    core: Core, stream: str | None, at: int | None, query: object, *, top_k: object, roles: object, explain: object
) -> Hits:
    """Search the messages of a conversation, or of all conversations, including those of an open batch."""
    text = checks.text(query, "query")
    if not text.strip():
        checks.invalid("query is empty; give some words of the messages to find")
    count = checks.integer(top_k, "top_k", 1, _TOP_COUNT_MAX, "the most hits of a search")
    numbers, explains = _check_roles(roles), checks.flag(explain, "explain")
    reader, key = core.engine.reader, branch_key(core.branch) if stream is None else core.key(stream)
    pending, dropped = ([], frozenset[str]()) if at is not None else _pending(core, stream)
    starts = [] if stream in dropped else [(key, at)]
    heirs = [event for event, _ in pending if isinstance(event, (Forked, Restored))]
    fresh = MessageIndex()
    fresh_replacements: list[MessageReplacement] = []
    for recorded in pending:
        fresh.extend(list(rows_of(recorded, _index_seq(recorded.stamp.seq))))
        fresh_replacements += replacements_of(recorded, core.event, _index_seq)
        if stream is not None:
            starts += [(base.key, base.base_seq) for base in starts_of(reader, recorded)]
    embeds = stream is None or core.read_lightly(stream, is_embedded, at)
    model = model_of(core) if embeds else None
    contents = None if stream is None else _contents(core, stream, at)
    with measure(reader.observer, SEARCH):
        for _ in range(REDO_COUNT_MAX):
            written, masks, replacements = core.part(MessageIndexes).looks(core.branch, starts, model, dropped, heirs)
            looks, masks = [*written, fresh.view(None)], [*masks, None]
            hidden = _hidden_rows(contents, at, [*replacements, *fresh_replacements])
            bare_count = sum(look.pending_count for look in written) if embeds else 0
            if bare_count:
                core.part(MessageVectors).schedule(key)
            embedded_count = sum(look.embedded_count for look in written) if embeds else 0
            vector = vector_of(core, text) if embedded_count else None
            matches = index.search(
                looks,
                text,
                numbers,
                count,
                explain=explains,
                vector=vector,
                floor_rate=core.embedding.floor_rate,
                among=_search_masks(looks, masks, hidden),
            )
            messages = _read_matches(core, pending, matches)
            if not any(message.erased for message in messages):
                hits = tuple(
                    Hit(message, match.score, match.parts) for message, match in zip(messages, matches, strict=True)
                )
                bare_count += len(fresh) if embeds and stream is not None else 0
                bare_count += embedded_count if vector is None else 0
                if (observer := reader.observer) is not None:
                    observer.record_search(sum(len(look.seqs) for look in looks), exact=True)
                return Hits(hits, exact=True, query=text, ranking=index.RANKING.name, pending=bare_count)
        raise StoreBusy("the log was erased from faster than its messages could be found; let that end and call again")


def _index_seq(seq: int) -> int:
    """Return a seq as the indexes use it; the seqs of an open batch sort after all others."""
    return seq if seq >= 0 else _PENDING + place_of(seq)


def _contents(core: Core, stream: str, at: int | None) -> dict[str, int]:
    """Return a conversation's replaced messages by id, each with the seq of the event that has its current content."""
    return core.read_lightly(stream, lambda state: state.part(WINDOW).replaced.copy(), at)


def _hidden_rows(
    contents: dict[str, int] | None, at: int | None, replacements: Sequence[MessageReplacement]
) -> list[tuple[int, int]]:
    """Return seq and place of the index rows whose message has different content at a seq.

    In one conversation, ``contents`` says which content is current; across all conversations, it is the last one.
    """
    if contents is not None:
        current = [_index_seq(contents.get(each.id, 0)) for each in replacements]
    else:
        replacements = [each for each in replacements if at is None or each.seq <= at]
        last = {(each.stream, each.id): each.seq for each in replacements}
        current = [last[each.stream, each.id] for each in replacements]
    hidden = list[tuple[int, int]]()
    for each, seq in zip(replacements, current, strict=True):
        if seq != each.seq:
            hidden.append((each.seq, 0))
        if seq > each.origin and (contents is not None or each.is_own):
            hidden.append((each.origin, each.place))
    return hidden


def _search_masks(
    looks: Sequence[MessageView], masks: Sequence[Any], hidden: Sequence[tuple[int, int]]
) -> list[Any] | None:
    """Return the masks of the rows that a search can find, or ``None`` for all rows."""
    if not hidden and all(mask is None for mask in masks):
        return None
    shown = [look.mask_without(hidden) for look in looks]
    return [own if mask is None else own & mask for own, mask in zip(shown, masks, strict=True)]


def _check_roles(roles: object) -> Collection[int] | None:
    if roles is None:
        return None
    given = (roles,) if isinstance(roles, str) else roles
    if not isinstance(given, (list, tuple, set, frozenset)):
        checks.invalid(f"roles must be a list of str, not {type(roles).__name__} ({checks.brief(roles)})")
    unknown = [role for role in cast("Collection[object]", given) if role not in ROLES]
    if unknown:
        checks.invalid(f"roles holds {checks.brief(unknown[0])}; give some of {', '.join(ROLES)}")
    return [number for role, number in ROLE_NUMBERS.items() if role in given]


def _pending(core: Core, stream: str | None) -> tuple[list[Recorded], frozenset[str]]:
    """Return the events that this context's open batch has added, and the names of the conversations that it dropped.

    Of a dropped conversation, only events after the drop are returned. With ``stream``, the batch registers a read of
    that conversation.
    """
    batch = batches.active_batch(core.engine)
    if batch is None:
        return [], frozenset()
    if stream is not None:
        core.read(stream, lambda _: None, None)
    keys = enumerate(batch.transaction.keys)
    own = [place for place, key in keys if split_key(key)[0] == core.branch and stream in (None, name_of(key))]
    pending = list(map(batch.transaction.recorded_event, own))
    dropped = {recorded.stamp.stream: -recorded.stamp.seq for recorded in pending if _is_drop(recorded)}
    return [each for each in pending if -each.stamp.seq > dropped.get(each.stamp.stream, 0)], frozenset(dropped)


def _is_drop(recorded: Recorded) -> bool:
    return isinstance(recorded.event, ForkDropped)


def _read_matches(core: Core, pending: Sequence[Recorded], matches: Sequence[MessageMatch]) -> list[Message]:
    reader = core.engine.reader
    with reader.state_lock:
        written = iter(reader.loader.recorded_events([match.seq for match in matches if match.seq < _PENDING]))
    messages: list[Message] = []
    fresh = {_index_seq(recorded.stamp.seq): recorded for recorded in pending}
    for match in matches:
        recorded = next(written) if match.seq < _PENDING else fresh[match.seq]
        event, stamp = recorded
        if isinstance(event, MessageReplaced):
            came = {each.id: each for each in messages_of(core.event(event.origin))}
            messages.append(replace_content(came[event.id], event, stamp))
            continue
        messages.append(list(messages_of(recorded))[match.place])
        if stamp.seq < 0 and isinstance(event, MessageAppended):
            core.expect_event(messages[-1])
    return messages


# All messages, in order.


def history(core: Core, stream: str, at: int | None, after: object, before: object, limit: object) -> list[Message]:
    """Return the messages of a conversation between two seqs, oldest first; ``limit`` keeps the newest."""
    first = core.check_after(after, at)
    until = None if before is None else checks.count(before, "before") - 1
    count = None if limit is None else checks.count(limit, "limit")
    return list(islice(_newest_first(core, stream, at, first, until), count))[::-1]


def message(core: Core, stream: str, at: int | None, key: str | int) -> Message | None:
    """Return a message of a conversation by its id or seq, or ``None`` if the conversation never had it."""
    live = core.read_lightly(stream, lambda state: state.part(WINDOW).find(key), at)
    if live is not None or key == 0:
        return live
    if isinstance(key, str):
        return next((found for found in _newest_first(core, stream, at, 0, None) if found.id == key), None)
    found = list(_newest_first(core, stream, at, key - 1, key))
    return found[0] if len(found) == 1 else None  # The messages of an imported state all have its seq.


def _newest_first(core: Core, stream: str, at: int | None, after: int, until: int | None) -> Iterator[Message]:
    """Yield the messages with ``after < seq <= until`` of a conversation and of those that it continues."""
    reader = core.engine.reader
    pending, gone = _pending(core, stream) if at is None else ([], frozenset[str]())
    contents = _contents(core, stream, at)
    for recorded in reversed(pending if until is None else ()):
        yield from _event_messages(core, recorded, contents)
    reached: dict[tuple[str, int], int] = {}
    """Key and seq of a drop -> the seq up to which the events after that drop are returned or will be."""
    drops = _DropSeqs(core)
    upcoming: list[tuple[int, str, Recorded, Iterator[Recorded]]] = []

    def add(key: str, events: Iterator[Recorded]) -> None:
        recorded = next(events, None)
        if recorded is not None:
            heappush(upcoming, (-recorded.stamp.seq, key, recorded, events))

    def begin(key: str, end: int) -> None:
        waiting = [(key, end)]
        while waiting:
            key, end = waiting.pop()
            dropped = drops.last(key, end)
            seen = reached.get((key, dropped), dropped)
            if end <= seen:
                continue
            reached[key, dropped] = end
            last = end if until is None else min(end, until)
            # Bases that it continued from after ``last`` count too: a fork includes the messages from before it.
            waiting += [(base.key, base.base_seq) for base in _bases_between(core, key, max(last, seen), end)]
            if last > max(after, seen):
                add(key, reader.events_back(key, max(after, seen), last))

    if stream not in gone:
        begin(core.key(stream), reader.current_head() if at is None else at)
    for recorded in pending:
        for base in starts_of(reader, recorded):
            begin(base.key, base.base_seq)
    while upcoming:
        _, key, recorded, events = heappop(upcoming)
        yield from _event_messages(core, recorded, contents)
        for base in starts_of(reader, recorded):
            begin(base.key, base.base_seq)
        add(key, events)


def _event_messages(core: Core, recorded: Recorded, contents: dict[str, int]) -> Iterator[Message]:
    """Yield the messages that an event added, newest first, each with its current content."""
    found = [] if isinstance(recorded.event, MessageReplaced) else list(messages_of(recorded))
    for each in reversed(found):
        seq = contents.get(each.id, 0)
        if _index_seq(seq) <= _index_seq(each.stamp.seq):
            yield each
        else:
            event, stamp = core.event(seq)
            assert isinstance(event, MessageReplaced), f"seq {seq} replaced a message"
            yield replace_content(each, event, stamp)


def _bases_between(core: Core, key: str, after: int, until: int) -> list[Start]:
    """Return the states that a conversation continued from, by events with ``after < seq <= until``."""
    if after >= until:
        return []
    branch, stream = split_key(key)
    events = core.with_branch(branch).events(EventFilter((), (Forked, Restored)), stream, after=after, until=until)
    return [base for recorded in events for base in starts_of(core.engine.reader, recorded)]


class _DropSeqs:
    """The seqs at which conversations were dropped, read once per conversation."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._seqs: dict[str, list[int]] = {}

    def last(self, key: str, until: int) -> int:
        """Return the seq of a conversation's last drop up to ``until``, or 0; it no longer has messages from before."""
        if key not in self._seqs:
            branch, stream = split_key(key)
            events = self._core.with_branch(branch).events(EventFilter((), (ForkDropped,)), stream)
            self._seqs[key] = [stamp.seq for _, stamp in events]
        return max((seq for seq in self._seqs[key] if seq <= until), default=0)


# Recalls and summaries.


def recall_hits(core: Core, stream: str, noted: Recorded) -> Hits:
    """Return the hits of a recall's event; a message that was erased since then has no content."""
    event, stamp = noted
    assert isinstance(event, MessagesRecalled), event
    found = [message(core, stream, stamp.seq if stamp.seq > 0 else None, message_id) for message_id in event.ids]
    scores = event.scores or (0.0,) * len(found)
    hits = tuple(Hit(each, score, {}) for each, score in zip(found, scores, strict=True) if each is not None)
    return Hits(hits, exact=True, query=event.query, ranking=index.RANKING.name)


def summarize(
    chat: Any, core: Core, summarizer: object, options: Options, write: Callable[..., Recorded | None]
) -> Message | None:
    """Record a summary of the messages that have left a conversation's window since the last summary."""
    if not callable(summarizer):
        checks.invalid(f"summarizer must be a function, not {type(summarizer).__name__} ({checks.brief(summarizer)})")
    if chat.eviction != "summary":
        checks.invalid(f"{chat.id} evicts by {chat.eviction!r}; summaries are of conversations with eviction='summary'")
    stream, request = chat.place[0], ("summarize",)
    known = None if options.request_id is None else core.find_answer(options.request_id, stream, request)
    if known is not None:
        noted = write(_decide_nothing, request)
        return None if noted is None else _summary(noted)
    before: Window = core.read(stream, lambda state: state.part(WINDOW).copy(), None)
    live = {each.id: each for each in before.live()}
    # Only what is older than the first unpinned message of the window: a summary covers all up to one seq.
    first = next((each.id for each in live.values() if before.owners.get(each.id, each.id) not in before.pinned), None)
    since = takewhile(lambda each: each.id != first, history(core, stream, None, before.summarized, None, None))
    left = [each for each in since if each.id not in live]
    told = _without_hidden(core, stream, left)
    if not told:
        return None
    previous = live.get(before.summary)
    last = None if previous is None else previous.content  # It has none if it was erased.
    text = checks.text(summarizer(last if isinstance(last, str) else "", told), "the summary")
    tokens, cited = checks.tokens(core.counter.count(text)), core.sources(options.sources)
    if previous is not None:
        cited = tuple(dict.fromkeys((*cited, previous.seq)))  # Erasing the last summary reaches the one made of it.
    event = WindowSummarized(cited, core.engine.reader.new_id(), tokens, left[-1].seq, text)
    gone = {message.id for message in left}

    def decide(state: State) -> Event | None:
        window = state.part(WINDOW)
        # An erasure knows what a summary is made of by what had left the window before it.
        if window.summarized != before.summarized or any(message.id in gone for message in window.live()):
            return None
        old = window.find(window.summary) if window.summary else None
        pinned = window.pinned_tokens + tokens - (old.tokens if old is not None and old.pinned else 0)
        if pinned > window.window_tokens:
            raise LimitExceeded(
                f"with a summary of {tokens} tokens, pinned messages would hold {pinned}, over this window's "
                f"{window.window_tokens}; let it be shorter, or raise set_window_tokens"
            )
        return event

    noted = write(decide, request)
    return None if noted is None else _summary(noted)


def _without_hidden(core: Core, stream: str, left: Sequence[Message]) -> list[Message]:
    """Leave out messages that are not to be remembered, with what answers them, and those that were retracted."""
    asked = None  # The question of the turn that the first message goes on with, which the last summary reached.
    if left and not turns.is_question(left[0]):
        before = _newest_first(core, stream, None, 0, left[0].seq - 1)
        asked = next((each for each in before if turns.is_question(each)), None)
    kept = turns.without_withheld(left if asked is None else [asked, *left])
    kept = [message for message in kept if message is not asked]
    return core.part(EarlierMessages).without_retracted(core.branch, None, kept)


def _decide_nothing(_: State) -> None:
    """Decide to append nothing: the request was answered before."""


def _summary(noted: Recorded) -> Message:
    event, stamp = noted
    assert isinstance(event, WindowSummarized), event
    return summary_message(event, stamp)
