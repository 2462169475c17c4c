"""The indexes of messages: of conversations, of whole branches and of chosen events, filled when they are searched.

The next search continues from there, so an append costs nothing.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from refold.engine import vectors
from refold.engine.packed import page_of, terms_key
from refold.engine.reader import Reader
from refold.engine.scan import Start, starts_of
from refold.engine.streams import key_of, split_key
from refold.engine.transaction import erased_count
from refold.engine.vectors import VectorModel
from refold.errors import StoreBusy, StoreCorrupt
from refold.event import ConversationOpened, ForkDropped, Forked, Recorded, Restored
from refold.index.messages import KnownMessages, MessageIndex, MessageRow, MessageTerms, MessageView
from refold.limits import (
    KNOWN_EVENTS_COUNT,
    KNOWN_ROWS_COUNT,
    MESSAGES_BYTES_MAX,
    PAGE_EVENTS,
    REDO_COUNT_MAX,
)
from refold.log.protocol import Row
from refold.memory.lineage import Lineage, by_stream
from refold.memory.snapshot import is_embedded
from refold.message import ROLES, Message, MessageReplaced, messages_of
from refold.text import countable_texts
from refold.threads import enter_once, forkable_lock
from refold.views.session import EmbeddingChanged

if TYPE_CHECKING:
    from refold.memory.core import Core

T = TypeVar("T")

ROLE_NUMBERS: Final[Mapping[str, int]] = {role: number for number, role in enumerate(ROLES)}
"""The numbers of roles in an index."""

_EMBEDDING: Final = frozenset((ConversationOpened, EmbeddingChanged, ForkDropped, Forked, Restored))
"""The events that can start or stop the embedding of a conversation's messages."""


class MessageReplacement(NamedTuple):
    """A message whose content was replaced: the seq and stream of that event, its id, and where it first came."""

    seq: int
    stream: str
    id: str
    origin: int
    place: int
    is_own: bool
    """Whether the message first came in the same stream."""


class SearchRows(NamedTuple):
    """The rows that a search looks at, with masks of those that were not dropped, and the messages replaced among them.

    A mask is ``None`` for all rows.
    """

    views: list[MessageView]
    masks: list[NDArray[np.bool_] | None]
    replacements: list[MessageReplacement]


class _IndexState:
    """An index, the seq up to which it is filled, and the states that its conversation continued from."""

    def __init__(self, lineage: Lineage | None = None) -> None:
        self.index = MessageIndex()
        self.seq = 0
        self.bases: list[Start] = []
        self.replacements: list[MessageReplacement] = []
        self.drops: list[int] = []
        """The seqs at which the conversation was dropped."""
        self.lineage = lineage
        """The forks, restores and drops of all conversations, if this is the index of a branch."""
        self.embedded: set[str] | None = None if lineage is None else set()
        """The conversations whose messages are embedded, if this is the index of a branch."""
        self.model: VectorModel | None = None
        self.looked_count = 0
        """The number of rows for which the store was asked for a vector by the model."""

    @property
    def streams(self) -> list[int] | None:
        """The numbers of the conversations whose messages are embedded, ``None`` for all of them."""
        if self.embedded is None:
            return None
        return [number for stream, number in self.index.numbers.items() if stream in self.embedded]

    def look(self, until: int | None) -> MessageView:
        look, streams = self.index.view(until), self.streams
        return look if self.model is None or streams is None else look.limit_vectors(streams)

    def begin(self, until: int | None) -> int:
        """Return the seq of the conversation's last drop up to ``until``, or 0; earlier rows no longer belong to it."""
        if self.lineage is not None:
            return 0  # In the index of a branch, each conversation has its own.
        return max((seq for seq in self.drops if until is None or seq <= until), default=0)

    def mask(
        self,
        look: MessageView,
        begin: int,
        until: int | None,
        gone: Collection[str],
        heirs: Collection[Forked | Restored],
    ) -> NDArray[np.bool_] | None:
        """Return the mask of the rows that belong to a conversation after its last drop, ``None`` for all rows.

        What was forked from a dropped conversation keeps what that one had. Those in ``gone`` count as dropped, and
        ``heirs`` as events. In the index of one conversation, ``begin`` is the seq of its last drop.
        """
        lineage, end = self.lineage, self.seq if until is None else until
        if lineage is None:
            return look.seqs > begin if begin else None
        dropped = {stream for stream in lineage.streams if lineage.last_drop(stream, end)} | set(gone)
        if not dropped:
            return None
        streams = [stream for stream in lineage.streams if stream not in gone]
        history = by_stream(lineage.history(streams, end, heirs))
        mask = np.ones(len(look.seqs), np.bool_)
        for number, spans in ((self.index.numbers.get(each, -1), history.get(each, ())) for each in dropped):
            among = np.zeros(len(look.seqs), np.bool_)
            for span in spans:
                among |= (look.seqs > span.after) & (look.seqs <= span.until)
            mask &= (look.streams != number) | among
        return mask

    def load(self, reader: Reader, model: VectorModel) -> None:
        """Load the stored vectors of the rows that were not looked up yet."""
        if self.model != model:
            self.index.begin_vectors(model.dimensions)
            self.model, self.looked_count = model, 0
        count = len(self.index)
        if self.looked_count < count:
            keys = list(self.index.keys(slice(self.looked_count, count)))
            is_dense = self.embedded is not None
            self.index.add_vectors(vectors.load_vectors(reader.log, model, keys, is_dense=is_dense))
            self.looked_count = count


