"""What a faulty writer leaves in a store: events whose bytes are intact, counted or linked wrongly.

Each function does to a closed store what an interrupted read or write of an earlier refold did: links are computed as a
writer computes them, and nothing but what the fault concerns is other than before.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from refold.limits import HASH_BYTES
from refold.log import record as records
from refold.log.record import COMMIT, HEADER, HEADER_BYTES, SEQ, CommitRow, Header
from tests.engine.test_verify import Rows


class Log(NamedTuple):
    """The records and the commits of a store, in order."""

    records: list[bytes]
    commits: list[CommitRow]

    def header(self, seq: int) -> Header:
        """The header of the record at a seq."""
        return records.header_of(self.records[seq - 1])

    def put(self, seq: int, **fields: Any) -> None:
        """Give the record at a seq another header."""
        record = self.records[seq - 1]
        self.records[seq - 1] = HEADER.pack(*self.header(seq)._replace(**fields)) + record[HEADER_BYTES:]

    def seqs(self, number: int) -> list[int]:
        """The seqs of a stream's events."""
        return [seq for seq in range(1, len(self.records) + 1) if self.header(seq).stream == number]


def read(store: Path) -> Log:
    rows = Rows(store)
    found = [value for _, value in rows.all("log")], [CommitRow(*COMMIT.unpack(row)) for _, row in rows.all("commits")]
    rows.close()
    return Log(*found)


@contextmanager
def rewritten(store: Path, stale: tuple[int, ...] = ()) -> Iterator[Log]:
    """The log of a store, to be changed; then it is linked anew.

    Commits whose places are in ``stale`` go on from the link two commits before, as their writer knew no later one.
    """
    log = read(store)
    yield log
    rows = Rows(store)
    for seq, record in enumerate(log.records, 1):
        rows.put("log", SEQ.pack(seq), record)
    links = [records.NO_LINK, records.NO_LINK]
    for place, commit in enumerate(log.commits):
        blank = COMMIT.pack(*commit._replace(link=records.NO_LINK))
        covered = [
            part for seq in range(commit.first_seq, commit.next_seq) for part in records.covered(log.records[seq - 1])
        ]
        links.append(records.link_after(links[-2] if place in stale else links[-1], [blank, *covered]))
        rows.put("commits", SEQ.pack(commit.next_seq - 1), blank[:-HASH_BYTES] + links[-1])
    rows.close()


def number_of(store: Path, name: str, branch: int = 0) -> int:
    rows = Rows(store)
    number = int.from_bytes(rows.get("names", branch.to_bytes(4, "big") + name.encode()), "big")
    rows.close()
    return number


def begun_anew(store: Path, name: str, places: slice, at: int = 0) -> None:
    """Some events of a stream follow one another from its event number ``at`` on, as if there was none behind it."""
    number = number_of(store, name)
    with rewritten(store) as log:
        seqs = log.seqs(number)
        version, last = (log.header(seqs[at - 1]).version, seqs[at - 1]) if at else (0, 0)
        for seq in seqs[places]:
            version += 1
            log.put(seq, version=version, prev_seq=last)
            last = seq


def twice(store: Path, pick: Callable[[Log], list[int]], *, salted: bool = False) -> None:
    """The events at some seqs are written once more at the end, as one commit, under a fresh salt if ``salted``."""
    with rewritten(store) as log:
        first = len(log.records) + 1
        for seq in pick(log):
            header = log.header(seq)
            last = log.seqs(header.stream)[-1]
            record = log.records[seq - 1]
            salt, array = record[HEADER_BYTES : records.ARRAY_BEGIN], record[records.ARRAY_BEGIN :]
            salt = bytes(reversed(salt)) if salted else salt
            commitment = records.commit_to(salt, array[header.body_begin :])
            log.records.append(HEADER.pack(*header) + salt + array)
            log.put(
                len(log.records),
                version=log.header(last).version + 1,
                prev_seq=last,
                command=first,
                time_ns=log.commits[-1].time_ns,
                commitment=commitment,
            )
        log.commits.append(CommitRow(first, len(log.records) + 1, log.commits[-1].time_ns, records.NO_LINK))
    rows = Rows(store)
    for seq in range(first, len(log.records) + 1):
        for source in msgspec.msgpack.decode(log.records[seq - 1][records.ARRAY_BEGIN :])[1]:
            rows.put("derived", SEQ.pack(source) + SEQ.pack(seq), b"")
    rows.close()


def shared(store: Path, name: str, other: str) -> None:
    """A stream that began later got the number of another one, and its row."""
    number, lost = number_of(store, name), number_of(store, other)
    with rewritten(store) as log:
        for seq in log.seqs(lost):
            log.put(seq, stream=number)
    rows = Rows(store)
    rows.put("streams", number.to_bytes(4, "big"), rows.get("streams", lost.to_bytes(4, "big")))
    rows.put("streams", lost.to_bytes(4, "big"), None)
    rows.put("names", bytes(4) + other.encode(), number.to_bytes(4, "big"))
    rows.close()
