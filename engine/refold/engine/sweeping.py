"""The fast walk over a log: pages checked as a whole, which says no more than whether anything is wrong.

A page is taken apart into columns by code in C, and each check is one over a column. Where one of them fails the sweep
ends, and ``walking`` looks at every event to say what it is. So what is found, and how it is told, is the slow walk's.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

from refold.engine.loader import decoded
from refold.engine.seen import Seen
from refold.engine.walking import FLAGS
from refold.errors import StoreCorrupt
from refold.event import FLAG_BODY_ELSEWHERE, FLAG_ERASED, Erased, Event
from refold.fold import TAGS
from refold.limits import PAGE_EVENTS
from refold.store.protocol import Log
from refold.store.record import (
    ARRAY_BEGIN,
    COMMIT,
    FORMAT,
    HEADER,
    HEADER_BYTES,
    NO_LINK,
    PREFIX_BYTES,
    CommitRow,
    commitments,
    covered,
    is_intact,
    last_seq_of,
    link_after,
)

_ERASED_TAG: Final = TAGS[Erased]
_STRUCTURAL_BEGIN: Final = ARRAY_BEGIN + PREFIX_BYTES
_MASKED: Final = FLAG_ERASED | FLAG_BODY_ELSEWHERE


class Unsound(Exception):
    """Something is wrong in the log; the slow walk says what."""


class Page(NamedTuple):
    """A page that holds what it should: seqs, records, their events, and the headers, column by column."""

    seqs: Sequence[int]
    records: Sequence[bytes]
    events: Sequence[Event]
    columns: Sequence[Sequence[Any]]


class Sweep:
    """One sweep over a log up to its head; ``seen`` is what it met on the way."""

    def __init__(self, log: Log, head: int) -> None:
        self._log = log
        self._head = head
        self._commits = self._commit_rows()
        self._previous = CommitRow(0, 1, 0, NO_LINK)
        self._current: CommitRow | None = None
        self._parts: list[bytes] = []
        """What the link of the current commit covers, as far as it was read."""
        self._expected: dict[int, tuple[int, int, int]] = {}
        """Number of a stream -> version and ``prev_seq`` that its next event has to have, and its branch."""
        self.seen = Seen()

    def pages(self) -> Iterator[Page]:
        """Return the pages of the log, each found sound but for the link of a commit that goes on behind it.

        Raises ``Unsound`` where anything is wrong.
        """
        for begin in range(1, self._head + 1, PAGE_EVENTS):
            yield self._page(range(begin, min(begin + PAGE_EVENTS, self._head + 1)))
        if self._current is not None or (self._head >= self._log.head() and self._log.read(self._head + 1, 1)):
            raise Unsound
        self.seen.heads = {number: (place[0] - 1, place[1]) for number, place in self._expected.items()}
        self.seen.branches = {number: place[2] for number, place in self._expected.items()}

    def _page(self, seqs: range) -> Page:
        try:
            records = self._log.read_at(seqs)
        except StoreCorrupt as error:
            raise Unsound from error
        if min(map(len, records)) < ARRAY_BEGIN:
            raise Unsound
        columns = list(zip(*map(HEADER.unpack_from, records), strict=True))
        flags, tags, begins, commands, formats = columns[6], columns[7], columns[12], columns[9], columns[16]
        if max(formats) > FORMAT or any(flag & ~FLAGS for flag in set(flags)):
            raise Unsound
        is_plain = not any(flag & _MASKED for flag in set(flags))
        self._check_bodies(seqs, records, columns, is_plain=is_plain)
        self._check_order(seqs, columns)
        self._check_links(seqs, _parts(records, begins, is_plain=is_plain))
        try:
            events = decoded(records, zip(tags, strict=True))
        except StoreCorrupt as error:
            raise Unsound from error
        if self.seen.repeats(self._log, seqs, columns[0], columns[17], events):
            raise Unsound
        self.seen.tags.update(tags)
        self.seen.commands.extend(commands)
        self._note(seqs, tags, events)
        return Page(seqs, records, events, columns)

    def _check_bodies(
        self, seqs: range, records: Sequence[bytes], columns: Sequence[Sequence[Any]], *, is_plain: bool
    ) -> None:
        if is_plain:
            if commitments(records, columns[12]) != columns[17]:
                raise Unsound
            return
        if not all(map(is_intact, records)):
            raise Unsound
        self.seen.marked.update(compress(seqs, [flag & FLAG_ERASED for flag in columns[6]]))

    def _check_order(self, seqs: range, columns: Sequence[Sequence[int]]) -> None:
        """Check that each event goes on from the last one of its stream, in the stream's branch."""
        expected = self._expected
        get = expected.get
        # version, prev_seq and branch, as one tuple for each event.
        for seq, number, place in zip(
            seqs, columns[0], zip(columns[1], columns[8], columns[10], strict=True), strict=True
        ):
            if get(number) != place:
                self._check_first(seq, number, place)
            expected[number] = (place[0] + 1, seq, place[2])

    def _check_first(self, seq: int, number: int, place: tuple[int, int, int]) -> None:
        """Check the first event of a stream; in a branch it goes on from what ``begins`` is to be held against."""
        version, prev_seq, branch = place
        if number in self._expected or not version or (not branch and (version, prev_seq) != (1, 0)):
            raise Unsound
        if branch:
            self.seen.begins[number] = (seq, version - 1, prev_seq)

    def _commit_rows(self) -> Iterator[CommitRow]:
        after = 0
        while rows := self._log.commits(after, PAGE_EVENTS):
            for row in rows:
                if len(row) != COMMIT.size:
                    raise Unsound
                yield CommitRow._make(COMMIT.unpack(row))
            after = max(last_seq_of(rows[-1]), after + 1)

    def _check_links(self, seqs: range, parts: Sequence[bytes]) -> None:
        at = seqs.start
        while at < seqs.stop:
            if self._current is None:
                self._current = self._next_commit(at)
            commit = self._current
            end = min(commit.next_seq, seqs.stop)
            self._parts += parts[at - seqs.start : end - seqs.start]
            at = end
            if at == commit.next_seq:
                if link_after(self._previous.link, self._parts) != commit.link:
                    raise Unsound
                self._previous, self._current = commit, None

    def _next_commit(self, at: int) -> CommitRow:
        commit = next(self._commits, None)
        if (
            commit is None
            or commit.first_seq != at
            or not at < commit.next_seq <= self._head + 1
            or commit.time_ns < self._previous.time_ns
        ):
            raise Unsound
        self._parts = [COMMIT.pack(commit.first_seq, commit.next_seq, commit.time_ns, NO_LINK)]
        return commit

    def _note(self, seqs: range, tags: Sequence[int], events: Sequence[Event]) -> None:
        for seq, event in zip(seqs, events, strict=True):
            if event.sources:
                self.seen.derive(seq, event.sources)
        if _ERASED_TAG in tags:
            for event in events:
                if isinstance(event, Erased):
                    self.seen.erased.update(event.seqs)


def _parts(records: Sequence[bytes], begins: Sequence[int], *, is_plain: bool) -> list[bytes]:
    """Return what the link covers of each record."""
    if is_plain:
        return [
            record[:HEADER_BYTES] + record[_STRUCTURAL_BEGIN : ARRAY_BEGIN + begin]
            for record, begin in zip(records, begins, strict=True)
        ]
    return [b"".join(covered(record)) for record in records]


def swept(log: Log, head: int, take: Callable[[Page], None], progress: Callable[[int, int], None]) -> Seen | None:
    """Sweep the log and hand every page on; return what was seen, ``None`` where anything is wrong."""
    sweep = Sweep(log, head)
    try:
        for page in sweep.pages():
            take(page)
            progress(page.seqs[-1], head)
    except Unsound:
        return None
    return sweep.seen