class _KnownTerms:
    """The messages whose terms are in the store: those of whole pages of the log that a process has read."""

    def __init__(self) -> None:
        self._missing: set[int] = set()
        """The pages that the store lacks."""

    def of(self, reader: Reader) -> Callable[[MessageRow], MessageTerms | None]:
        """Return a function that looks up messages, which must come in the order of the log."""
        reader.more_rows = partial(self._make_rows, reader)
        at, terms = -1, None

        def look_up(message: MessageRow) -> MessageTerms | None:
            nonlocal at, terms
            page = page_of(message.seq)
            if page != at:
                at, terms = page, reader.known_messages(page)
                if terms is None and (page + 1) * KNOWN_EVENTS_COUNT <= reader.head:
                    self._missing.add(page)
            return None if terms is None else terms.find(message)

        return look_up

    def _make_rows(self, reader: Reader) -> list[Row]:
        """Return the newest rows that the store lacks, a few of them; the state lock is held."""
        rows: list[Row] = []
        for page in sorted(self._missing)[-KNOWN_ROWS_COUNT:]:
            self._missing.discard(page)
            first = page * KNOWN_EVENTS_COUNT + 1
            with suppress(StoreCorrupt):  # Damage that this search did not hit; reading it raises.
                events = reader.loader.recorded_events(range(first, first + KNOWN_EVENTS_COUNT))
                messages = [row for recorded in events for row in rows_of(recorded)]
                rows.append(("graphs", terms_key(page), KnownMessages.pack(messages)))
        return rows


