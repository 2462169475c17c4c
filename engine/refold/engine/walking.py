"""The slow walk over a log: event by event, to say exactly what is wrong where, once something is known to be."""

from collections.abc import Callable, Iterator
from typing import Final

from refold import fold
from refold.engine.seen import Seen
from refold.errors import StoreCorrupt
from refold.event import FLAG_BASE, FLAG_ERASED, FLAG_OCCURRED, Erased
from refold.limits import HASH_BYTES, PAGE_EVENTS, STALE_LINK_BYTES_MAX
from refold.results import WRITER, Finding
from refold.store.protocol import Log
from refold.store.record import (
    ARRAY_BEGIN,
    COMMIT,
    FORMAT,
    NO_LINK,
    CommitRow,
    Header,
    covered,
    header_of,
    is_intact,
    link_after,
)

FLAGS: Final = FLAG_ERASED | FLAG_BASE | FLAG_OCCURRED
"""Every flag that something of this format sets."""


class Walk:
    """One walk over commit rows and records up to the head; ``seen`` is what it met on the way."""

    def __init__(self, log: Log, head: int) -> None:
        self._log = log
        self.head = head
        self.seen = Seen()
        self._links = bytearray(NO_LINK)
        """The links of the commits so far, from the one before the first on."""
        self._stale_bytes = STALE_LINK_BYTES_MAX

    def findings(self, progress: Callable[[int, int], None]) -> Iterator[Finding]:
        """Walk the commit rows: they must follow one another, and each link must be that of its records."""
        previous = CommitRow(0, 1, 0, NO_LINK)
        while previous.next_seq <= self.head:
            page = self._log.commits(previous.next_seq - 1, PAGE_EVENTS)
            if not page:
                yield Finding("chain", previous.next_seq, f"no commit row covers seq {previous.next_seq}")
                return
            for row in page:
                commit = CommitRow._make(COMMIT.unpack(row))
                yield from self._commit(previous, commit)
                if commit.next_seq <= previous.next_seq:
                    return
                self._links += commit.link
                previous = commit
                progress(commit.next_seq - 1, self.head)
        if self.head >= self._log.head() and self._log.read(previous.next_seq, 1):
            yield Finding("chain", previous.next_seq, "there are records behind the last commit row")

    def _commit(self, previous: CommitRow, commit: CommitRow) -> Iterator[Finding]:
        first = commit.first_seq
        if first != previous.next_seq or not first < commit.next_seq <= self.head + 1:
            span = f"from seq {first} to {commit.next_seq - 1}"
            yield Finding("gap", first, f"a commit goes {span}, the one before ended at {previous.next_seq - 1}")
            return
        if commit.time_ns < previous.time_ns:
            yield Finding("time", first, f"the commit's time {commit.time_ns} is before its predecessor's", WRITER)
        try:
            records = self._log.read_at(range(first, commit.next_seq))
        except StoreCorrupt as error:
            yield Finding("gap", first, str(error))
            return
        parts = [COMMIT.pack(first, commit.next_seq, commit.time_ns, NO_LINK)]
        for seq, record in enumerate(records, first):
            if len(record) < ARRAY_BEGIN:
                yield Finding("record", seq, f"the record has {len(record)} bytes, fewer than a header")
                return
            header = header_of(record)
            yield from self._record(seq, record, header)
            parts += covered(record, header)
        if link_after(previous.link, parts) != commit.link:
            said = f"the link over seqs {first} to {commit.next_seq - 1}"
            if self._is_stale(parts, commit.link):
                said += " goes on from an earlier commit than the one before it"
                yield Finding("chain", first, f"{said}: whoever wrote it had not read what others wrote", WRITER)
            else:
                yield Finding("chain", first, f"{said} does not fit its records")

    def _is_stale(self, parts: list[bytes], link: bytes) -> bool:
        """Return whether a link is that of its records behind an earlier commit, the latest ones first."""
        content = b"".join(parts)
        for begin in range(len(self._links) - HASH_BYTES, -1, -HASH_BYTES):
            self._stale_bytes -= len(content)
            if self._stale_bytes < 0:
                return False
            if link_after(bytes(self._links[begin : begin + HASH_BYTES]), (content,)) == link:
                return True
        return False

    def _record(self, seq: int, record: bytes, header: Header) -> Iterator[Finding]:
        if header.format > FORMAT:
            yield Finding("record", seq, f"format {header.format} is newer than {FORMAT}")
        if header.flags & ~FLAGS:
            yield Finding("record", seq, f"flags {header.flags:#06x} hold a bit that nothing of this format sets")
        if not is_intact(record, header):
            yield Finding("commitment", seq, "the body is not what the header commits to")
        yield from self._order(seq, header)
        try:
            event = fold.decode(record[ARRAY_BEGIN:], header.tag)
        except StoreCorrupt as error:
            yield Finding("record", seq, str(error))
            return
        if header.flags & FLAG_ERASED:
            self.seen.marked.add(seq)
        if isinstance(event, Erased):
            self.seen.erased.update(event.seqs)
        self.seen.tags.add(header.tag)
        self.seen.derive(seq, event.sources)
        for first in self.seen.repeats(self._log, [seq], [header.stream], [header.commitment], [event]).values():
            yield Finding("twice", seq, f"the event is that of seq {first} once more", WRITER)

    def _order(self, seq: int, header: Header) -> Iterator[Finding]:
        seen = self.seen
        if header.branch != seen.branches.setdefault(header.stream, header.branch):
            yield Finding("order", seq, f"stream {header.stream} goes over into branch {header.branch}", WRITER)
        version, last = seen.heads.get(header.stream, (0, 0))
        if header.branch and header.stream not in seen.heads:
            version, last = max(header.version, 1) - 1, header.prev_seq
            seen.begins[header.stream] = (seq, version, last)
        if header.version != version + 1 or header.prev_seq != last:
            yield Finding(
                "order",
                seq,
                f"stream {header.stream} goes from version {version} at seq {last} "
                f"to version {header.version} after seq {header.prev_seq}",
                WRITER,
            )
        seen.heads[header.stream] = (header.version, seq)