class MessageIndexes:
    """The indexes of a memory: of conversations by their keys, of whole branches, and of chosen events.

    The least recently searched ones are dropped beyond ``MESSAGES_BYTES_MAX``, and all of them after an erasure.
    """

    def __init__(self, core: "Core") -> None:
        self._reader = core.engine.reader
        self._lock = forkable_lock()
        self._filled: OrderedDict[str, _IndexState] = OrderedDict()
        self._erased_count = 0
        self._known = _KnownTerms()

    def clear(self) -> None:
        """Drop all indexes."""
        with enter_once(self._lock):
            self._filled.clear()

    def looks(
        self,
        branch: int,
        starts: Sequence[tuple[str, int | None]],
        model: VectorModel | None,
        gone: Collection[str],
        heirs: Collection[Forked | Restored],
    ) -> SearchRows:
        """Return the rows of conversations, each up to a seq or to the head, and of those that they continued from.

        ``starts`` are the keys and seqs of the conversations; ``branch_key`` is the key of all conversations of a
        branch. With a ``model``, rows have the vectors by it that are in the store. ``gone`` and ``heirs`` are of an
        open batch: the conversations that it dropped, and the events by which others continue.
        """

        def look() -> SearchRows:
            reached = self._fill_all(branch, starts, model)
            replacements = [each for key in {key for key, _ in reached} for each in self._filled[key].replacements]
            looks = [self._filled[key].look(until) for (key, _), until in reached.items()]
            masks = [
                self._filled[key].mask(each, begin, until, gone, heirs)
                for each, ((key, begin), until) in zip(looks, reached.items(), strict=True)
            ]
            return SearchRows(looks, masks, replacements)

        return self._retry(look)

    def of_events(
        self, key: str, seqs: Sequence[int], after: int, until: int, model: VectorModel | None
    ) -> tuple[MessageView, Mapping[str, int]]:
        """Return the rows of events with ``after < seq <= until``, and the numbers of their conversations.

        ``seqs`` are those of all events under a key that the caller chooses; later events are added after them. With a
        ``model``, rows have the vectors by it that are in the store.
        """

        def look() -> tuple[MessageView, Mapping[str, int]]:
            filled = self._filled.pop(key, None) or _IndexState()
            reader, known = self._reader, self._known.of(self._reader)
            for begin in range(bisect_right(seqs, filled.seq), len(seqs), PAGE_EVENTS):
                page = seqs[begin : begin + PAGE_EVENTS]
                with reader.state_lock:
                    events = reader.loader.recorded_events(page)
                filled.index.extend([row for recorded in events for row in rows_of(recorded)], known)
                filled.seq = page[-1]
            if model is not None:
                filled.load(reader, model)
            self._filled[key] = filled
            return filled.index.view(until, after), filled.index.numbers

        return self._retry(look)

    def pending(self, key: str, model: VectorModel, count: int) -> list[tuple[int, int]]:
        """Return seq and place of the newest messages under a key that have no vector by a model yet."""

        def pending() -> list[tuple[int, int]]:
            places = set[tuple[int, int]]()
            for (reached, _), until in self._fill_all(split_key(key)[0], [(key, None)], model).items():
                filled = self._filled[reached]
                places.update(filled.index.missing_vectors(count, filled.streams, until))
            return sorted(places)[-count:]

        return self._retry(pending)

    def add_vectors(self, model: VectorModel, packed: dict[tuple[int, int], bytes]) -> None:
        """Add vectors by a model, given by seq and place of their messages."""
        with enter_once(self._lock):
            for filled in self._filled.values():
                if filled.model == model:
                    filled.index.add_vectors(packed)

    def _retry(self, use: Callable[[], T]) -> T:
        """Call ``use``, and call it again if something was erased meanwhile; return its result."""
        for _ in range(REDO_COUNT_MAX):
            count = erased_count(self._reader)
            with enter_once(self._lock):
                if count != self._erased_count:
                    self._filled.clear()
                    self._erased_count = count
                result = use()
                if erased_count(self._reader) == count:
                    self._forget()
                    return result
        raise StoreBusy("the log was erased from faster than its messages could be read; let that end and call again")

    def _fill_all(
        self, branch: int, starts: Sequence[tuple[str, int | None]], model: VectorModel | None
    ) -> dict[tuple[str, int], int | None]:
        """Fill the indexes of conversations and of those they continued from; return the seq up to which each counts.

        A key of the result includes the seq that its index counts from, because a conversation that was dropped and
        restored counts from two places.
        """
        untils: dict[tuple[str, int], int | None] = {}
        waiting = [*starts]
        while waiting:
            key, until = waiting.pop()
            filled = self._fill_index(branch, key, until)
            begin = filled.begin(until)
            known = untils.get((key, begin), 0)
            if known is None or (until is not None and until <= known):
                continue
            untils[key, begin] = until
            if model is not None:
                filled.load(self._reader, model)
            bases = [base for base in filled.bases if base.seq > begin and (until is None or base.seq <= until)]
            waiting += [(base.key, base.base_seq) for base in bases]
        return untils

    def _fill_index(self, branch: int, key: str, until: int | None) -> _IndexState:
        """Return an index filled up to a seq or the head; an index whose filling is interrupted is dropped."""
        reader, is_branch = self._reader, key == branch_key(branch)
        filled = self._filled.pop(key, None) or _IndexState(Lineage(reader, branch) if is_branch else None)
        end = reader.current_head() if until is None else until
        events = reader.all_events(filled.seq, end, branch) if is_branch else reader.events(key, filled.seq, end)
        rows: list[MessageRow] = []
        known = self._known.of(reader)
        for recorded in events:
            rows += rows_of(recorded)
            filled.replacements += replacements_of(recorded, partial(_read_event, reader))
            if len(rows) >= PAGE_EVENTS:
                filled.index.extend(rows, known)
                rows.clear()
            if isinstance(recorded.event, ForkDropped):
                filled.drops.append(recorded.stamp.seq)
            if filled.lineage is not None:
                filled.lineage.take(recorded)
            if filled.embedded is None:
                filled.bases += starts_of(reader, recorded)
            elif type(recorded.event) in _EMBEDDING and recorded.stamp.stream.startswith("conversation/"):
                stream = recorded.stamp.stream
                (filled.embedded.add if _embeds(reader, branch, recorded) else filled.embedded.discard)(stream)
        filled.index.extend(rows, known)
        filled.seq = max(filled.seq, end)
        self._filled[key] = filled
        return filled

    def _forget(self) -> None:
        size = sum(filled.index.nbytes for filled in self._filled.values())
        while size > MESSAGES_BYTES_MAX and len(self._filled) > 1:
            size -= self._filled.popitem(last=False)[1].index.nbytes


def branch_key(branch: int) -> str:
    """Return the key of the index of all conversations of a branch; it is never the key of a stream."""
    return f"{branch}:"


def _embeds(reader: Reader, branch: int, recorded: Recorded) -> bool:
    """Return whether the messages of a conversation are embedded after an event."""
    event, stamp = recorded
    if isinstance(event, (ConversationOpened, EmbeddingChanged)):
        return bool(event.embed)
    return reader.read(key_of(branch, stamp.stream), is_embedded, stamp.seq)


def _read_event(reader: Reader, seq: int) -> Recorded:
    with reader.state_lock:
        return reader.loader.recorded_events([seq])[0]


def replacements_of(
    recorded: Recorded, event_at: Callable[[int], Recorded], seq_of: Callable[[int], int] = int
) -> Iterator[MessageReplacement]:
    """Yield the message whose content an event replaced, if it did, with seqs as they are in an index."""
    event, stamp = recorded
    if isinstance(event, MessageReplaced):
        is_own = event_at(event.origin).stamp.stream == stamp.stream
        yield MessageReplacement(seq_of(stamp.seq), stamp.stream, event.id, seq_of(event.origin), event.place, is_own)


def rows_of(recorded: Recorded, seq: int | None = None) -> Iterator[MessageRow]:
    """Yield the messages that an event brought, except erased ones; ``seq`` takes the place of the event's seq."""
    stamp = recorded.stamp
    for place, message in enumerate(messages_of(recorded)):
        if not message.erased:
            role = ROLE_NUMBERS[message.event.role]
            yield MessageRow(stamp.seq if seq is None else seq, place, stamp.stream, role, text_of(message))


def text_of(message: Message) -> str:
    """Return the text of a message, as it is searched and embedded."""
    text = "\n".join(countable_texts(message.content, message.tool_calls))
    return text if message.name is None else f"{message.name}: {text}"
